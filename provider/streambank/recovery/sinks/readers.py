"""Who reads an output that a restore takes back: such a query reads what comes instead, too.

A reader keeps in its checkpoint which files, or which version of a table, it has read. It does not notice
that some were set aside: it takes the rows of the batches that come instead for new ones, and has them twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from streambank.core.errors import StreambankError
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.storage import followed, is_inside

_LOCATION = re.compile(r"\[(?P<location>.+)\]\Z", re.DOTALL)
_PATTERN = re.compile(r"/[^/]*[*?\[{]")
READERS = (
    "A query that reads this output has read what is taken back, and reads the rows that come instead as new "
    "ones: restore it to a savepoint from before, first or together (docs/howto/sinks.md)."
)


@dataclass(frozen=True, slots=True)
class Reader:
    """A query that reads an output.

    Attributes:
        job: Its job.
        query: Its name, `main` for the only one.
        output: What it reads, as the sink is called.
    """

    job: str
    query: str
    output: str


def reads(description: str, output: str) -> bool:
    """Whether a source reads an output, by Spark's words for it, such as `FileStreamSource[file:/data/out]`.

    Args:
        description: Spark's words.
        output: The location of a file sink or a Delta table, or the name of a table.
    """
    found = _LOCATION.search(description.strip())
    location = description if found is None else found["location"]
    if "/" not in output:
        return output in re.split(r"[\s,()\[\]=]+", description)
    if (pattern := _PATTERN.search(location)) is not None:
        location = location[: pattern.start()] or "/"
    try:
        return is_inside(location, output) or (pattern is not None and is_inside(followed(output), location))
    except StreambankError:
        return False  # what it reads has no location, such as topics


def readers_of(outputs: Sequence[str], jobs_file: str, but: str) -> list[Reader]:
    """The queries of declared jobs that read outputs, by what their last drivers have said of their sources.

    Args:
        outputs: The outputs.
        jobs_file: Where jobs are declared; empty for nowhere.
        but: `job/query` or `job` that writes there.
    """
    if not outputs or not jobs_file:
        return []
    try:
        jobs = list(load_jobs(jobs_file).jobs.values())
    except StreambankError:
        return []  # whoever needs the file says what is wrong with it
    return [one for job in jobs for one in _of_job(job, outputs, but)]


def _of_job(job: Job, outputs: Sequence[str], but: str) -> Iterator[Reader]:
    for query in job.queries:
        if job.savepoint_name(query) == but:
            continue
        try:
            facts = job.records().query_facts(query) or {}
        except StreambankError:
            continue  # the general sentence counts
        sources = facts.get("sources")
        for output in outputs:
            if isinstance(sources, list) and any(reads(str(one), output) for one in sources):
                yield Reader(job.name, query, output)


def said_of_readers(outputs: Sequence[str], readers: Sequence[Reader]) -> Iterator[str]:
    """What a person must do about readers of outputs that are taken back.

    Args:
        outputs: Those that have something to take back.
        readers: Who is known to read them.
    """
    if outputs and not readers:
        yield READERS
    for one in readers:
        name = one.job if one.query == "main" else f"{one.job}/{one.query}"
        yield (
            f"Query {name} reads {one.output}: it has read what is taken back, and reads the rows that come "
            f"instead as new ones. Restore it to a savepoint from before this one, first or together: "
            f"`streambank job restore` does both with --with {one.job}, and in Airflow {one.job}.restore "
            "comes first (docs/howto/sinks.md)."
        )
