"""Whether the input of a savepoint can be read again, and what its sinks make of going back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from streambank.checkpoint.closure import Closure, ClosurePlanner
from streambank.checkpoint.sources import SourceState, cannot_repeat, file_log_offset
from streambank.core.finding import Finding
from streambank.core.scratch import DistinctNames
from streambank.core.units import say_are, say_count, say_were
from streambank.doctor.subject import CheckResult, SkippedCheck
from streambank.inputs.clean_source import OPTION, cleaning_of
from streambank.inputs.files import Exists, names_after, standing_of
from streambank.kafka.recording import FORMAT, SourceRecorder
from streambank.kafka.retention import replay_of
from streambank.kafka.settings import Brokers
from streambank.repository.manifest import Manifest
from streambank.savepoint.warnings import not_asked
from streambank.sinks.table import TableStanding
from streambank.sinks.unguarded import harm_of, sink_name

_GONE = "A restore cannot read them again: their rows are in no batch after it, and Spark does not say so."
_KEEP = (
    "Keep the source's files for as long as the oldest savepoint that must be restorable; with "
    "cleanSource=archive, bring them back from sourceArchiveDir before the start. If another query writes "
    "these files, and a restore of it has set them aside (_streambank_aside), this query has read rows that "
    "are no longer in that output, and reads those that come instead, too: restore it to a savepoint from "
    "before them (docs/howto/sinks.md)."
)

_LONGER = (
    "Raise retention.ms of the topic above the age of the oldest savepoint that must be restorable, or let "
    "savepoints expire sooner."
)


def check_application(path: Path) -> Iterator[CheckResult]:
    """`cleanSource` in the text of an application."""
    found = cleaning_of(path)
    if found.not_known:
        yield SkippedCheck(
            f"whether the application sets {OPTION}", found.not_known, "Run doctor where it can."
        )
    for line, value in found.settings:
        yield Finding(
            "clean-source",
            "warning",
            f"{path}, line {line}",
            f"It sets {OPTION} to {value!r}: Spark takes files away from the source once their batch is "
            "committed.",
            _GONE,
            _KEEP,
        )


def check_replay(
    closure: Closure,
    planner: ClosurePlanner,
    oldest: Manifest | None,
    exists: Exists | None = None,
    named: Iterable[str] = (),
) -> Iterator[CheckResult]:
    """Files that were read after the oldest savepoint (or retained batch), and are not there any more.

    Args:
        named: Locations that the job names. Who writes into the checkpoint writes the log of the source, too:
            a file is only checked if its scheme is that of one of these, or if it is a local path.

    Raises:
        StreambankError: A log of the checkpoint cannot be read.
    """
    before, since = _begin(planner, oldest)
    locations = tuple(named)
    for source in closure.sources:
        if source.kind == "file":
            yield from _check_files(source, before.get(source.source, -1), since, planner, exists, locations)


def check_kafka(oldest: Manifest | None, brokers: Brokers, now: datetime) -> Iterator[CheckResult]:
    """Whether Kafka keeps its records for as long as the oldest savepoint needs them."""
    if oldest is None:
        return
    for replay in replay_of(oldest.sources, brokers, now):
        topics, where = ", ".join(replay.topics), f"sources/{replay.source}"
        since = f"the oldest savepoint, {oldest.savepoint},"
        if replay.state == "not-known":
            yield SkippedCheck(
                "whether the source still has what the savepoints would read again",
                replay.why,
                "Let it be asked: docs/howto/kafka.md tells how.",
            )
        elif replay.state == "gone":
            yield Finding(
                "source-records-gone",
                "warning",
                where,
                f"Of {topics} records are gone that come after {since} {replay.why}",
                "A restore of it is refused, or goes on without them.",
                _LONGER,
            )
        elif replay.until is not None and replay.until <= now:
            yield Finding(
                "source-retention-short",
                "warning",
                where,
                f"{topics} keeps its records for a shorter time than {since} is old: {replay.why}.",
                "Its input may go at any moment, and a restore is refused then; of a compacted topic "
                "deletions of keys may go, and the restored state keeps those keys.",
                _LONGER,
            )


def check_repeats(sources: Iterable[SourceState], capture: SourceRecorder) -> Iterator[Finding]:
    """Sources that give no row twice, in Spark's words for them where the driver has recorded those."""
    for source in sources:
        word = capture.word(source)
        if (what := cannot_repeat({**asdict(source), **({} if word is None else {FORMAT: word})})) is None:
            continue
        yield Finding(
            "source-cannot-repeat",
            "warning",
            f"sources/{source.source}",
            f"The source ({what}) gives no row twice, and its offsets mean nothing to another run.",
            "What it gave after a savepoint is lost in a restore, which is refused until a person accepts "
            "that; Spark may refuse to go on even after a stop.",
            "Read from a source that keeps its records, such as files or Kafka.",
        )


def check_sinks(descriptions: Iterable[tuple[str, str]]) -> Iterator[Finding]:
    """Sinks that a restore cannot roll back."""
    for kind, path in descriptions:
        if (harm := harm_of(kind)) in ("none", "overwritten"):
            continue
        effect = {
            "repeated": "its later rows are repeated",
            "skipped": "it skips the batches whose ids it remembers, and their new rows are lost for good",
            "unknown": "its later rows are repeated, or lost for good if it remembers batch ids",
        }[harm]
        yield Finding(
            "unguarded-sink",
            "info",
            sink_name(kind, path),
            f"The sink {sink_name(kind, path)} is not guarded: a restore cannot roll it back.",
            f"In a restore to a batch before the newest one {effect}; it is refused until a person accepts "
            "that.",
            "Declare what it is in `[[jobs.NAME.sinks]]` (docs/howto/sinks.md). With --sink accept "
            "it stays as it is.",
        )


def check_tables(standings: Iterable[TableStanding]) -> Iterator[Finding]:
    """Tables that a restore could not judge or roll back, though they are guarded."""
    for standing in standings:
        if standing.position != "not-known" and (not standing.cannot or standing.safe):
            continue
        cause = standing.not_known if standing.position == "not-known" else standing.cannot
        yield Finding(
            "table-not-guarded",
            "warning",
            standing.path,
            f"A restore could not roll back the {standing.name}: {cause}",
            "Such a restore is refused until a person accepts that rows are repeated or lost.",
            standing.hint
            or "Make the table as it says, or take a savepoint now, from which the table is guarded again.",
        )


def check_table_files(lost: Iterable[tuple[str, Sequence[str]]]) -> Iterator[Finding]:
    """Tables whose log names data files that are gone."""
    for path, files in lost:
        if files:
            yield Finding(
                "table-files-gone",
                "error",
                path,
                f"The Delta table lacks {say_count(len(files), 'data file')} of its newest version, such as "
                f"{files[0]}.",
                "Whoever reads it fails, and no restore brings their rows back.",
                "Bring the files back from a backup, or from older versions of the bucket's objects. If they "
                "are lost, FSCK REPAIR TABLE of Delta takes them out of the log.",
            )


def check_asked(newest: Manifest | None) -> Iterator[Finding]:
    """Whether the newest savepoint could not ask what a restore needs to know."""
    for said in not_asked(newest) if newest is not None else ():
        yield Finding(
            "taken-without-asking",
            "warning",
            f"savepoint {newest.savepoint}" if newest is not None else "",
            said,
            "A restore of such a savepoint must be accepted without knowing what is lost.",
            "Let Kafka be reached where savepoints are taken: docs/howto/kafka.md tells how.",
        )


def _begin(planner: ClosurePlanner, oldest: Manifest | None) -> tuple[Mapping[str, int], str]:
    if oldest is not None:
        said = [source for source in oldest.sources if isinstance(source, Mapping)]
        offsets = {str(one.get("source")): one.get("offset") for one in said}
        since = f"the oldest savepoint, {oldest.savepoint},"
    else:
        batch = min(planner.index.commits)
        path = planner.index.offsets.get(batch)
        offsets = dict(planner.files.offsets(path).sources) if path is not None else {}
        since = f"batch {batch}, the oldest that is retained,"
    found = {name: _log_offset(offset) for name, offset in offsets.items()}
    return {name: entry for name, entry in found.items() if entry is not None}, since


def _log_offset(offset: object) -> int | None:
    # Asked of file sources only, so that a bare number is the log's.
    return file_log_offset(offset, bare=True) if isinstance(offset, str) else None


def _check_files(
    source: SourceState,
    before: int,
    since: str,
    planner: ClosurePlanner,
    exists: Exists | None,
    named: Sequence[str],
) -> Iterator[CheckResult]:
    read = DistinctNames(
        name for path in source.files for name in names_after(planner.files.chunks(path), path, before)
    )
    found = standing_of(source.source, read, named, exists)
    if found.not_known:
        yield SkippedCheck(
            "whether the files of the source are still there",
            found.not_known,
            "Look at sources/ of the checkpoint: the query reads them, or somebody has changed the log.",
        )
    if found.changed:
        yield Finding(
            "source-files-changed",
            "warning",
            f"sources/{source.source}",
            f"Of {found.checked:,} files (of {found.read:,}) that were read after {since} "
            f"{say_were(len(found.changed))} changed since, such as {found.changed[0]}.",
            "A restore reads them again, and the restored query computes other rows than the query did. "
            "So it is refused until somebody accepts that.",
            "Never write into a file that a query may have read: write a new one. Bring the old ones back if "
            "there is a copy.",
        )
    if found.gone:
        yield Finding(
            "source-files-gone",
            "warning",
            f"sources/{source.source}",
            f"Of {found.checked} files (of {found.read}) that were read after {since} "
            f"{say_are(len(found.gone))} not there any more, such as {found.gone[0]}.",
            _GONE,
            _KEEP,
        )
