"""Which savepoints are of the line in which a query goes on: others verify as well, and do not count.

A site that could not be fenced may run on, and save, after the batch from which the other one went on. Such a
savepoint is the newest one, it verifies, and it is replicated; but the job's outputs are of another line. And
a savepoint of another query under the same name and key (a test) is genuine wherever somebody brings it. It
has both another query id and a checkpoint that is none of the job's own, since a restore keeps the id, and
whatever begins with a new one begins in a checkpoint of the job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from streambank.checkpoint.files import read_query_id
from streambank.control.control import JobControl
from streambank.control.marker import read_marker
from streambank.core.errors import StreambankError
from streambank.core.json_text import is_whole_number
from streambank.core.names import QueryRef
from streambank.repository.catalog import SavepointSummary, candidate_heads, newest_good
from streambank.repository.manifest import Manifest
from streambank.sites.records import SiteRecord, Sites
from streambank.storage import Store, open_store, service_name


class SavepointFacts(Protocol):
    """What of a savepoint is asked here; `Manifest` and `SavepointSummary` have it."""

    @property
    def batch(self) -> int | None:
        """Its batch."""

    @property
    def query_id(self) -> str:
        """Spark's id of the query."""

    @property
    def checkpoint(self) -> str:
        """Where it was taken."""


@dataclass(frozen=True)
class QueryLines:
    """What is known of the lines of a query.

    Attributes:
        left: See `left_after`.
        told: Its ids by what every driver may write: they count only where no own savepoint says one.
        here: The id in the checkpoint in which it works: it began anew, perhaps, and was not saved since.
        checkpoints: Where its checkpoint is declared, at each site.
        saved: Savepoints by which it is known, see `knowing`; read only where one is of no own checkpoint.
    """

    left: Mapping[str, int] = field(default_factory=dict)
    told: frozenset[str] = frozenset()
    here: frozenset[str] = frozenset()
    checkpoints: frozenset[str] = frozenset()
    saved: Iterable[SavepointFacts] = field(default=(), repr=False, compare=False)

    @classmethod
    def of(cls, control: JobControl, query: str) -> QueryLines:
        """By the records of a job, its declaration, the marker, and the checkpoint.

        Args:
            query: The query's name, `main` for the only one.
        """
        declared, called = control.checkpoints.get(query, ()), str(QueryRef.of(control.name, query))
        told: list[object] = []  # a record may hold anything
        here: list[str] = []
        # What is damaged, or gone with a disk, is not known: it must not stand in the way of a restore.
        with suppress(StreambankError):
            told.append((control.query_facts(query) or {}).get("query_id"))
        for checkpoint in declared[:1]:
            with suppress(StreambankError):
                marker = read_marker(checkpoint)
                told.append(marker.query_id if marker is not None and marker.called == called else None)
                generation = control.generation(query)
                if generation is not None:
                    generation.check_of(checkpoint, called)
                here.append(read_query_id(open_store(generation.location if generation else checkpoint)))
        left = left_after(Sites(control).all(), query)
        ids = frozenset(one for one in told if isinstance(one, str))
        return cls(left, ids, frozenset(here), frozenset(declared))

    def knowing(self, saved: Iterable[SavepointFacts]) -> QueryLines:
        """The same, by savepoints of the query; it stays as it is where it knows some.

        Args:
            saved: They, wherever they are. They are read once, and only if that is needed.
        """
        return self if self.saved else replace(self, saved=saved)

    @cached_property
    def query_ids(self) -> frozenset[str]:
        """Its ids, as far as they are known.

        Who writes records could else make a savepoint of a test count by the id that they name.
        """
        own = {one for one, is_own in self._saved_ids if is_own}
        return frozenset(own | self.here) if own else self.told

    def why_another(self, saved: SavepointFacts) -> str:
        """Why a savepoint is of another query of the same name; empty where it is not, or may not be."""
        if not self._is_foreign(saved) or not self.query_ids or saved.query_id in self.query_ids:
            return ""
        return (
            f"It is of another line: of query {saved.query_id} in {saved.checkpoint}, and the job's own is "
            f"{' or '.join(sorted(self.query_ids))} in {' or '.join(sorted(self.checkpoints))}."
        )

    def why_unknown(self, saved: SavepointFacts) -> str:
        """Why a savepoint may be of another query, since nothing says which is the job's; else empty."""
        ids = {one for one, _ in self._saved_ids} if self._is_foreign(saved) and not self.query_ids else ()
        if len(ids) < 2:
            return ""
        return (
            f"It may be of another line: of query {saved.query_id} in {saved.checkpoint}. There are "
            f"savepoints of {len(ids)} queries, and nothing says which is the job's own: none was saved in "
            f"{' or '.join(sorted(self.checkpoints))}."
        )

    def why_not(self, saved: SavepointFacts) -> str:
        """Why a savepoint does not count; empty where it does."""
        return why_left(self.left, saved.checkpoint, saved.batch) or self.why_another(saved)

    @cached_property
    def _saved_ids(self) -> frozenset[tuple[str, bool]]:
        """The ids of the savepoints, each with whether one of an own checkpoint has it."""
        return frozenset((one.query_id, not self._is_foreign(one)) for one in self.saved if one.query_id)

    def _is_foreign(self, saved: SavepointFacts) -> bool:
        """Whether a savepoint was taken of a checkpoint that is known to be none of the job's."""
        place = str(service_name(saved.checkpoint))
        return bool(self.checkpoints and saved.query_id) and not any(
            re.fullmatch(rf"{re.escape(str(service_name(one)))}(\.g[0-9]{{4,}})?", place)
            for one in self.checkpoints
        )


def newest_own(control: JobControl | None, store: Store, called: str, most: int) -> list[Manifest]:
    """`newest_good` of the line in which a query goes on: others are neither its age nor its way back.

    Args:
        control: The job's records; None where it is not declared.
        called: `job` or `job/query`.

    Raises:
        StreambankError: The records of its sites, or the repository, cannot be read.
    """
    lines = _lines_of(control, called).knowing(candidate_heads(store, called))
    return newest_good(store, called, most, leave_out=lines.why_not)


def others_among(control: JobControl | None, called: str, saved: Iterable[SavepointSummary]) -> set[str]:
    """The ids of those savepoints of a query that are of other lines.

    Args:
        control: The job's records; None where it is not declared.
        called: `job` or `job/query`.
        saved: All that are there of the query.
    """
    known = [one for one in saved if one.error is None]
    lines = _lines_of(control, called).knowing(known)
    return {one.savepoint for one in known if lines.why_not(one)}


def _lines_of(control: JobControl | None, called: str) -> QueryLines:
    return QueryLines() if control is None else QueryLines.of(control, QueryRef.parse(called).name)


def left_after(records: Sequence[SiteRecord], query: str) -> dict[str, int]:
    """Checkpoints that a query has left by fail-overs, each with the last batch that counts.

    A site that goes on in its own checkpoint, because a fail-over from it was given up or a person decided
    for it, has not left that.

    Args:
        records: The records of a site, oldest first.
    """
    left: dict[str, int] = {}
    kept: set[str] = set()
    for record in reversed([one for one in records if one.active and one.number > 1]):
        if record.was == record.site:
            kept.add(record.site)
            continue
        savepoint, checkpoint = record.savepoints.get(query), record.left.get(query)
        digits = (savepoint or "").partition("-")[0].removeprefix("b")
        if record.was not in kept and checkpoint and is_whole_number(digits):
            left[checkpoint] = min(int(digits), left.get(checkpoint, int(digits)))
        kept.discard(record.site)
    return left


def why_left(left: Mapping[str, int], checkpoint: str, batch: int | None) -> str:
    """Why a savepoint is of a line that was left; empty where it is not.

    Args:
        left: See `left_after`.
    """
    place = service_name(checkpoint) if left else None
    last = min((one for at, one in left.items() if service_name(at) == place), default=None)
    if last is None or batch is None or batch <= last:
        return ""
    return (
        f"The job went on at its other site after batch {last}, and this was saved on the line that it left."
    )
