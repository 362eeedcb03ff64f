"""What speaks against a refresh of a copy: places that are not apart, outputs that have no other place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from streambank.control.control import JobControl
from streambank.core.errors import InputError, RefusedError, StreambankError
from streambank.declaration.declaration import Job
from streambank.declaration.places.copies import are_apart
from streambank.driver.outputs import FILES, Output
from streambank.driver.redirected import check_redirected
from streambank.repository.manifest import Manifest
from streambank.sinks.file.capture import KIND as FILE
from streambank.sinks.unguarded import harm_of

_FUNCTIONS = {"ForeachBatchSink": "foreachBatch", "ForeachWriterTable": "foreach"}
"""What Spark calls the sinks of an application's own function, and what the application calls them."""


def check_apart(job: Job, control: JobControl, copy: Job, source: str) -> None:
    """Make sure that a copy lies in nothing that is live, and that nothing live lies in it.

    The declaration has been held against itself; this asks the records of the live job, too.

    Args:
        job: The live job.
        control: Its records.
        copy: The job on the copy.
        source: The repository that the savepoints come from.

    Raises:
        InputError: It does not lie apart (code `copy-not-apart`).
    """
    assert copy.copy is not None
    live = {job.repository, source, control.store.uri, *job.replicate.to, *job.queries.values()}
    for name in job.queries:
        generation = control.generation(name)
        output = (control.query_facts(name) or {}).get("sink_path")
        live |= {one for one in (generation and generation.location, output) if one}
    for _, own in copy.copy.places():
        for place in sorted(live):
            if not are_apart(own, place):
                raise InputError(
                    f"The copy {copy.copy.name} of job {job.name} would be in {own}, not apart from {place} "
                    "of the live job.",
                    code="copy-not-apart",
                    hint=f"Declare another place in [jobs.{job.name}.copies.{copy.copy.name}].",
                )


def outputs_of(manifest: Manifest, facts: Mapping[str, Any]) -> Iterator[Output]:
    """Where a query writes: by its last driver, by its savepoint, and of a file sink by both.

    Args:
        manifest: The savepoint.
        facts: What its last driver left behind; empty for a query that never ran under Streambank.
    """
    said, named = facts.get("output"), manifest.sinks
    if isinstance(said, Mapping) and said.get("kind"):
        kind = str(said["kind"])
        path = (facts.get("sink_path") if kind == FILES else None) or said.get("path")
        yield Output(kind, path, said.get("name"))
        # Spark writes a table of a file format by its file sink, too: then only the table counts.
        named = tuple(one for one in named if one.get("kind") == FILE) if kind == FILES else ()
    for record in named:
        kind, path = str(record.get("kind")), str(record.get("path"))
        if kind == FILE:
            yield Output(FILES, path)
        elif harm_of(kind) != "none":
            yield Output(_FUNCTIONS.get(kind, kind), name=path)


def against(copy: Job, query: str, outputs: Iterator[Output]) -> Iterator[StreambankError]:
    """Why the application could not run on a copy: an output for which no other place is declared.

    Args:
        copy: The job on the copy.
        query: The query.
        outputs: Where it writes.
    """
    assert copy.copy is not None and copy.original is not None
    if copy.copy.state_only:
        return
    seen = set()
    for output in outputs:
        try:
            check_redirected(copy.copy.outputs, output, query)
        except RefusedError as error:
            if str(output) not in seen:
                seen.add(str(output))
                yield _refusal(copy, error, output)


def _refusal(copy: Job, error: RefusedError, output: Output) -> RefusedError:
    assert copy.copy is not None and copy.original is not None
    table = f"[jobs.{copy.original.name}.copies.{copy.copy.name}.outputs]"
    place = output.path or output.name
    only = "A copy without any outputs is of the state alone: it can be looked at, and nothing runs on it."
    if output.kind in ("foreach", "foreachBatch") or place is None:
        hint = f"What the application's own function writes cannot be redirected. {only}"
    else:
        hint = f'Declare another place in {table}: "{place}" = DIRECTORY. {only}'
    return RefusedError(error.message, code=error.code, hint=hint)
