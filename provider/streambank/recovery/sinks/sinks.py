"""Where the sinks of a savepoint stand, what a choice makes of that, taking them back or beginning again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from streambank.checkpoint.position import batches_of
from streambank.control.control import JobControl
from streambank.core.choices import ROLLBACKS, RestoreMode, SinkChoice
from streambank.core.errors import (
    FormatError,
    InputError,
    IntegrityError,
    RefusedError,
    StorageError,
    StreambankError,
)
from streambank.core.names import QueryRef
from streambank.kafka.settings import Brokers
from streambank.kafka.sink import KafkaSinkStanding, look_at_kafka_sink
from streambank.recovery.choices import SinkChoices
from streambank.recovery.sinks.afterwards import as_told, named_afterwards
from streambank.recovery.sinks.reached import Reached
from streambank.recovery.sinks.tables import GuardedTable, look_at_tables, table_refusals, table_warnings
from streambank.recovery.sinks.topics import kafka_refusals, kafka_warnings
from streambank.recovery.sinks.unguarded import (
    UnguardedStanding,
    no_sink_known,
    standing_of,
    unguarded_refusals,
    unguarded_warnings,
)
from streambank.repository.manifest import FileEntry, Manifest
from streambank.repository.repository import Repository
from streambank.sinks.declared import SINK_KINDS, DeclaredSink, of_query
from streambank.sinks.file.capture import KIND, NEAR
from streambank.sinks.file.fresh_log import NewOutput, begin_output, in_the_way
from streambank.sinks.file.position import Chunks, FileSinkStanding, SavedLog, read_saved_log
from streambank.sinks.file.rollback import RollbackReport, cannot_roll_back_hint, roll_back, stand
from streambank.sinks.of_query import QuerySinks, sinks_of_query
from streambank.sinks.table import TITLES, BeforeChange, TableRollback
from streambank.storage import normalize_location, open_store, same_place
from streambank.storage.store import Store

SinkRollback = RollbackReport | TableRollback
FOREACH_BATCH = "ForeachBatchSink"
"""Spark's word for a sink of which nothing else is known."""


@dataclass(frozen=True, slots=True)
class GuardedSink:
    """A file sink of the savepoint as it is now.

    Attributes:
        was: Where it was when the savepoint was taken.
        new: The new output directory where the query goes on, or an emptied old one; None where it goes on
            in the output that it has.
        in_the_way: Files for which `new` is no new output.
        emptied: Nothing is left in the output directory, and no new one was named.
        guessed: Nobody has named it, now or then: it was found near the checkpoint.
    """

    was: str
    store: Store
    saved: SavedLog
    standing: FileSinkStanding
    new: Store | None = None
    in_the_way: tuple[str, ...] = ()
    emptied: bool = False
    guessed: bool = False

    @property
    def skips_batches(self) -> bool:
        """Whether Spark skips batches in it that come again: it does not compute these, nor their state."""
        return self.new is None and self.standing.standing == "ahead"

    def to_dict(self) -> dict[str, Any]:
        """The sink as JSON, for plans and reports."""
        fields = {**self.standing.to_dict(), "new_path": None if self.new is None else self.new.uri}
        if self.new is not None:
            fields["says"] = (
                f"The query goes on in {self.new.uri}, whose log will begin after batch {self.saved.batch}: "
                f"rows of batches up to {self.saved.batch} are not in that log"
                + ("." if self.new.uri == self.store.uri else f". What {self.store.uri} has stays there.")
            )
        return fields


@dataclass(frozen=True, slots=True)
class Sinks:
    """All sinks of a savepoint.

    Attributes:
        guarded: Those that can be judged and taken back.
        unguarded: Those that can be neither judged nor rolled back.
        kafka: Kafka sinks, which can be judged and not be taken back.
        reached: How far the query ever got; None where it is known to stand at the savepoint's batch, or no
            sink needs to know.
        stateful: The query has state, which it cannot load after a batch that was not computed.
    """

    guarded: tuple[GuardedSink, ...]
    unguarded: tuple[UnguardedStanding, ...]
    kafka: tuple[KafkaSinkStanding, ...] = ()
    tables: tuple[GuardedTable, ...] = ()
    reached: Reached | None = None
    stateful: bool = False

    def under(self, choices: SinkChoices, mode: RestoreMode) -> Sinks:
        """The sinks as choices take them: to accept an emptied output directory is to begin it again."""
        if mode == "fork":
            return self
        guarded = (
            replace(one, new=one.store) if one.emptied and choices[one.was] == "accept" else one
            for one in self.guarded
        )
        return replace(self, guarded=tuple(guarded))

    @property
    def paths(self) -> tuple[str, ...]:
        tables = [one.standing.path for one in self.tables]
        topics, others = [one.path for one in self.kafka], [one.path for one in self.unguarded]
        return (*(one.was for one in self.guarded), *tables, *topics, *others)

    def mixed(self) -> SinkChoices | None:
        """To roll back what can be, and to leave the rest; None where one choice for all is the same."""
        stays = [one.was for one in self.guarded if not one.standing.can_roll_back]
        lack = [one.was for one in self.guarded if one.standing.can_roll_back and one.standing.missing]
        stays += [one.standing.path for one in self.tables if not one.standing.can_roll_back]
        stays += [one.path for one in self.kafka if one.safe is not True]
        stays += [one.path for one in self.unguarded if one.safe is not True]
        files = [one.was for one in self.guarded if one.standing.can_roll_back and not one.standing.safe]
        tables = [one.standing for one in self.tables if one.standing.can_roll_back and not one.standing.safe]
        back = {*files, *(one.path for one in tables)}
        if not stays or not back or back & set(stays):
            return None
        of: dict[str, SinkChoice] = dict.fromkeys(lack, "rollback-accept")
        return SinkChoices("rollback", of | dict.fromkeys(stays, "accept"))

    def moved_on(self) -> dict[str, str]:
        """Output directories in which the query no longer writes, each with the one in which it does."""
        return {
            sink.was: sink.new.uri
            for sink in self.guarded
            if sink.new is not None and sink.new.uri != sink.store.uri
        }

    def to_dicts(self, choices: SinkChoices) -> list[dict[str, Any]]:
        """Each sink as JSON, with what is chosen for it, for plans and reports."""
        tables = [one.standing.to_dict() for one in self.tables]
        judged = [sink.to_dict() for sink in self.kafka]
        named = [sink.to_dict() for sink in self.unguarded]
        files = [{**sink.to_dict(), "stateful": self.stateful} for sink in self.guarded]
        found = [*files, *tables, *judged, *named]
        return [{**one, "choice": choices[path]} for one, path in zip(found, self.paths, strict=True)]


def look_at_sinks(
    repository: Repository,
    manifest: Manifest,
    moved: Mapping[str, str],
    new: Mapping[str, str],
    *,
    kafka: Brokers | None = None,
    mode: RestoreMode = "no-claim",
    reached: Reached | None = None,
    unnamed: tuple[str, str] | None = None,
    now: QuerySinks | None = None,
    same_line: bool | None = True,
    file_sinks: Iterable[str] = (),
    near: Iterable[str] = (),
) -> Sinks:
    """Compare each sink with the savepoint. Reads only.

    Args:
        moved: Sinks that are elsewhere now: the location in the savepoint to the one now.
        new: Sinks instead of which the query goes on in a new output directory: the location in the
            savepoint to the new one.
        kafka: Who is asked about Kafka sinks; None to name them only.
        reached: How far the query ever got; None where it is known to stand at the savepoint's batch.
        unnamed: Kind and description of a sink that the savepoint does not name, and the job's records do.
        now: What the query writes to by the word of its job; None where its tables need not be asked.
        same_line: The query was not restored to an earlier batch since the savepoint; None where no records
            tell.
        file_sinks: Output directories of file sinks that the savepoint does not name.
        near: Output directories that may be the query's, where no sink is known.

    Raises:
        InputError: `unknown-sink`, `two-sinks-one-directory`: what `new` says makes no sense; or what
            `file_sinks` names is not the query's, see `named_afterwards`.
        RefusedError: See `named_afterwards`.
        IntegrityError: What the savepoint keeps of a sink is damaged.
        FormatError: It cannot be understood.
    """
    places = {normalize_location(old): normalize_location(new) for old, new in moved.items()}
    outputs = {normalize_location(old): normalize_location(now) for old, now in new.items()}
    sure = [normalize_location(one) for one in file_sinks]
    named = named_afterwards(manifest, sure, same_line)
    if (
        unnamed is not None
        and unnamed[0] == "FileSink"
        and (told := as_told(manifest, unnamed[1], same_line))
    ):
        named, unnamed = [*named, told], None
    _check_new(manifest, [one.store.uri for one in named], outputs)
    guarded: list[GuardedSink] = []
    unguarded: list[UnguardedStanding] = []
    judged: list[KafkaSinkStanding] = []
    writes = now or QuerySinks()
    tables = [] if now is None else look_at_tables(manifest, now, same_line=same_line)
    for record in (*manifest.sinks, *(one.record for one in named)):
        kind, path = str(record.get("kind")), str(record.get("path"))
        if kind in TITLES or writes.covers(kind):
            continue
        if kind in SINK_KINDS:
            if not _is_declared(path, writes):  # else what is declared now counts
                known = kind if kind == "append" else FOREACH_BATCH
                unguarded.append(standing_of(known, path, manifest, mode, reached))
            continue
        if kafka is not None and (found := look_at_kafka_sink(record, kafka)) is not None:
            judged.append(found)
            continue
        if kind != KIND or record.get("guarded") is not True:
            unguarded.append(standing_of(kind, path, manifest, mode, reached))
            continue
        entries = [FileEntry.from_dict(fields) for fields in record.get("files", ())]
        content: Mapping[str, Chunks] = {
            entry.path: partial(repository.objects.chunks, entry.digest) for entry in entries
        }
        content = next((one.content for one in named if one.record is record), content)
        store = open_store(places.get(path, path))
        if record.get("batch") != manifest.batch:
            raise IntegrityError(
                f"Savepoint {manifest.savepoint} is of batch {manifest.batch}, but what it keeps of the sink "
                f"{path} is of batch {record.get('batch')}.",
                code="savepoint-damaged",
                hint="Use another savepoint.",
            )
        saved = read_saved_log(record, content, store.uri)
        try:
            standing = stand(saved, store, path)
        except StorageError as error:
            if path not in outputs:
                raise
            # The query leaves it, so that nothing depends on it: its storage may be what was lost.
            standing = FileSinkStanding(
                store.uri, "damaged", manifest.batch, None, problem=error.message, unread=True
            )
        output = open_store(outputs[path]) if path in outputs else None
        emptied = output is None and standing.sink_batch is None and not any(store.list())
        others = () if output is None else in_the_way(saved, output)
        guessed = record.get("found") == NEAR and not any(same_place(path, one) for one in sure)
        guarded.append(GuardedSink(path, store, saved, standing, output, others, emptied, guessed))
    for plain in writes.plain:
        unguarded.append(standing_of(plain.kind, plain.path, manifest, mode, reached))
    if unnamed is not None and not writes.covers(unnamed[0]):
        unguarded.append(standing_of(*unnamed, manifest, mode, reached, unnamed=True))
    if not (manifest.sinks or named or guarded or unguarded or judged or tables):
        unguarded.append(no_sink_known(manifest, mode, reached, near))
    return Sinks(
        tuple(guarded), tuple(unguarded), tuple(judged), tuple(tables), reached, bool(manifest.operators)
    )


def _is_declared(path: str, writes: QuerySinks) -> bool:
    plain = any(one.path == path for one in writes.plain)
    return plain or any(path == one.path or same_place(path, one.path) for one in writes.tables)


def query_sinks_now(control: JobControl, manifest: Manifest, declared: Iterable[DeclaredSink]) -> QuerySinks:
    """What the query of a savepoint writes to by its last driver's word, and by its job's."""
    query = QueryRef.parse(manifest.job).query
    try:
        facts = control.query_facts(query) or {}
    except FormatError:
        facts = {}  # damaged: what is declared counts
    same = facts.get("query_id", manifest.query_id) == manifest.query_id
    sink = facts.get("sink") if same else None
    return sinks_of_query(
        sink if isinstance(sink, str) else None, manifest.query_id, of_query(declared, query)
    )


def _check_new(manifest: Manifest, named: Iterable[str], outputs: Mapping[str, str]) -> None:
    known = {
        str(record.get("path"))
        for record in manifest.sinks
        if record.get("kind") == KIND and record.get("guarded") is True
    } | set(named)
    for old in outputs:
        if old not in known:
            ours = f"It keeps those of: {', '.join(sorted(known))}. " if known else ""
            raise InputError(
                f"Savepoint {manifest.savepoint} does not keep the log of a file sink {old}.",
                code="unknown-sink",
                hint=f"{ours}If the query writes there, name it as well: --file-sink {old}.",
            )
    if len(set(outputs.values())) < len(outputs):
        raise InputError(
            "Two sinks cannot go on in one output directory.",
            code="two-sinks-one-directory",
            hint="Name a new directory for each.",
        )


def refusals(sinks: Sinks, choices: SinkChoices, mode: RestoreMode) -> list[StreambankError]:
    """Why a restore must not go on with these choices; empty where it may.

    Raises:
        InputError: They name a sink that there is not (code `unknown-sink`).
    """
    for path in choices.of:
        if path not in sinks.paths:
            raise InputError(
                f"The query has no sink {path}.",
                code="unknown-sink",
                hint=f"Its sinks: {', '.join(sinks.paths) or 'none'}.",
            )
    ahead = [one.standing.path for one in sinks.guarded if one.new is None and not one.standing.safe]
    ahead += [one.standing.path for one in sinks.tables if one.standing.safe is False]
    found: list[StreambankError] = []
    for table in sinks.tables:
        choice = choices.without_files(table.standing.path)
        found += table_refusals([table.standing], choice, mode, stateful=sinks.stateful)
    for topic in sinks.kafka:
        found += kafka_refusals([topic], choices.without_files(topic.path), mode, sinks.reached)
    for plain in sinks.unguarded:
        choice = choices.without_files(plain.path)
        left = [one for one in ahead if choices[one] == "accept" or not choices.of]
        found += unguarded_refusals([plain], choice, left)
    for sink in sinks.guarded:
        sure = replace(sink, guessed=sink.guessed and sink.was not in choices.of)
        found += _file_refusals(sure, choices[sink.was], mode, stateful=sinks.stateful)
    return found


def _file_refusals(
    sink: GuardedSink, choice: SinkChoice, mode: RestoreMode, *, stateful: bool
) -> Iterator[StreambankError]:
    standing = sink.standing
    if sink.new is not None:
        yield from _against_new(sink, sink.new, mode)
    elif mode == "fork":
        if choice != "accept":
            yield RefusedError(
                f"The file sink {standing.path} belongs to the query that is forked, and two queries in one "
                "output directory lose each other's rows.",
                code="fork-shares-sink",
                hint=f"Let the fork write elsewhere, and say where: --new-sink {sink.was}=DIR.",
            )
    elif standing.safe:
        return
    elif choice == "refuse":
        yield RefusedError(
            standing.sentence(),
            code="sink-would-lose-rows",
            hint=_named(sink) + _ways_out(standing, breaks=stateful and sink.skips_batches),
        )
    elif choice in ROLLBACKS and (not standing.can_roll_back or (choice == "rollback" and standing.missing)):
        yield RefusedError(
            standing.sentence(), code="sink-cannot-roll-back", hint=cannot_roll_back_hint(standing)
        )
    elif choice in ROLLBACKS and sink.guessed:
        yield RefusedError(
            f"{standing.sentence()} Nobody has named it as the query's output: it was found {NEAR}.",
            code="sink-not-named",
            hint=f"If the query of the savepoint writes there, and no other query does, say so: --file-sink "
            f"{sink.was}.",
        )
    elif choice == "accept" and standing.unfinished:
        yield RefusedError(
            standing.sentence(),
            code="sink-rollback-unfinished",
            hint=f"Finish it: restore with --sink {'rollback-accept' if standing.missing else 'rollback'}.",
        )
    elif choice == "accept" and standing.gap:
        yield _gap(sink)


def _named(sink: GuardedSink) -> str:
    return (
        f"It was found near the checkpoint: if the query writes there, say so with --file-sink {sink.was}. "
        if sink.guessed
        else ""
    )


def _gap(sink: GuardedSink) -> RefusedError:
    """Accepting output means to live with lost or repeated rows; over this log the query would not live."""
    how = "rollback-accept" if sink.standing.missing else "rollback"
    rollback = f"--sink {how} writes what the savepoint keeps of the log; "
    return RefusedError(
        f"The log of the file sink {sink.store.uri} has a gap: {sink.standing.gap} Spark does not go on over "
        "it: readers fail, and the query stops with BATCH_METADATA_NOT_FOUND.",
        code="sink-log-gap",
        hint=(rollback if sink.standing.can_roll_back else "")
        + f"--new-sink {sink.was}=DIR gives a new directory a log that Spark goes on from.",
    )


def _against_new(sink: GuardedSink, new: Store, mode: RestoreMode) -> Iterator[RefusedError]:
    if mode == "fork" and new.uri in (sink.was, sink.store.uri):
        yield RefusedError(
            f"The new output directory {new.uri} is that of the query that is forked.",
            code="fork-shares-sink",
            hint="Name another one: two queries in one output directory lose each other's rows.",
        )
    elif sink.in_the_way:
        yield RefusedError(
            f"The new output directory {new.uri} is not empty: it holds {_some(sink.in_the_way)}.",
            code="new-sink-not-empty",
            hint="Name a new or empty directory.",
        )


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def warnings(sinks: Sinks, choices: SinkChoices, mode: RestoreMode) -> Iterator[str]:
    """What choices let through: rows that come twice, and what Spark would not go on with."""
    yield from kafka_warnings(sinks.kafka, mode)
    yield from table_warnings([one.standing for one in sinks.tables], mode)
    yield from unguarded_warnings(sinks.unguarded)
    for sink in sinks.guarded:
        if sink.standing.unread and sink.new is not None:
            yield (
                f"It is not known how far the output {sink.store.uri} is: "
                f"{sink.standing.problem.rstrip('.')}. If it has batches after {sink.saved.batch}, their "
                f"rows come again in {sink.new.uri}."
            )
    if mode != "fork":
        for sink in sinks.guarded:
            if sinks.stateful and sink.skips_batches and choices[sink.was] == "accept":
                yield (
                    f"The query does not start again once Spark has skipped the batches up to "
                    f"{sink.standing.sink_batch} that {sink.standing.path} has: no state is written for them "
                    "(CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS)."
                )
        return
    for sink in sinks.guarded:
        if sink.new is None and choices[sink.was] == "accept":
            batch = sink.saved.batch
            yield (
                f"Spark does not go on with batch {batch + 1} in a new output directory whose log does not "
                f"reach batch {batch}: readers fail, and the query stops with BATCH_METADATA_NOT_FOUND. "
                f"--new-sink {sink.was}=DIR gives a new directory such a log."
            )


def _ways_out(standing: FileSinkStanding, *, breaks: bool) -> str:
    rollback = "--sink rollback rolls the sink back to the savepoint and sets later files aside; "
    if standing.missing:
        rollback = (
            "--sink rollback-accept sets later files aside, and accepts that the missing files are gone; "
        )
    accept = "--sink accept restores anyway and leaves the sink as it is"
    accept += ": the query, which has state, then fails after the batches that it skips." if breaks else "."
    return (rollback if standing.can_roll_back and not standing.nothing_later else "") + accept


def to_roll_back(sinks: Sinks, choices: SinkChoices) -> tuple[list[GuardedSink], list[GuardedTable]]:
    """The file sinks and the tables that choices take back: those in which the query goes on."""
    files = [one for one in sinks.guarded if one.new is None and choices[one.was] in ROLLBACKS]
    return files, [one for one in sinks.tables if choices[one.standing.path] in ROLLBACKS]


def roll_back_sinks(
    sinks: Sinks,
    choices: SinkChoices,
    manifest: Manifest,
    before_files: BeforeChange = lambda: None,
    changing: Callable[[str], AbstractContextManager[object]] = lambda name: nullcontext(),
) -> Iterator[SinkRollback]:
    """Take every guarded sink back that was chosen for that, one after the other.

    Args:
        changing: Gives what is entered around the change of each table, by its name.

    Raises:
        RefusedError, ConflictError, StorageError: See `sinks.file.rollback.roll_back` and
            `TableGuard.roll_back`; a second try goes on from there.
    """
    files, tables = to_roll_back(sinks, choices)
    for sink in files:
        accept = choices[sink.was] == "rollback-accept"
        yield roll_back(
            sink.saved,
            sink.store,
            sink.was,
            manifest.savepoint,
            before_files,
            accept_missing=accept,
            called=manifest.job,
        )
    for table in tables:
        yield table.guard.roll_back(table.standing, partial(changing, table.standing.name))


def begin_outputs(sinks: Sinks) -> list[NewOutput]:
    """Give every new output directory the log that Spark goes on from.

    Raises:
        ConflictError, StorageError: See `file_begin.begin_output`; a second try goes on from there.
    """
    return [begin_output(sink.saved, sink.new, sink.was) for sink in sinks.guarded if sink.new is not None]


def check_stands_at(job: str, location: str, batch: int) -> None:
    """Make sure that a checkpoint has not gone on: this batch is the last, planned and committed.

    Raises:
        RefusedError: Another one was committed last (code `query-went-on`), or the next one was begun
            (`batch-begun`): what a sink got of that is not always known.
    """
    found = batches_of(location)
    if found.committed != batch:
        raise RefusedError(
            f"{job} does not stand at batch {batch}: the last that was committed in {location} is "
            f"{shown(found.committed)}.",
            code="query-went-on",
            hint="Start over: stop the job with a savepoint.",
        )
    if found.planned != batch:
        raise RefusedError(
            f"{job} does not stand between two batches: {shown(found.planned)} was begun in {location}, and "
            "not committed.",
            code="batch-begun",
            hint="Start the job, let it finish that batch, and stop it at a batch boundary (without force).",
        )


def shown(batch: int | None) -> str:
    """A batch for people."""
    return "none" if batch is None else f"batch {batch}"
