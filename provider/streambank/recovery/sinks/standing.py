"""Where the sinks stand that a request is about, and whether they still stand there before the last step."""

from __future__ import annotations

from dataclasses import replace

from streambank.control.control import JobControl
from streambank.core.errors import FormatError
from streambank.core.json_text import is_whole_number
from streambank.core.names import MAIN, QueryRef
from streambank.recovery.request import RestoreRequest
from streambank.recovery.sinks.reached import Reached, how_far, records_to_ask
from streambank.recovery.sinks.sinks import Sinks, look_at_sinks, query_sinks_now
from streambank.recovery.sinks.tables import check_table_still_even
from streambank.recovery.sinks.unguarded import unguarded_refusals, unnamed_sink
from streambank.repository.manifest import Manifest
from streambank.sinks.file.fits import Windows, windows_of
from streambank.sinks.file.nearby import look_nearby
from streambank.sites.forks import left_after, why_left
from streambank.sites.records import Sites


def sinks_at(request: RestoreRequest, manifest: Manifest) -> Sinks:
    """The sinks as they stand; those of a query that stands where the savepoint is need not be asked.

    Raises:
        StreambankError: See `look_at_sinks`; or the job's records cannot be read.
    """
    reached, unnamed, now = None, None, None
    same_line: bool | None = True
    near: tuple[str, ...] = ()
    if not request.unmoved:
        guarded = [record.get("guarded") is True for record in manifest.sinks]
        records = _records_to_ask(request, manifest)
        now = query_sinks_now(records, manifest, request.declared_sinks)
        same_line = _is_same_line(records, manifest)
        unnamed = unnamed_sink(records, manifest)
        if unnamed is not None or now.plain or not guarded or not all(guarded):
            reached = _how_far(request, manifest)
        if not manifest.sinks and not request.file_sinks:
            near = look_nearby(manifest.checkpoint, _ran(manifest)).candidates
    return look_at_sinks(
        request.repository,
        manifest,
        request.moved_sinks,
        request.new_sinks,
        kafka=None if request.unmoved else request.kafka,
        mode=request.mode,
        reached=reached,
        unnamed=unnamed,
        now=now,
        same_line=same_line,
        file_sinks=request.file_sinks,
        near=near,
    )


def _ran(manifest: Manifest) -> Windows:
    """When the batches ran that a savepoint holds."""
    return windows_of((one.path, one.mtime_ns) for one in manifest.files)


def _is_same_line(records: JobControl, manifest: Manifest) -> bool | None:
    """Whether the query did not go back below a savepoint's batch since that was taken.

    A restore of the savepoint itself, or of a later one, leads to no other batch of its number. Before the
    first generation a query ran without records, and may have been restored into a directory. What a site
    has saved after the other one went on is of another line.
    """
    try:
        left = left_after(Sites(records).all(), QueryRef.parse(manifest.job).query or MAIN)
        if why_left(left, manifest.checkpoint, manifest.batch):
            return False
        generations = records.generations(QueryRef.parse(manifest.job).query).all()
    except FormatError:
        return False  # damaged: it may have
    since = [one.from_savepoint for one in generations if one.made_at > manifest.taken_at]
    if any(_below(one, manifest.batch) for one in since if one is not None):
        return False
    return True if len(since) < len(generations) else None


def _below(savepoint: str, batch: int) -> bool:
    """Whether a savepoint is of an earlier batch, by its id, which begins with that; if in doubt, yes."""
    digits = savepoint.partition("-")[0].removeprefix("b")
    return not is_whole_number(digits) or int(digits) < batch


def _how_far(request: RestoreRequest, manifest: Manifest) -> Reached:
    return how_far(request.repository, manifest, _records_to_ask(request, manifest), request.checkpoint)


def _records_to_ask(request: RestoreRequest, manifest: Manifest) -> JobControl:
    return records_to_ask(request.records, request.repository, manifest)


def check_still_at(request: RestoreRequest, manifest: Manifest, sinks: Sinks) -> None:
    """Look once more how far the query got, right before the restored directory becomes a checkpoint.

    Files may have been written for hours since the first look, beside a query that runs on without a lease.

    Raises:
        RefusedError: A sink that is not guarded was sent more meanwhile (code `sink-not-guarded`), or a table
            has more (`sink-would-lose-rows`).
    """
    choices = request.sink_choices
    for table in sinks.tables:
        if choices[table.standing.path] == "refuse":
            check_table_still_even(table, manifest.batch)
    if sinks.reached is None:
        return
    reached = _how_far(request, manifest)
    for sink in sinks.unguarded:
        for refusal in unguarded_refusals([replace(sink, reached=reached)], choices[sink.path]):
            raise refusal
