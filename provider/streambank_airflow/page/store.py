"""How a job's snapshot is kept in Airflow: small values under keys, none of which is ever read half.

On Airflow 3.3 and later they are in the asset state store of the job's page asset, before that they are
Variables. A value has less than `MOST_BYTES`, below Airflow's own limit for one (64 KB). The line is one
value, and so is a part that is small enough, compressed. A larger one is cut into pieces, whose keys have the
part's digest in them:

1. The head that is there gets a note of the pieces that come.
2. The pieces are written.
3. The new head is written, which names them: from here on the part is the new one. It has a note of the
   pieces that the head before has named.
4. Those are deleted. A reader that has read that head and finds no pieces reads the head again.

A crash leaves pieces that only a note names. The next writer deletes them once the note is `LEFT_S` old, for
until then their writer may be at work.
"""

from __future__ import annotations

import base64
import json
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Protocol

from streambank.core.json_text import loads
from streambank_airflow.airflow_versions import keeps_in_assets
from streambank_airflow.page.names import page_name

FORMAT = 1
LINE = "line"
"""Key of the line: one JSON object, as it is."""
DAGS = "dags"
"""Key of what is known by tasks that have ended: which DAGs of one's own work on the job, and how."""
MOST_BYTES = 60_000
"""What a value may have, as JSON."""
MOST_PART_BYTES = 8 << 20
"""What a part may have, as JSON before it is compressed."""
MOST_PIECES = 64
TRIES = 3
"""How often a head is read whose pieces are not there: a writer may just have replaced them."""
VARIABLE = "streambank.page"
LEFT_S = 600.0
"""How old a note of pieces is, in seconds, whose writer must have died."""
_MOST_NOTES = 20
_PIECE_BYTES = MOST_BYTES - 3_000  # a head has less than this around its data


class DamagedPartError(ValueError):
    """What is kept of a part is not what was written."""


class TooLargeError(ValueError):
    """A line or a part has more than can be kept."""


class NoPageError(LookupError):
    """There is no asset with which values of a job could be kept: no DAG file names it."""


class PageValues(Protocol):
    """Where the values of one job are."""

    def get(self, key: str) -> Any:
        """A value; None where there is none."""

    def set(self, key: str, value: Any) -> None:
        """Write a value, whatever was there."""

    def delete(self, key: str) -> None:
        """Delete a value; what is not there is deleted already."""


class AssetValues:
    """Values in the state store of a job's page asset; for tasks and triggers.

    Any task and any trigger reaches it by the asset's name, as long as the asset is active: `build_dags`
    names it as an inlet of the job's first DAG, and so does a task in a DAG of one's own that names the job.
    Once no DAG in the database names it, Airflow's scheduler deletes the values.
    """

    def __init__(self, job: str) -> None:
        from airflow.sdk.execution_time.context import AssetStateStoreAccessor

        self._store = AssetStateStoreAccessor(name=page_name(job))

    def get(self, key: str) -> Any:
        return self._store.get(key)

    def set(self, key: str, value: Any) -> None:
        """Write a value, whatever was there.

        Raises:
            NoPageError: There is no such asset.
        """
        try:
            self._store.set(key, value)
        except Exception as error:
            # In a worker the answer comes through its supervisor, else it is the one of the server itself.
            answer, said = (
                getattr(error, "response", None),
                getattr(getattr(error, "error", None), "detail", None),
            )
            if 404 in (getattr(answer, "status_code", None), (said or {}).get("status_code")):
                raise NoPageError(str(error)) from error
            raise

    def delete(self, key: str) -> None:
        self._store.delete(key)


class VariableValues:
    """Values as Variables of Airflow, before 3.3; for tasks and triggers."""

    def __init__(self, job: str) -> None:
        self.job = job

    def get(self, key: str) -> Any:
        from airflow.sdk import Variable

        text = Variable.get(variable_key(self.job, key), default=None)
        try:
            return None if text is None else loads(text)
        except ValueError:  # a person has edited it: it is written again
            return None

    def set(self, key: str, value: Any) -> None:
        from airflow.sdk import Variable

        Variable.set(variable_key(self.job, key), as_json(value), description="Kept for Streambank's page")

    def delete(self, key: str) -> None:
        from airflow.sdk import Variable

        Variable.delete(variable_key(self.job, key))


def values_of(job: str) -> PageValues:
    """Where this Airflow keeps the values of a job."""
    return AssetValues(job) if keeps_in_assets() else VariableValues(job)


def variable_key(job: str, key: str) -> str:
    """The key of a value among Airflow's Variables; no name of a job has a colon."""
    return f"{VARIABLE}:{job}:{key}"


@dataclass(frozen=True, slots=True)
class PageStore:
    """Writes what the page shows of one job."""

    values: PageValues

    def line(self) -> dict[str, Any] | None:
        """The line that was kept last; None where none was, or it is damaged."""
        found = self.values.get(LINE)
        return found if isinstance(found, dict) and isinstance(found.get("parts"), dict) else None

    def keep(
        self, line: Mapping[str, Any], parts: Mapping[str, Any], before: Mapping[str, Any] | None
    ) -> int:
        """Keep a snapshot: its parts, but for those that have not changed, then its line.

        Args:
            line: The line, which has the digest of each part.
            before: The line that was kept last, whose parts are there; None to write every part.

        Returns:
            How many parts were written.

        Raises:
            TooLargeError: One of them is too large.
        """
        known, now = _digests(before), _digests(line)
        changed = [
            name
            for name in parts
            if known.get(name) is None or known[name] != now.get(name) or self._is_other(name, known[name])
        ]
        for name in changed:
            self.keep_part(name, parts[name], of=now.get(name))
        if len(text := as_json(line)) >= MOST_BYTES:
            raise TooLargeError(f"the line has {len(text)} bytes, and {MOST_BYTES} can be kept")
        self.values.set(LINE, loads(text))
        for name in known.keys() - now.keys():
            self._drop_part(name)
        return len(changed)

    def _is_other(self, name: str, digest: Any) -> bool:
        """Whether what is kept of a part is not what the line says: it was damaged, or half written."""
        head = _head(self.values.get(part_key(name)))
        return head.get("of") != digest or head.get("format") != FORMAT

    def _drop_part(self, name: str) -> None:
        key = part_key(name)
        head = _head(self.values.get(key))
        self.values.delete(key)
        for piece in pieces_of(name, head):
            self.values.delete(piece)

    def keep_part(self, name: str, part: Any, of: Any = None) -> None:
        """Keep one part, whatever was there.

        Args:
            of: The digest of its content, as the line has it.

        Raises:
            TooLargeError: It is too large.
        """
        head, pieces = packed(name, part)
        head["of"] = of
        key, now = part_key(name), time.time()
        before = _head(self.values.get(key))
        if pieces:
            own = {"digest": head["digest"], "pieces": head["pieces"], "at": now}
            self.values.set(key, {**before, "notes": [*_notes(before), own][-_MOST_NOTES:]})
            for piece, data in pieces.items():
                self.values.set(piece, data)
            # Once more, right before it is replaced: another writer of this part may have been quicker.
            before = _head(self.values.get(key))
        notes = [one for one in _notes(before) if one.get("digest") != head["digest"]]
        young = [one for one in notes if now - _written_at(one) < LEFT_S]
        gone = {*pieces_of(name, before)} - {*pieces}
        if gone:
            young.append({"digest": before["digest"], "pieces": before["pieces"], "at": now})
        self.values.set(key, {**head, "notes": young[-_MOST_NOTES:]} if young else head)
        for note in notes:
            if note not in young:
                gone |= {*pieces_of(name, note)}
        for piece in sorted(gone):
            self.values.delete(piece)


def packed(name: str, part: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """The head of a part, and its pieces by key.

    Raises:
        TooLargeError: It is too large.
    """
    text = as_json(part).encode()
    data = base64.b64encode(zlib.compress(text, 6)).decode()
    pieces = -(-len(data) // _PIECE_BYTES)
    if len(text) > MOST_PART_BYTES or pieces > MOST_PIECES:
        raise TooLargeError(f"part {name} has {len(text)} bytes, compressed {len(data)}")
    digest = blake2b(text, digest_size=16).hexdigest()
    head: dict[str, Any] = {"format": FORMAT, "digest": digest, "bytes": len(text)}
    if pieces == 1:
        return {**head, "data": data}, {}
    head["pieces"] = pieces
    cuts = [data[number * _PIECE_BYTES : (number + 1) * _PIECE_BYTES] for number in range(pieces)]
    return head, dict(zip(pieces_of(name, head), cuts, strict=True))


def pieces_of(name: str, head: Any) -> list[str]:
    """Keys of the pieces that a head names; none for what is no such head."""
    if not isinstance(head, dict):
        return []
    number, digest = head.get("pieces"), head.get("digest")
    if type(number) is not int or not 0 < number <= MOST_PIECES or not _is_digest(digest):
        return []
    return [f"{part_key(name)}/{digest}/{index}" for index in range(number)]


def part_key(name: str) -> str:
    """The key of a part's head."""
    return f"part/{name}"


def read_part(name: str, read: Callable[[Sequence[str]], Mapping[str, Any]]) -> str | None:
    """A part as it was kept: the text of its JSON; None where it never was.

    Args:
        read: Gives values by keys; those that are not there are missing in its answer.

    Raises:
        DamagedPartError: It is not what was written.
    """
    key = part_key(name)
    for _try in range(TRIES):
        head = read([key]).get(key)
        if head is None or _head(head).keys() == {"notes"}:
            return None  # of the first writer, which has not come to its end
        if _head(head).get("format") != FORMAT:
            raise DamagedPartError(f"the head of part {name} is not one of format {FORMAT}")
        keys = pieces_of(name, head)
        found = read(keys) if keys else {}
        data = [head.get("data")] if not keys else [found.get(one) for one in keys]
        if None not in data or not keys:
            return _unpacked(name, head, data)
    raise DamagedPartError(f"part {name} is not there as a whole")


def _unpacked(name: str, head: Mapping[str, Any], data: Sequence[Any]) -> str:
    try:
        compressed = base64.b64decode("".join(data), validate=True)
        reader = zlib.decompressobj()
        text = reader.decompress(compressed, MOST_PART_BYTES)
        if not reader.eof or blake2b(text, digest_size=16).hexdigest() != head.get("digest"):
            raise DamagedPartError(f"part {name} does not have the digest of its head")
        return as_json(loads(text))  # what a browser cannot read is damaged, too
    except (TypeError, ValueError, RecursionError, zlib.error) as error:
        if isinstance(error, DamagedPartError):
            raise
        raise DamagedPartError(f"part {name} cannot be read: {error}") from error


def as_json(value: Any) -> str:
    """A value as Airflow writes it, JSON of ASCII characters alone: its characters are its bytes.

    Raises:
        ValueError: It has a number that JSON does not.
    """
    return json.dumps(value, allow_nan=False)


def _digests(line: Mapping[str, Any] | None) -> dict[str, Any]:
    parts = (line or {}).get("parts")
    if not isinstance(parts, Mapping):
        return {}
    return {name: one.get("digest") for name, one in parts.items() if isinstance(one, Mapping)}


def _head(value: Any) -> dict[str, Any]:
    """A head that was read; empty for what is none."""
    return value if isinstance(value, dict) else {}


def _notes(head: Mapping[str, Any]) -> list[dict[str, Any]]:
    notes = head.get("notes")
    return [one for one in notes if isinstance(one, dict)] if isinstance(notes, list) else []


def _written_at(note: Mapping[str, Any]) -> float:
    """When a note was written, in seconds since 1970; long ago where it does not say."""
    at = note.get("at")
    return float(at) if isinstance(at, int | float) else 0.0


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 32 and all(one in "0123456789abcdef" for one in value)
