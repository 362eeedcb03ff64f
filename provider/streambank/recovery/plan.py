"""What a restore would do, and what speaks against it: for dry runs, forms and approvals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from streambank.control.progress import progress_of_batch
from streambank.core.choices import ROLLBACKS, RestoreMode, SinkChoice, SourceChoice
from streambank.core.errors import StreambankError
from streambank.core.names import QueryRef
from streambank.core.shape import HIDDEN, TENTHS, encode
from streambank.core.units import from_epoch_ms, say_bytes, say_duration, to_json_time, utc_now
from streambank.inputs.replayable import replayable_effect, source_effect
from streambank.kafka.retention import KafkaReplay
from streambank.procedure.rows import WARNING, Rows, titled
from streambank.recovery.choices import PossibleChoices
from streambank.recovery.choosing.resolve import Next, PassedOver, Skipped, as_of_json
from streambank.recovery.estimates import Estimate, unknown_times
from streambank.recovery.sinks.reached import Reached
from streambank.recovery.sinks.readers import Reader
from streambank.repository.manifest import Manifest
from streambank.repository.references import AsOf
from streambank.storage.store import Store

_PUBLISHED_WITHIN = timedelta(seconds=5)
"""The runner writes a batch down a moment after Spark has committed it, and a take may be faster."""
_CLOCKS_APART = timedelta(seconds=1)
"""The storage's clock gives the time of the commit, the driver's that of the record."""


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """A restore that has not been done.

    Attributes:
        job: `job` or `job/query`.
        query_id: The query id in the savepoint; a fork gets another one.
        age_s: How long ago that was: what is newer has to be processed again, or is lost where its source
            is gone.
        rows: Rows of state, where the files tell.
        generation: Its number, for a job's next generation; None for a directory.
        sinks: Where each sink stands, what would be lost, and whether it can be taken back.
        mixed_sinks: Which sinks would have to be left as they are where all others can be rolled back; empty
            where one choice for all does, or nothing works.
        reached: How far the query ever got; None where no sink needs to know.
        sources: Where each Kafka source stands, what could not be read any more, and which sources cannot
            be repeated.
        replays: How long each source can be read again, where that was looked at.
        passed_over: What was wrong with repositories and replicas that were asked first.
        watermark_ms: Event-time watermark of the query after the batch, in milliseconds since the epoch; None
            where it has none.
        read_again: The first and the last batch whose input the query has read after the savepoint's, and
            will read again; None where it has read none, or that is not known.
        estimates: How long it will take, where earlier restores or drills tell.
        as_of: The moment that a reference by time means; None for another reference.
        skipped: Newer savepoints that `latest-good` walked past, and why.
        refusals: Errors that the restore would raise; empty where it may go on.
        other_refusals: Those of `refusals` that no choice for sinks and sources changes.
        sink_refusals: For each choice for the sinks, what the sinks have against it; a fork cannot choose
            `rollback`.
        source_refusals: For each choice for the sources, what they have against it.
        another_line: That the savepoint is of another query of the same name, and which; or that it may be,
            since nothing says which is the job's own. Else empty.
    """

    savepoint: str
    job: str
    batch: int
    query_id: str
    taken_at: datetime
    age_s: Annotated[float, TENTHS]
    files: int
    bytes: int
    rows: int | None
    note: str
    location: str
    generation: int | None
    mode: RestoreMode
    sink: SinkChoice
    sinks: tuple[Mapping[str, Any], ...]
    mixed_sinks: Mapping[str, SinkChoice]
    reached: Reached | None
    source: SourceChoice
    sources: tuple[Mapping[str, Any], ...]
    replays: Annotated[tuple[KafkaReplay, ...], HIDDEN]
    repository: str
    passed_over: tuple[PassedOver, ...]
    watermark_ms: int | None
    read_again: tuple[int, int] | None
    estimates: tuple[Estimate, ...]
    next: tuple[Next, ...]
    as_of: Annotated[AsOf | None, HIDDEN]
    skipped: tuple[Skipped, ...]
    refusals: tuple[StreambankError, ...]
    other_refusals: Annotated[tuple[StreambankError, ...], HIDDEN]
    sink_refusals: Annotated[Mapping[SinkChoice, tuple[StreambankError, ...]], HIDDEN]
    source_refusals: Annotated[Mapping[SourceChoice, tuple[StreambankError, ...]], HIDDEN]
    warnings: tuple[str, ...]
    readers: Annotated[tuple[Reader, ...], HIDDEN] = ()
    another_line: str = ""

    @property
    def possible(self) -> bool:
        return not self.refusals

    @property
    def possible_choices(self) -> PossibleChoices:
        """The choices with which neither sinks nor sources speak against the restore."""
        sink = tuple(choice for choice, against in self.sink_refusals.items() if not against)
        more = {"rollback-accept"} - {self.sink} if "rollback" in sink else set()  # it would do the same
        return PossibleChoices(
            tuple(one for one in sink if one not in more),
            tuple(choice for choice, against in self.source_refusals.items() if not against),
        )

    def check(self) -> None:
        """Raise what speaks against the restore.

        Raises:
            RefusedError, ConflictError, FormatError, StorageError: The first of `refusals`. Its message also
                has what others of the same kind say, since each is of another sink or source.
        """
        if self.refusals:
            first = self.refusals[0]
            said = dict.fromkeys(one.message for one in self.refusals if type(one) is type(first))
            raise type(first)(" ".join(said), code=first.code, hint=first.hint) from first

    def sink_effect(self, *, done: bool = False) -> str:
        """What becomes of output that is newer than the savepoint, in a sentence for people."""
        says = " ".join(str(sink["says"]) for sink in self.sinks if sink["says"])
        harmed = [sink for sink in self.sinks if sink["says"] and sink["safe"] is not True]
        if not says:
            return "Nothing was written after the savepoint."
        if all(sink.get("new_path") for sink in harmed):
            return says
        ended = []
        if back := [one for one in harmed if one["choice"] in ROLLBACKS and one["guarded"]]:
            ended.append(f"{'was' if done else 'will be'} {_taken_back(back)}")
            if any(one.get("missing_files") and one["choice"] == "rollback-accept" for one in back):
                ended[-1] += ", and the missing files stay missing"
        if [one for one in harmed if one["choice"] == "accept"]:
            ended.append("was accepted" if done else "is accepted")
        if len(ended) == 2:
            return f"{says} What can be rolled back {ended[0]}; the rest {ended[1]}."
        if back:
            return f"{says} Later output {ended[0]}."
        return f"{says} This {ended[0]}." if ended else says

    def watermark_effect(self) -> str:
        """Where event time stands after the restore, for people; empty for a query without a watermark."""
        moment = None if self.watermark_ms is None else from_epoch_ms(self.watermark_ms)
        if not self.watermark_ms or moment is None:
            return ""
        return (
            f"The event-time watermark goes back to {to_json_time(moment)}: rows that are older than it are "
            "late, and are dropped."
        )

    def read_again_effect(self) -> str:
        """Which batches' input is read again, for people; empty where none is, or it is not known."""
        if self.read_again is None:
            return ""
        first, last = self.read_again
        which = f"batch {first}" if first == last else f"batches {first} to {last}"
        return f"The input of {which} is read again, as long as the sources still have it."

    def source_effect(self) -> str:
        """What is still there of the input, in a sentence for people; empty where no source can be judged."""
        return source_effect(self.sources, accepted=self.source == "accept")

    def replayable_effect(self) -> str:
        """How long the input after the savepoint can be read again, for people; empty of no source."""
        now = self.taken_at + timedelta(seconds=self.age_s)
        return replayable_effect(self.replays, now, self.source_effect())

    @property
    def place(self) -> str:
        """Where it leads, for people."""
        generation = "" if self.generation is None else f"generation {self.generation}: "
        return f"{generation}{self.location}"

    def chosen_rows(self) -> Rows:
        """What people read of the savepoint, and of how it was chosen."""
        return [
            *titled("another line", [self.another_line]),
            ("savepoint", f"{self.savepoint} of {self.job}" + (f": {self.note}" if self.note else "")),
            ("batch", f"{self.batch:,}"),
            ("taken", f"{to_json_time(self.taken_at)}, {say_duration(round(self.age_s))} ago"),
            ("comes from", self.repository),
            *titled("as of", [None if self.as_of is None else str(self.as_of)]),
            ("state rows", "unknown" if self.rows is None else f"{self.rows:,}"),
            ("size", f"{say_bytes(self.bytes)} in {self.files:,} files"),
            ("restored to", self.place),
            *titled("mode", ["" if self.mode == "no-claim" else self.mode]),
        ]

    def passed_rows(self) -> Rows:
        """Which places and savepoints were passed over, and why."""
        passed = [(one.location, one.why) for one in self.passed_over]
        skipped = [(one.savepoint, one.why) for one in self.skipped]
        return [
            *titled("passed over", [f"{what}: {why}" for what, why in passed]),
            *titled("skipped", [f"{what}: {why}" for what, why in skipped]),
        ]

    def rows_of_input(self) -> Rows:
        """What is still there of the input, where a source can be judged."""
        only_kafka = all(
            one.get("repeatable") is not False and one.get("kind") != "file" for one in self.sources
        )
        said = self.source_effect() if self.sources else ""
        return titled("input in Kafka" if only_kafka else "input", [said])

    def shown_rows(self) -> Rows:
        """What people read of it before they decide, beside what speaks against it."""
        unknown = unknown_times([one.until for one in self.estimates])
        moved = [sink for sink in self.sinks if sink.get("new_path")]
        return [
            *self.chosen_rows(),
            ("output written later", self.sink_effect()),
            *titled("event time", [self.watermark_effect()]),
            *titled("read again", [self.read_again_effect()]),
            *titled("replayable", [self.replayable_effect()]),
            *titled("takes", [*(one.sentence() for one in self.estimates), unknown]),
            *titled("next if this one fails", [one.sentence(utc_now()) for one in self.next]),
            *self.rows_of_input(),
            *titled("writes to", [f"{sink['new_path']} instead of {sink['path']}" for sink in moved]),
            *self.passed_rows(),
            *titled(WARNING, self.warnings),
        ]

    def to_dict(self) -> dict[str, Any]:
        until = min((one.until for one in self.replays if one.until is not None), default=None)
        return encode(self) | {
            **as_of_json(self.as_of),
            "sink_effect": self.sink_effect(),
            "source_effect": self.source_effect(),
            "replayable_until": None if until is None else to_json_time(until),
            "replayable_effect": self.replayable_effect(),
            "watermark_effect": self.watermark_effect(),
            "read_again_effect": self.read_again_effect(),
            "possible": self.possible,
            "possible_choices": self.possible_choices.to_dict(),
        }


def _taken_back(sinks: Sequence[Mapping[str, Any]]) -> str:
    """What happens to later output: that of a file sink is kept beside it."""
    aside = [one["kind"] == "file" for one in sinks]
    return "set aside" if all(aside) else "set aside, or rolled back" if any(aside) else "rolled back"


def age_s(manifest: Manifest) -> float:
    """Seconds since a savepoint was taken; 0 where its clock was ahead of ours."""
    return max(0.0, (datetime.now(UTC) - manifest.taken_at).total_seconds())


def state_rows(manifest: Manifest) -> int | None:
    """Rows of state of a savepoint, where its files tell for every store; 0 for a stateless query."""
    total = 0
    for operator in manifest.operators:
        for store in operator.get("stores", ()):
            rows = store.get("rows")
            if not isinstance(rows, int):
                return None
            total += rows
    return total


def reported_rows(records: Store, manifest: Manifest) -> int | None:
    """Rows of state after a savepoint's batch as Spark itself reported them to the runner; None if unknown.

    The sum of `numRowsTotal` over Spark's `stateOperators`: where a changelog lies on top of a snapshot the
    files do not tell, since a change may add a row, replace one or remove it.

    Args:
        manifest: The savepoint; records from before its batch was committed, or from after it was taken, are
            of another run of the batch number.
    """
    committed = next((one.mtime_ns for one in manifest.files if one.path == f"commits/{manifest.batch}"), 0)
    if not committed:
        return None
    record = progress_of_batch(
        records,
        QueryRef.parse(manifest.job).query,
        manifest.batch,
        since=datetime.fromtimestamp(committed / 1e9, UTC) - _CLOCKS_APART,
        until=manifest.taken_at + _PUBLISHED_WITHIN,
    )
    if record is None:
        return None
    rows = [one.get("numRowsTotal") for one in record.progress.get("stateOperators") or ()]
    return sum(rows) if rows and all(isinstance(each, int) for each in rows) else None
