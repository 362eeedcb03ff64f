"""What a choice makes of sinks that are not guarded, where the query has gone on after the savepoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from streambank.control.control import JobControl
from streambank.core.choices import RestoreMode, SinkChoice
from streambank.core.errors import FormatError, RefusedError
from streambank.core.names import QueryRef
from streambank.declaration.kafka import FACT
from streambank.kafka.recording import KIND as KAFKA
from streambank.recovery.sinks.reached import Reached
from streambank.repository.manifest import Manifest
from streambank.sinks.file.capture import KIND as FILE
from streambank.sinks.unguarded import Harm, harm_of, sink_from_description, sink_name

CODE = "sink-not-guarded"
_PAGE = "docs/howto/sinks.md says how to roll such a sink back yourself first."


@dataclass(frozen=True, slots=True)
class UnguardedStanding:
    """A sink that cannot be judged or rolled back, and how far the query got that writes to it.

    Attributes:
        kind: Spark's word for it.
        path: Spark's whole description.
        batch: The savepoint's batch.
        harm: What going back does to it; for a fork, whose query id is new, what the sink knows is no matter.
        reached: How far the query got; None where it is known to stand at the savepoint's batch.
        fork: Whether another query is to be made of the savepoint.
        unnamed: The savepoint does not name it: only the job's records do.
    """

    kind: str
    path: str
    batch: int
    harm: Harm
    reached: Reached | None = None
    fork: bool = False
    unnamed: bool = False

    @property
    def name(self) -> str:
        """The sink as messages name it."""
        return sink_name(self.kind, self.path)

    @property
    def safe(self) -> bool | None:
        """Whether going back leaves the output as if nothing had happened; None where that is not known."""
        if self.harm in ("none", "overwritten") or self.reached is None:
            return True
        beyond = self.reached.beyond(self.batch)
        return None if beyond is None else not beyond

    def sentence(self) -> str:
        """How it stands, for a person who decides; never empty."""
        if self.harm == "none":
            return f"The sink {self.name} keeps nothing that a restore could harm."
        if self.harm == "overwritten":
            return (
                f"The sink {self.name} is declared idempotent by key: what comes again overwrites what is "
                "there, so its output is right once the query has caught up."
            )
        if self.safe or self.reached is None:
            return f"The sink {self.name} is not guarded; it was sent nothing after the savepoint."
        why = f": {self.reached.not_known}" if self.safe is None else ""
        by = ", and the savepoint does not name it" if self.unnamed else ""
        said = self.reached.sentence(self.batch)
        return f"The sink {self.name} is not guarded{by}. {said}{why}. {self._harm(self.reached)}"

    def _harm(self, reached: Reached) -> str:
        batches = reached.batches(self.batch)
        if self.fork:
            return (
                f"The fork has another query id: if it writes to this sink, rows of {batches} are repeated."
            )
        begins = f"The restored query counts from batch {self.batch + 1} again, with other rows in each."
        repeated = f"rows of {batches} are repeated"
        skipped = f"regards {batches} as done: their new rows are skipped for good"
        if self.harm == "repeated":
            return f"{begins} Then {repeated}."
        if self.harm == "skipped":
            return f"{begins} The sink remembers batch ids and {skipped}."
        return (
            f"{begins} If the sink only appends, {repeated}; if it remembers batch ids (as Delta, Iceberg "
            f"and ledgers in foreachBatch do), it {skipped}."
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON, for plans and reports."""
        reached = self.reached
        return {
            "kind": self.kind,
            "path": self.path,
            "guarded": False,
            "safe": self.safe,
            "can_roll_back": False,
            "savepoint_batch": self.batch,
            "harm": self.harm,
            "newest_batch": reached.newest if reached is not None else self.batch,
            "says": self.sentence(),
        }


def standing_of(
    kind: str,
    path: str,
    manifest: Manifest,
    mode: RestoreMode,
    reached: Reached | None,
    *,
    unnamed: bool = False,
) -> UnguardedStanding:
    """How a sink that is not guarded stands."""
    harm = harm_of(kind)
    fork = mode == "fork"
    if fork and harm not in ("none", "overwritten"):
        harm = "repeated"
    return UnguardedStanding(kind, path, manifest.batch, harm, reached, fork, unnamed)


def unguarded_refusals(
    sinks: Iterable[UnguardedStanding], choice: SinkChoice, others: Iterable[str] = ()
) -> Iterator[RefusedError]:
    """Why a restore must not go on with this choice.

    Args:
        sinks: The sinks.
        choice: What was chosen for all sinks.
        others: Guarded sinks with later output, which `accept` leaves as they are, too.
    """
    if choice == "accept":
        return
    ahead = list(others)
    for sink in sinks:
        if sink.safe:
            continue
        rollback = " It cannot be rolled back." if choice == "rollback" else ""
        also = (
            f". It also leaves the later output of {', '.join(ahead)}, and Spark then skips those batches: "
            "give the query a new directory with --new-sink instead"
            if ahead
            else ""
        )
        yield RefusedError(
            sink.sentence() + rollback,
            code=CODE,
            hint=f"{_PAGE} --sink accept restores and leaves {sink.name} as it is{also}.",
        )


def unguarded_warnings(sinks: Iterable[UnguardedStanding]) -> Iterator[str]:
    """What a person should know of a fork, whatever was chosen."""
    for sink in sinks:
        if sink.fork and sink.harm != "none":
            yield (
                f"The fork writes to the sink of the query that it is forked from ({sink.name}), unless its "
                "application is configured otherwise."
            )


def unnamed_sink(control: JobControl, manifest: Manifest) -> tuple[str, str] | None:
    """The sink that the job's query writes to by its last driver's word, where the savepoint names no such.

    A savepoint that was taken before the first start, or of a bare checkpoint, names none; one from
    before the application changed names another.

    Args:
        control: The job's records.
        manifest: The savepoint.

    Returns:
        Kind and description; None where the savepoint has it, or it is a file sink among others, whose log
        says by itself how far it is.

    Raises:
        StorageError: The records cannot be read now.
    """
    try:
        facts = control.query_facts(QueryRef.parse(manifest.job).query)
    except FormatError:
        return None  # damaged: what the savepoint names counts
    if facts is None or facts.get("query_id", manifest.query_id) != manifest.query_id:
        return None
    if not isinstance(facts.get("sink"), str):
        return None
    kinds = {str(record.get("kind")) for record in manifest.sinks}
    told = facts.get(FACT)
    capture = sink_from_description(facts["sink"])
    kind, path = capture.kind, capture.path
    if capture.kind == FILE:
        kind, path = "FileSink", facts["sink"]
    elif isinstance(told, Mapping) and told.get("sink") is not None:
        kind = KAFKA
    same = {kind, FILE} if kind == "FileSink" else {kind}
    if kinds & same or (kinds and kind == "FileSink"):
        return None
    return kind, path
