"""Who reads an output that a restore takes back: such a query reads what comes instead, too.

A reader keeps in its checkpoint which files, or which version of a table, it has read. It does not notice
that some were set aside: it takes the rows of the batches that come instead for new ones, and has them twice.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from streambank.core.errors import StreambankError
from streambank.core.names import QueryRef
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.inputs.folders import folders_of_live
from streambank.repository.manifest import Manifest
from streambank.storage import followed, is_inside, open_store
from streambank.storage.store import REMOTE_AT_ONCE
from streambank.storage.threads import each

_LOCATION = re.compile(r"\[(?P<location>.+)\]\Z", re.DOTALL)
_PATIENCE_S = 20.0
"""So long are records asked while a job stands, some of which may be at a place that does not answer."""
_PATTERN = re.compile(r"/[^/]*[*?\[{]")
READERS = (
    "A query that reads this output has read what is taken back, and reads the rows that come instead as new "
    "ones: restore it to a savepoint from before, first or together (docs/howto/sinks.md)."
)


@dataclass(frozen=True, slots=True)
class Reader:
    """A query that reads an output.

    Attributes:
        output: What it reads, as the sink is called.
        restored: It goes back in the same operation, to before it has read what is taken back.
    """

    job: str
    query: str
    output: str
    restored: bool = False


_NOT_KNOWN = Reader("", "", "")
"""A query whose records could not be asked, or not in time."""


def reads(description: str, output: str) -> bool | None:
    """Whether a source reads an output, by Spark's words for it, such as `FileStreamSource[file:/data/out]`.

    What lies below the directory of a file source it reads with `recursiveFileLookup`, or in directories of
    partitions: None, since neither is said.

    Args:
        output: The location of a file sink or a Delta table, or the name of a table.
    """
    found = _LOCATION.search(description.strip())
    location = description if found is None else found["location"]
    if "/" not in output:
        return output in re.split(r"[\s,()\[\]=]+", description)
    if (pattern := _PATTERN.search(location)) is not None:
        location = location[: pattern.start()] or "/"
    try:
        if is_inside(location, output):
            return True
        above = is_inside(followed(output), location)
        return None if above and pattern is None else above
    except StreambankError:
        return False  # what it reads has no location, such as topics


def readers_of(
    outputs: Sequence[str], jobs_file: str, writer: str, restored: Collection[str] = ()
) -> list[Reader]:
    """The queries of declared jobs that read outputs, by what their last drivers said of their sources."""
    if not outputs or not jobs_file:
        return []
    try:
        jobs = list(load_jobs(jobs_file).jobs.values())
    except StreambankError:
        return []  # whoever needs the file says what is wrong with it

    until = time.monotonic() + _PATIENCE_S

    def of_job(job: Job) -> list[Reader]:
        late = time.monotonic() > until
        return [_NOT_KNOWN] if late else list(_of_job(job, outputs, writer, restored))

    return [one for found in each(of_job, jobs, REMOTE_AT_ONCE) for one in found]


def _of_job(job: Job, outputs: Sequence[str], writer: str, restored: Collection[str]) -> Iterator[Reader]:
    for query in job.queries:
        ref = job.savepoint_name(query)
        if ref == writer:
            continue
        try:
            records = job.records()
            sources = (records.query_facts(query) or {}).get("sources")
            said = {one: _said(sources, one) for one in outputs}
            folders: Sequence[str] = ()
            if None in said.values():
                current = records.generation(query)
                place = job.queries[query] if current is None else current.location
                folders = folders_of_live(open_store(place)).inputs
        except StreambankError:
            yield _NOT_KNOWN
            continue
        for output, is_read in said.items():
            if is_read or (is_read is None and any(is_inside(one, output) for one in folders)):
                yield Reader(job.name, query, output, not {ref, job.name}.isdisjoint(restored))


def _said(sources: object, output: str) -> bool | None:
    """What sources say of an output together: one that reads it counts before one of which it is not said."""
    said = [reads(str(one), output) for one in sources] if isinstance(sources, list) else []
    return any(said) or (None if None in said else False)


def restored_too(chosen: Iterable[Manifest], own: Manifest) -> frozenset[str]:
    """Queries that go back in the same operation, by `job` or `job/query`, and have read nothing later.

    Args:
        own: That of the query whose output goes back: a savepoint that was taken after it may know of more.
    """
    return frozenset(one.job for one in chosen if one.taken_at <= own.taken_at)


def said_of_readers(outputs: Sequence[str], readers: Sequence[Reader], writer: str) -> Iterator[str]:
    """What a person must do about readers of outputs that are taken back."""
    if outputs and (not readers or _NOT_KNOWN in readers):
        yield READERS
    for one in readers:
        if one.restored or one == _NOT_KNOWN:
            continue
        name = one.job if one.query == "main" else f"{one.job}/{one.query}"
        other = (
            f": `streambank job restore` does both with --with {one.job}, and in Airflow {one.job}.restore "
            "comes first"
        )
        yield (
            f"Query {name} reads {one.output}: it has read what is taken back, and reads the rows that come "
            "instead as new ones. Restore it to a savepoint from before this one, first or together"
            f"{other if one.job != QueryRef.parse(writer).job else ''} (docs/howto/sinks.md)."
        )
