"""What speaks against a refresh of a copy: places that are not apart, outputs that have no other place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from streambank.control.control import JobControl
from streambank.copies.live_inputs import is_read_from, live_inputs
from streambank.core.errors import InputError, RefusedError, StreambankError
from streambank.declaration.declaration import Job
from streambank.declaration.places.copies import are_apart
from streambank.driver.outputs import FILES, Output, recorded_output
from streambank.driver.redirected import check_redirected
from streambank.inputs.folders import folders_of_live
from streambank.recovery.lay_out import live_places
from streambank.repository.manifest import Manifest
from streambank.sinks.file.capture import KIND as FILE
from streambank.sinks.unguarded import harm_of
from streambank.storage import open_store, service_name

_FUNCTIONS = {"ForeachBatchSink": "foreachBatch", "ForeachWriterTable": "foreach"}
"""What Spark calls the sinks of an application's own function, and what the application calls them."""


def check_apart(job: Job, control: JobControl, copy: Job, source: str) -> None:
    """Make sure that a copy lies in nothing that is live, and that nothing live lies in it.

    The declaration has been held against itself; this asks the records and checkpoints of the live job, too.

    Raises:
        InputError: It does not lie apart (codes `copy-not-apart`, `inside-input`).
    """
    assert copy.copy is not None
    live = list(_live_checkpoints(job, control))
    read = [folders_of_live(open_store(place)).without(live) for place in live]
    for _, own in copy.copy.places():
        what = _meets(own, job, control, source)
        if what is not None:
            raise InputError(
                f"The copy {copy.copy.name} of job {job.name} would be in {own}, not apart from {what}.",
                code="copy-not-apart",
                hint=f"Declare another place in [jobs.{job.name}.copies.{copy.copy.name}].",
            )
        for folders in read:
            folders.check(own, "copy")


def check_removable(job: Job, control: JobControl, location: str, source: str) -> None:
    """Make sure that a directory of a copy neither holds nor is in anything live, before it is removed.

    Raises:
        RefusedError: It does (code `not-apart`).
    """
    what = _meets(location, job, control, source)
    if what is not None:
        raise RefusedError(
            f"{location} of a copy of {job.name} is not apart from {what}.",
            code="not-apart",
            hint="Move the live one elsewhere, or remove the rest of the directory yourself.",
        )


def _meets(own: str, job: Job, control: JobControl, source: str) -> str | None:
    """What of the live job a place of a copy is not apart from; None where it is apart from everything."""
    for place in live_places(job, control, source):
        if not are_apart(own, place):
            return f"{place} of the live job"
    for place in live_inputs(job, control):
        if is_read_from(own, place):
            return f"{place}, which the live job reads"
    return None


def _live_checkpoints(job: Job, control: JobControl) -> Iterator[str]:
    for name, declared in job.queries.items():
        generation = control.generation(name)
        yield declared if generation is None else generation.location


def outputs_of(manifest: Manifest, facts: Mapping[str, Any]) -> Iterator[Output]:
    """Where a query writes: by its last driver, by its savepoint, and of a file sink by both.

    Args:
        facts: What its last driver left behind; empty for a query that never ran under Streambank.
    """
    said, named = recorded_output(facts), manifest.sinks
    if said is not None:
        yield said
        # Spark writes a table of a file format by its file sink, too: then only the table counts.
        named = tuple(one for one in named if one.get("kind") == FILE) if said.kind == FILES else ()
    for record in named:
        kind, path = str(record.get("kind")), str(record.get("path"))
        if kind == FILE:
            yield Output(FILES, path)
        elif harm_of(kind) != "none":
            yield Output(_FUNCTIONS.get(kind, kind), name=path)


def saved_logs(manifest: Manifest) -> list[str]:
    """The directories of file sinks whose log a savepoint has, so that another directory can be begun."""
    files = (one for one in manifest.sinks if one.get("kind") == FILE and one.get("guarded") is True)
    return [str(one["path"]) for one in files]


def against(
    copy: Job, query: str, outputs: Iterator[Output], manifest: Manifest
) -> Iterator[StreambankError]:
    """Why the application could not run on a copy: an output without another place, or a saved log."""
    assert copy.copy is not None and copy.original is not None
    if copy.copy.state_only:
        return
    seen = set()
    logs = {service_name(one) for one in saved_logs(manifest)}
    for output in outputs:
        try:
            check_redirected(copy.copy.outputs, output, query)
        except RefusedError as error:
            if str(output) not in seen:
                seen.add(str(output))
                yield _refusal(copy, error, output)
        else:
            if output.kind != FILES or output.path is None or str(output) in seen:
                continue
            if service_name(output.path) not in logs:
                seen.add(str(output))
                yield _without_log(copy.original.name, query, output, manifest)


def _without_log(job: str, query: str, output: Output, manifest: Manifest) -> RefusedError:
    return RefusedError(
        f"The savepoint {manifest.savepoint} has no log of {output}, to which query {query} writes: "
        "Spark could not go on in another directory.",
        code="sink-not-saved",
        hint=f"Take a savepoint that has the log (`streambank job savepoint {job}`), or name another one.",
    )


def _refusal(copy: Job, error: RefusedError, output: Output) -> RefusedError:
    assert copy.copy is not None and copy.original is not None
    table = f"[jobs.{copy.original.name}.copies.{copy.copy.name}.outputs]"
    place = output.path or output.name
    only = "A copy without any outputs is of the state alone: nothing runs on it."
    if output.kind in ("foreach", "foreachBatch") or place is None:
        hint = f"What the application's own function writes cannot be redirected. {only}"
    else:
        hint = f'Declare another place in {table}: "{place}" = DIRECTORY. {only}'
    return RefusedError(error.message, code=error.code, hint=hint)
