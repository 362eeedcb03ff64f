"""Verbs on the savepoints of a repository: `list`, `show`, `pin`, `unpin` (`verify`: verify.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from streambank.cli.options import (
    JobOption,
    Kafka,
    KafkaJobsFile,
    RepositoryOption,
    SavepointName,
    brokers_of,
    declared_job,
    open_repository,
)
from streambank.cli.output import console
from streambank.cli.verbs import verify
from streambank.core.errors import InputError, IntegrityError, StreambankError
from streambank.core.options import Option

if TYPE_CHECKING:
    from streambank.kafka.retention import KafkaReplay
    from streambank.kafka.settings import KafkaConnection
    from streambank.repository.catalog import SavepointSummary
    from streambank.repository.manifest import Manifest
    from streambank.repository.repository import Repository

LIST_EXAMPLES = """Examples:

  streambank list -r /data/savepoints --job orders

  streambank list -r /data/savepoints --expired
"""


def list_savepoints(
    repository: RepositoryOption,
    job: JobOption = None,
    expired: Annotated[
        bool,
        Option("Show the savepoints that undelete can bring back, and until when."),
    ] = False,
    grace_s: Annotated[
        float | None, Option("With --expired: the grace of your sweeps (24h).", metavar="TIME")
    ] = None,
    replay: Annotated[
        bool,
        Option("Ask Kafka how long the input after each savepoint is still there."),
    ] = False,
    kafka: Kafka = None,
    jobs: KafkaJobsFile = None,
) -> None:
    """List the savepoints of a repository, oldest first within each job."""
    if grace_s is not None and not expired:
        raise InputError("--grace needs --expired.", code="usage", hint="See `streambank list --help`.")
    if expired:
        _list_expired(open_repository(repository), job, grace_s)
        return
    opened = open_repository(repository)
    summaries = list(opened.manifests(job))
    if not replay:
        console.answer([summary.to_dict() for summary in summaries], lambda: _show_list(summaries))
        return

    told = replays(opened, summaries, kafka, jobs)
    found = [
        {**summary.to_dict(), "replay": said.to_dict() if (said := told.get(index)) is not None else None}
        for index, summary in enumerate(summaries)
    ]
    console.answer(found, lambda: _show_list(summaries, told))


def _list_expired(opened: Repository, job: str | None, grace_s: float | None) -> None:
    from streambank.retention.expired import expired_summaries
    from streambank.retention.sweep import DEFAULT_GRACE_S

    grace_s = DEFAULT_GRACE_S if grace_s is None else grace_s
    found = [summary.to_dict() for summary in expired_summaries(opened.store, grace_s, job)]
    console.answer(found, lambda: _show_expired(found))


def _show_expired(found: list[dict[str, Any]]) -> None:
    if not found:
        console.line("No expired savepoints.")
        return
    rows = [
        (each["job"], each["savepoint"], each["batch"], _time(each["taken_at"]), console.size(each["bytes"]),
         _time(each["expired_at"]), _time(each["until"]) if each["until"] else "it is pinned",
         f"damaged: {each['error']}" if each["error"] else each["note"])
        for each in found
    ]  # fmt: skip
    columns = ("job", "savepoint", "batch", "taken at", "bytes", "expired at", "at least until", "note")
    drop = ("note", "bytes", "taken at", "expired at")
    console.table(columns, rows, right=("batch", "bytes"), drop=drop)


def _show_list(summaries: list[SavepointSummary], told: Mapping[int, KafkaReplay] | None = None) -> None:
    if not summaries:
        console.line("No savepoints.")
        return

    named = ("name",) if any(summary.names for summary in summaries) else ()
    rows = [
        (
            summary.job,
            summary.savepoint,
            *((", ".join(summary.names),) if named else ()),
            summary.batch,
            _time(summary.to_dict()["taken_at"]),
            console.size(summary.bytes),
            console.size(summary.new_bytes),
            _verified(summary.to_dict()),
            "yes" if summary.pinned else "",
            *(() if told is None else (can_be_replayed(told.get(index)),)),
            _remark(summary),
        )
        for index, summary in enumerate(summaries)
    ]
    more = () if told is None else ("replay",)
    columns = (
        "job", "savepoint", *named, "batch", "taken at", "bytes", "new", "verified", "pinned", *more, "note",
    )  # fmt: skip
    drop = ("new", "note", "bytes", *more, "verified", "taken at", "pinned", *named, "batch")
    console.table(columns, rows, right=("batch", "bytes", "new"), drop=drop)


def _remark(summary: SavepointSummary) -> str:
    if summary.error is not None:
        return f"damaged: {summary.error.message}"
    return f"its rehearsal has not passed. {summary.note}".rstrip() if summary.rejected else summary.note


def _time(text: str | None) -> str:
    return "" if text is None else text[:19].replace("T", " ") + "Z"


def _verified(summary: dict[str, Any]) -> str:
    if summary["verified_at"] is None:
        return "never"
    state = summary["verified_level"] if summary["verified_ok"] else "DAMAGED"
    since = summary["hashed_since"]
    whole = f", all since {_time(since)}" if since and summary["verified_level"] != "full" else ""
    return f"{state} {_time(summary['verified_at'])}{whole}"


def show(
    savepoint: SavepointName,
    repository: RepositoryOption,
    job: JobOption = None,
    replay: Annotated[
        bool,
        Option("Ask Kafka how long the input after it is still there (3 s at most)."),
    ] = True,
    kafka: Kafka = None,
    jobs: KafkaJobsFile = None,
) -> None:
    """Show one savepoint: what it holds, who took it and why. With --json the whole manifest."""
    opened = open_repository(repository)
    manifest = opened.load(*opened.find(savepoint, job))
    names = list(opened.names(manifest))
    of_sources = [] if not replay else replays_of(opened, manifest, kafka, jobs)
    drilled = _last_drill(opened, manifest, jobs)
    found = manifest.to_dict() | {
        "names": names,
        "drilled": drilled,
        "replay": [one.to_dict() for one in of_sources],
    }

    def shown() -> None:
        _show(found, opened.pinned(manifest.job, manifest.savepoint))
        for one in of_sources:
            topics = ", ".join(one.topics)
            console.line(f"source {one.source} kafka {topics}: replay {can_be_replayed(one)} ({one.why})")

    console.answer(found, shown)


def _last_drill(repository: Repository, manifest: Manifest, jobs: str | None) -> dict[str, Any] | None:
    """The newest drill of a savepoint, by the records of its job; None where none is known."""
    from streambank.control.control import JobControl
    from streambank.control.drills import last_drills, newest_drills
    from streambank.core.names import MAIN, QueryRef

    asked = QueryRef.parse(manifest.job)
    declared = declared_job(manifest.job, jobs)
    try:
        records = declared.records() if declared else JobControl.of_repository(repository.store, asked.job)
        return last_drills(newest_drills(records)).get((asked.query or MAIN, manifest.savepoint))
    except StreambankError as error:
        console.note(f"When it was drilled is not known: {error.message}")
        return None


def _drilled(drill: Mapping[str, Any] | None) -> str | None:
    if drill is None:
        return None
    how = "passed" if drill["passed"] else "FAILED"
    if drill["passed"] and drill["not_run"]:
        how = "savepoint proved, application not run"
    return f"{how} {_time(drill['at'])}, from {drill['repository']}"


def _show(found: dict[str, Any], pinned: bool) -> None:
    from streambank.checkpoint.sources import cannot_repeat
    from streambank.core.units import from_epoch_ms, to_json_time
    from streambank.sinks.unguarded import guard_of

    stats, by = found["stats"], found["taken_by"]
    watermark = None if found["watermark_ms"] is None else from_epoch_ms(found["watermark_ms"])
    console.fields(
        [
            ("savepoint", found["savepoint"]),
            ("name", ", ".join(found["names"])),
            ("job", found["job"]),
            ("batch", found["batch"]),
            ("query id", found["query_id"]),
            ("taken at", _time(found["taken_at"])),
            ("taken by", ", ".join(f"{name} {value}" for name, value in by.items())),
            ("note", found["note"]),
            ("pinned", "yes" if pinned else ""),
            ("drilled", _drilled(found["drilled"])),
            ("checkpoint", found["checkpoint"]),
            ("closure", found["closure"]),
            ("watermark", to_json_time(watermark) if watermark else None),
            ("spark version", found["spark_version"]),
            ("derived from", found["derived_from"]),
            ("files", f"{console.count(found['file_count'], 'file')}, {console.size(found['bytes'])}"),
            ("new", f"{console.size(stats.get('new_bytes'))}, {stats.get('new_files')} files read"),
        ]
    )
    rows = [
        (operator.get("operator"), operator.get("name"), store.get("store"), store.get("partitions"),
         store.get("rows"), console.size(store.get("bytes")))
        for operator in found["operators"]
        for store in operator.get("stores", ())
    ]  # fmt: skip
    if rows:
        console.line()
        columns = ("operator", "name", "store", "partitions", "rows", "bytes")
        console.table(columns, rows, right=("operator", "partitions", "rows", "bytes"))
    for sink in found["sinks"]:
        console.line(f"sink {sink.get('kind')} {sink.get('path')} ({guard_of(sink)})")
    for source in found["sources"]:
        if (what := cannot_repeat(source)) is not None:
            console.line(f"source {source.get('source')} {what} (cannot be repeated)")


def pin(
    savepoint: SavepointName,
    repository: RepositoryOption,
    job: JobOption = None,
    note: Annotated[str, Option("Why.", metavar="TEXT")] = "",
) -> None:
    """Exempt a savepoint from retention until it is unpinned."""
    _set_pin(repository, savepoint, job, note, pinned=True)


def unpin(
    savepoint: SavepointName,
    repository: RepositoryOption,
    job: JobOption = None,
    note: Annotated[str, Option("Why.", metavar="TEXT")] = "",
) -> None:
    """Let retention decide about a savepoint again."""
    _set_pin(repository, savepoint, job, note, pinned=False)


def _set_pin(repository: str, savepoint: str, job: str | None, note: str, *, pinned: bool) -> None:
    from streambank.control.processes import who

    opened = open_repository(repository)
    which = opened.find(savepoint, job)
    try:
        was_pinned = opened.pinned(*which)
    except IntegrityError:  # a damaged mark does not say; one that a newer version wrote is refused
        was_pinned = True
    if pinned:
        opened.pin(*which, by=who("cli"), note=note)
    elif was_pinned:
        opened.unpin(*which, by=who("cli"), note=note)
    document = {"savepoint": which[1], "job": which[0], "pinned": pinned}
    now = "is pinned"
    if not pinned:
        now = "is no longer pinned" if was_pinned else "was not pinned; nothing changed"
    console.answer(document, lambda: console.line(f"{which[1]} {now}."))


TIMEOUT_S = 3.0
"""How long each cluster is waited for, all questions about one savepoint together."""


def replays_of(
    repository: Repository, manifest: Manifest, kafka: str | None, jobs: str | None
) -> list[KafkaReplay]:
    """How long each Kafka source of a savepoint can be read again; nothing for others."""
    from streambank.core.units import utc_now
    from streambank.kafka.recording import sources_before
    from streambank.kafka.retention import replay_of

    brokers = brokers_of(kafka, declared_kafka(manifest.job, jobs), TIMEOUT_S)
    return list(replay_of(manifest.sources, brokers, utc_now(), sources_before(repository, manifest)))


def replays(
    repository: Repository, summaries: Sequence[SavepointSummary], kafka: str | None, jobs: str | None
) -> dict[int, KafkaReplay]:
    """For each savepoint of a list, by its place there, the Kafka source that ends first."""
    from streambank.core.errors import StreambankError
    from streambank.core.units import utc_now
    from streambank.kafka.recording import sources_before
    from streambank.kafka.retention import replay_of, shortest
    from streambank.kafka.settings import Brokers

    found: dict[int, KafkaReplay] = {}
    asked: dict[str, Brokers] = {}
    for place, summary in enumerate(summaries):
        if summary.error is not None:
            continue
        if summary.job not in asked:
            asked[summary.job] = brokers_of(kafka, declared_kafka(summary.job, jobs), TIMEOUT_S)
        try:
            manifest = repository.load(summary.job, summary.savepoint)
        except StreambankError:
            continue  # it was expired meanwhile, or is damaged, which `verify` tells
        asked[summary.job].begin()  # who did not answer at all is not waited for again
        before = sources_before(repository, manifest)
        told = shortest(list(replay_of(manifest.sources, asked[summary.job], utc_now(), before)))
        if told is not None:
            found[place] = told
    return found


def can_be_replayed(one: KafkaReplay | None) -> str:
    """In a few words, for a table; nothing where no source is Kafka."""
    from streambank.core.units import utc_now

    return "" if one is None else one.sentence(utc_now())


def declared_kafka(job: str, jobs: str | None) -> KafkaConnection | None:
    """How a jobs file says that a job's Kafka is reached; None where there is no file, or no such job."""
    found = declared_job(job, jobs)
    return None if found is None else found.kafka


VERBS: dict[str, tuple[Any, str]] = {
    "list": (list_savepoints, LIST_EXAMPLES),
    "show": (show, "Example: streambank show b000041 -r /data/savepoints"),
    **verify.VERBS,
    "pin": (pin, 'Example: streambank pin b000041 -r /data/savepoints --note "before the upgrade"'),
    "unpin": (unpin, "Example: streambank unpin b000041 -r /data/savepoints"),
}
