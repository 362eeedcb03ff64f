"""Names that people give to savepoints: `before-upgrade`, unique within a job.

A manifest says by which name it was taken, but a savepoint that is there already can get one, too, and of two
takes only one can have it. So records decide: `names/<job>/<name>-<number>.json`, each made by an exclusive
create. Of one name the highest number counts whose savepoint is listed, so that a name is free again when its
savepoint expires, and comes back with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from streambank.core.errors import ConflictError, InputError, NotFoundError
from streambank.core.names import QueryRef, check_name
from streambank.core.units import to_json_time, utc_now
from streambank.repository.marks import UNREADABLE
from streambank.repository.sealed import damaged, decode_record, encode_record
from streambank.storage.names import near
from streambank.storage.store import Store, read_record

FOLDER = "names"
RESERVED = frozenset({"each", "latest", "latest-good", "newest", "oldest", "random"})
"""What means a savepoint, or may come to mean one, is no name of a single one."""
_VALUES = frozenset({"none", "null", "true", "false", "nan", "inf", "infinity"})
"""What templates, YAML and JSON read as something else than a text, by whichever case."""
_LIKE_AN_ID = re.compile(r"b[0-9]*(-[0-9a-f]*)?", re.ASCII)
_FILE = re.compile(r"(?P<name>.+)-(?P<number>\d{10})\.json", re.ASCII)
_TRIES = 100


@dataclass(frozen=True, slots=True)
class NameRecord:
    """One savepoint that was given a name.

    Attributes:
        number: Of that name, from 1.
    """

    job: str
    name: str
    number: int

    @property
    def key(self) -> str:
        """Where it lies in its repository."""
        return f"{FOLDER}/{self.job}/{self.name}-{self.number:010d}.json"


def is_like_an_id(text: str) -> bool:
    """Whether a text may be the beginning of a savepoint's id, as every take makes them."""
    return _LIKE_AN_ID.fullmatch(text) is not None


def check_savepoint_name(name: str) -> str:
    """The same name, if a savepoint may have it.

    Raises:
        InputError: It may not (code `bad-savepoint-name`).
    """
    why = None
    try:
        check_name(name, "savepoint")
    except InputError as error:
        why = error.hint
    if why is None and not name[0].isalpha():
        why = "A name begins with a letter: digits begin a time."
    if why is None and is_like_an_id(name):
        why = "This could be the beginning of a savepoint's id."
    if why is None and name in RESERVED:
        why = f"{', '.join(sorted(RESERVED))} have a meaning already."
    if why is None and name.lower() in _VALUES:
        why = "Templates take it for a value, or for no name at all."
    if why is not None:
        raise InputError(
            f"A savepoint cannot have the name {name!r}.",
            code="bad-savepoint-name",
            hint=f"{why} Choose a name such as before-upgrade.",
        )
    return name


def listed_names(store: Store, job: str | None = None) -> Iterator[NameRecord]:
    """The records of names, in no order.

    Args:
        job: Only this one's: for `job` its queries' too, for `job/query` that query's.
    """
    for info in store.list(f"{FOLDER}/{job}" if job else FOLDER):
        place, _, file = info.path.removeprefix(f"{FOLDER}/").rpartition("/")
        match = _FILE.fullmatch(file)
        if match is None:
            continue
        try:
            QueryRef.parse(place)
        except InputError:
            continue  # not made by this program
        yield NameRecord(place, match["name"], int(match["number"]))


def newest_records(records: Iterator[NameRecord]) -> dict[tuple[str, str], list[NameRecord]]:
    """Records by job and name, the newest of each first; none whose number no history leads to."""
    found: dict[tuple[str, str], list[int]] = {}
    for record in records:
        found.setdefault((record.job, record.name), []).append(record.number)
    return {of: [NameRecord(*of, number) for number in reversed(near(those))] for of, those in found.items()}


def read_name(store: Store, record: NameRecord) -> str:
    """The savepoint that a record gives its name to; raises as `read_given`."""
    return read_given(store, record)[0]


def read_given(store: Store, record: NameRecord) -> tuple[str, Mapping[str, Any]]:
    """The savepoint that a record gives its name to, and who gave it.

    Raises:
        NotFoundError: It is gone.
        IntegrityError: It is not what was written, or belongs to something else (code `record-damaged`).
        FormatError: A newer Streambank wrote it.
    """
    what = f"name {record.name} of a savepoint of {record.job}"
    fields = decode_record(read_record(store, record.key), what)
    place = (fields.get("kind"), fields.get("job"), fields.get("name"), fields.get("number"))
    savepoint = fields.get("savepoint")
    if place != ("name", record.job, record.name, record.number) or not isinstance(savepoint, str):
        raise damaged(what, "it is the record of another name")
    by = fields.get("by")
    return savepoint, by if isinstance(by, dict) else {}


def names_there(
    store: Store, job: str | None, is_there: Callable[[str, str], bool]
) -> tuple[dict[tuple[str, str], tuple[str, ...]], frozenset[tuple[str, str]]]:
    """The names of listed savepoints.

    Args:
        job: As for `listed_names`.
        is_there: Whether a savepoint is listed, by job and id.

    Returns:
        The names of each savepoint that has any, by job and id; and every name that has records, by job: what
        a manifest says of these does not count.
    """
    found: dict[tuple[str, str], list[str]] = {}
    records = newest_records(listed_names(store, job))
    for (of_job, name), those in sorted(records.items()):
        for record in those:
            try:
                savepoint = read_name(store, record)
            except (NotFoundError, *UNREADABLE):
                break  # which savepoint has the name is not known; who asks for it by name gets the error
            if is_there(of_job, savepoint):
                found.setdefault((of_job, savepoint), []).append(name)
                break
    return {which: tuple(names) for which, names in found.items()}, frozenset(records)


def records_of_name(store: Store, job: str, name: str) -> list[NameRecord]:
    """The records of one name of one job, the newest first."""
    matches = [_FILE.fullmatch(file) for file in store.names(f"{FOLDER}/{job}")]
    numbers = near(int(match["number"]) for match in matches if match and match["name"] == name)
    return [NameRecord(job, name, number) for number in reversed(numbers)]


def give_name(
    store: Store,
    digest_name: str,
    job: str,
    name: str,
    savepoint: str,
    *,
    by: Mapping[str, Any] | None = None,
    holder: Callable[[], str | None],
) -> str:
    """Give a name to a savepoint that is listed. One conditional create decides between two that ask.

    Args:
        name: A name that `check_savepoint_name` lets pass.
        holder: Looks which listed savepoint has the name by records; None where none has.

    Returns:
        The savepoint that has the name now: this one, or another one that had it first.

    Raises:
        ConflictError: Others wrote records of the name all the time (code `too-many-writers`).
    """
    for _ in range(_TRIES):
        records = records_of_name(store, job, name)
        there = holder()
        if there is not None:
            return there
        record = NameRecord(job, name, records[0].number + 1 if records else 1)
        fields = {
            "kind": "name",
            "number": record.number,
            "job": job,
            "name": name,
            "savepoint": savepoint,
            "at": to_json_time(utc_now()),
            "by": dict(by or {}),
        }
        try:
            store.write(record.key, encode_record(fields, digest_name), exclusive=True)
        except ConflictError:
            continue  # another take was first: its savepoint may have the name now
        return savepoint
    raise ConflictError(
        f"The name {name} could not be given to the savepoint {savepoint} of {job}.",
        code="too-many-writers",
        hint="Try again.",
    )
