"""What a choice makes of sinks that are not guarded, where the query has gone on after the savepoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from streambank.control.control import JobControl
from streambank.core.choices import NO_SINK, ROLLBACKS, RestoreMode, SinkChoice
from streambank.core.errors import FormatError, RefusedError, StreambankError
from streambank.core.names import QueryRef
from streambank.declaration.kafka import FACT
from streambank.kafka.recording import KIND as KAFKA
from streambank.recovery.sinks.reached import Reached
from streambank.repository.manifest import Manifest
from streambank.sinks.file.capture import KIND as FILE
from streambank.sinks.file.log import list_log
from streambank.sinks.unguarded import Harm, harm_of, sink_from_description, sink_name
from streambank.storage import open_store

CODE = "sink-not-guarded"
_PAGE = "docs/howto/sinks.md says how to roll such a sink back yourself first."


@dataclass(frozen=True, slots=True)
class UnguardedStanding:
    """A sink that cannot be judged or rolled back, and how far the query got that writes to it.

    Attributes:
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


@dataclass(frozen=True, slots=True)
class NoSinkKnown(UnguardedStanding):
    """Whatever the query of a savepoint writes to that knows no sink.

    Attributes:
        ahead: Those of them whose log has later batches, each with the newest.
    """

    stateful: bool = False
    candidates: tuple[str, ...] = ()
    ahead: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return "the output"

    @property
    def safe(self) -> bool | None:
        """A fork shares whatever there is with the query that it is forked from: never known to be safe."""
        if self.reached is None:
            return True
        if self.fork:
            return None
        beyond = True if self.ahead else self.reached.beyond(self.batch)
        return None if beyond is None else not beyond

    def sentence(self) -> str:
        """How it stands, for a person who decides."""
        known = "No sink of the query is known: the savepoint names none."
        if self.fork and self.reached is not None:
            return (
                f"{known} A file sink does not compare query ids: if the fork writes to the output of the "
                "query that it is forked from, each skips the batches that the other has written there. "
                f"{self._skipped()}"
            )
        if self.safe or self.reached is None:
            return f"{known} The query has not gone on after it."
        batches = self.reached.batches(self.batch)
        if self.ahead and self.reached.beyond(self.batch) is not True:
            some = " and ".join(f"that of {path} has batch {newest}" for path, newest in self.ahead.items())
            how_far = f"The log of an output near the checkpoint, which may be the query's, is ahead: {some}"
        elif self.reached.newest is not None and self.reached.newest > self.batch:
            how_far = f"The query went on to batch {self.reached.newest}"
        else:
            how_far = f"How far the query went on is not known: {self.reached.not_known}"
        return (
            f"{known} {how_far}. The restored query counts from batch {self.batch + 1} again. If it writes "
            f"files or a Delta table by Spark's own sink, that skips {batches}, which it has already. "
            f"{self._skipped()} Another sink gets rows of {batches} twice, or loses them if it remembers "
            "batch ids."
        )

    def _skipped(self) -> str:
        if self.stateful:
            return (
                "Spark writes no state for a batch that it skips, so the query, which has state, fails at "
                "each start after that (CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS)."
            )
        return "New rows of a batch that is skipped are lost for good."

    def refusal(self, choice: SinkChoice) -> RefusedError:
        """Why a restore must not go on with this choice."""
        if choice in ROLLBACKS and self.safe:
            message = f"{self.sentence()} So there is nothing to roll back."
        else:
            message = self.sentence()
        some = f" (perhaps {' or '.join(self.candidates)})" if self.candidates else ""
        new = " --new-sink DIR=NEW" if self.fork else ""
        then = "it is compared then, and --sink rollback takes it back" if not self.fork else "NEW gets a log"
        return RefusedError(
            message,
            code="no-sink-known",
            hint=f"Name the output directory of a file sink: --file-sink DIR{new}{some}; {then}. "
            "--sink accept restores without: for output that was taken back by hand, or is not needed.",
        )


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
        others: Guarded sinks with later output, which `accept` leaves as they are, too.
    """
    if choice == "accept":
        return
    ahead = list(others)
    for sink in sinks:
        if isinstance(sink, NoSinkKnown):
            if not sink.safe or (choice in ROLLBACKS and sink.reached is not None):
                yield sink.refusal(choice)
            continue
        if sink.safe:
            continue
        rollback = " It cannot be rolled back." if choice in ROLLBACKS else ""
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


def no_sink_known(
    manifest: Manifest, mode: RestoreMode, reached: Reached | None, candidates: Iterable[str] = ()
) -> NoSinkKnown:
    """How the output of a savepoint stands that names no sink."""
    found = tuple(dict.fromkeys((*manifest.sink_candidates, *candidates)))
    newest = {path: _newest(path) for path in found}
    return NoSinkKnown(
        NO_SINK,
        NO_SINK,
        manifest.batch,
        "unknown",
        reached,
        mode == "fork",
        stateful=bool(manifest.operators),
        candidates=found,
        ahead={path: batch for path, batch in newest.items() if batch > manifest.batch},
    )


def _newest(output: str) -> int:
    """The newest batch of a log that may be the query's; -1 where it cannot be read: it proves nothing."""
    try:
        return max((name.batch for name in list_log(open_store(output))), default=-1)
    except StreambankError:
        return -1


def unnamed_sink(control: JobControl, manifest: Manifest) -> tuple[str, str] | None:
    """The sink that the job's query writes to by its last driver's word, where the savepoint names no such.

    A savepoint that was taken before the first start, or of a bare checkpoint, names none; one from
    before the application changed names another.

    Returns:
        Kind and description; None where the savepoint has it, or it is a file sink among others, whose log
        says by itself how far it is.
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
