"""The marker beside a checkpoint: that a query has worked there, and where its records and savepoints were.

What a job is must not be known only where it can be lost. Where the repository is gone (a mount that is not
there, an empty directory in its place) the records below it are gone, too, and a job that ran for a year
reads like one that never ran. The marker lies with the checkpoint instead: as the file
`<declared checkpoint>.streambank.json`, beside the directory and never in it. It is written once Spark has
started a query, by a restore that switches the generation, by a take (of a query that was never started,
too), and where a person has accepted that the records are lost. It is replaced as a whole, and holds no
secret (docs/formats/job.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from streambank.control.control import JobControl
from streambank.control.generations import Generation
from streambank.control.records import JsonDict, decode_json, encode_json
from streambank.core.errors import ConflictError, FormatError, NotFoundError, StreambankError
from streambank.core.names import QueryRef
from streambank.core.shape import OMIT_EMPTY, Between, decode, encode
from streambank.core.units import to_json_time, utc_now
from streambank.repository.header import read_header
from streambank.storage import open_store, service_name
from streambank.storage.names import FAR
from streambank.storage.store import Store, read_record

SUFFIX = ".streambank.json"
"""The marker of the checkpoint `x` is `x.streambank.json`."""
FORMAT = 1
_KIND = re.compile(r"[\[({\s@]")
"""Where the kind of a sink ends in Spark's description of it: what follows may hold secrets."""


@dataclass(frozen=True, slots=True)
class Marker:
    """What a marker says.

    Attributes:
        repository: Where its savepoints were; None where that was not known.
        repository_id: The id of that repository; None where there was none yet.
        sink: The kind of its sink, in Spark's word.
        sink_path: The output directory of a file sink, as a URI.
        at: When it was written, ISO-8601.
        accepted: The last time that a person accepted that records are lost: `at`, `by`, `why`, and in `was`
            what the marker said then.
    """

    job: str
    query: str
    generation: Annotated[int, Between(0, FAR)]  # the next restore goes on from it
    location: str
    control: str
    repository: str | None = None
    repository_id: str | None = None
    query_id: str | None = None
    sink: str | None = None
    sink_path: str | None = None
    at: str = ""
    by: Mapping[str, str] = field(default_factory=dict)
    accepted: Annotated[Mapping[str, Any] | None, OMIT_EMPTY] = None

    @property
    def called(self) -> str:
        """`job`, or `job/query`."""
        return str(QueryRef.of(self.job, self.query))

    @property
    def has_worked(self) -> bool:
        """Whether the query has worked by the job's records: else only savepoints were taken of it.

        Then no records can be lost, nor is the checkpoint that of the job: it was never started.
        """
        return self.query_id is not None or self.generation > 1 or self.accepted is not None

    def to_dict(self) -> JsonDict:
        return {"format": FORMAT, **encode(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], what: str) -> Marker:
        """From the file; fields of a later version are ignored.

        Raises:
            FormatError: The format is unknown (code `unknown-format`), or something is missing
                (`damaged-record`).
        """
        if data.get("format") != FORMAT:
            raise FormatError(
                f"The {what} has format {data.get('format')!r}; this version knows {FORMAT}.",
                hint="Use the version of Streambank that wrote it.",
            )
        return decode(cls, data, what)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def marker_location(checkpoint: str) -> str | None:
    """Where the marker of a declared checkpoint lies; None where the checkpoint is the root of its store.

    Args:
        checkpoint: The declared checkpoint of a query, a URI: the directory of its generation 1.
    """
    parent, _, name = checkpoint.rstrip("/").rpartition("/")
    return None if not name or parent.endswith(("/", ":")) else f"{parent}/{name}{SUFFIX}"


def _place(checkpoint: str) -> tuple[Store, str] | None:
    location = marker_location(checkpoint)
    if location is None:
        return None
    parent, _, name = location.rpartition("/")
    return open_store(parent), name


def read_marker(checkpoint: str) -> Marker | None:
    """The marker of a declared checkpoint; None where there is none.

    Raises:
        FormatError: It cannot be understood.
    """
    place = _place(checkpoint)
    if place is None:
        return None
    store, name = place
    try:
        data = read_record(store, name)
    except NotFoundError:
        return None
    what = f"marker {store.uri}/{name}"
    return Marker.from_dict(decode_json(data, what), what)


def write_marker(checkpoint: str, marker: Marker, *, exclusive: bool = False) -> None:
    """Replace the marker of a declared checkpoint; nothing where it is the root of its store."""
    place = _place(checkpoint)
    if place is not None:
        store, name = place
        data = encode_json(replace(marker, at=to_json_time(utc_now())).to_dict())
        store.write(name, data, exclusive=exclusive)


def create_marker(checkpoint: str, marker: Marker) -> bool:
    """Write a marker where there is none; of many who try exactly one does.

    Returns:
        Whether it was written, or there is no place for one: the directory is the root of its store.
    """
    try:
        write_marker(checkpoint, marker, exclusive=True)
    except ConflictError as error:
        if error.code != "exists":
            raise
        return False
    return True


def remove_marker(checkpoint: str) -> None:
    """Remove the marker of a directory; one that is not there is no error."""
    place = _place(checkpoint)
    if place is not None:
        store, name = place
        store.delete(name)


def renew_marker(
    checkpoint: str,
    *,
    job: str,
    query: str,
    generation: Generation,
    control: JobControl,
    by: Mapping[str, str],
    repository: str | None = None,
    repository_id: str | None = None,
    facts: Mapping[str, Any] | None = None,
    saved: bool = True,
    unchanged: bool = True,
) -> str | None:
    """Let the marker say what counts now; what an earlier one says beyond that is kept.

    The marker of another job stays: only a person may accept that the checkpoint is not that job's any more
    (`write_marker`).

    Args:
        facts: What a driver learnt of the query (`JobControl.query_facts`).
        saved: A savepoint was just written there. Else an id that the marker has for the same place stays:
            another repository in its place is a loss, which a driver that starts must not accept.
        unchanged: Write it where nothing in it has changed, too, but for the time.

    Returns:
        Why it could not be written; None where it was. A job runs on without: whoever calls leaves that
        behind.
    """
    try:
        try:
            before = read_marker(checkpoint)
        except FormatError:
            before = None  # it is replaced by one that can be read
        if before is not None and (before.job, before.query) != (job, query):
            if before.has_worked:
                return f"It is that of job {before.called}."
            before = None
        known = before
        where = open_store(repository).uri if repository else known.repository if known else None
        same = known is not None and service_name(known.repository) == service_name(where)
        was = known.repository_id if known is not None and same else None
        told = facts or {}
        sink = told.get("sink")
        marker = Marker(
            job=job,
            query=query,
            generation=generation.number,
            location=generation.location,
            control=records_root(control),
            repository=where,
            repository_id=(repository_id or was) if saved else (was or repository_id),
            query_id=_text(told.get("query_id")) or (known.query_id if known else None),
            sink=_KIND.split(str(sink), maxsplit=1)[0] if sink else known.sink if known else None,
            sink_path=_text(told.get("sink_path")) if sink else known.sink_path if known else None,
            at=known.at if known else "",
            by=dict(by),
            accepted=known.accepted if known else None,
        )
        if unchanged or known is None or replace(marker, by=known.by) != known:
            write_marker(checkpoint, marker)
    except StreambankError as error:
        return error.message
    return None


def marked_generation(checkpoint: str, called: str) -> int:
    """The number of the generation that the marker of a query names; 0 where it has not worked by that.

    Args:
        called: `job` or `job/query`.
    """
    try:
        marker = read_marker(checkpoint)
    except StreambankError:
        return 0
    worked = marker is not None and marker.called == called and marker.has_worked
    return marker.generation if marker is not None and worked else 0


def records_root(control: JobControl) -> str:
    """The control location that a job's records lie below."""
    return control.store.uri.rpartition("/")[0]


def identity_of(repository: str) -> str | None:
    """The id of a repository; None where there is none, or none that can be read."""
    try:
        return read_header(open_store(repository)).id
    except StreambankError:
        return None
