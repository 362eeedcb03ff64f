"""A file sink that is named when a savepoint is restored, which was taken without it.

The savepoint keeps nothing of its log, so what the log had at the savepoint's batch is read from the sink as
it is. A rollback leaves those entries in place, so they can be read until it is done, and again by a second
try. Once Spark has compacted them together with later ones, nothing tells them apart any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from streambank.checkpoint.files import read_query_id
from streambank.core.errors import InputError, NotFoundError, RefusedError, StreambankError
from streambank.repository.manifest import Manifest
from streambank.savepoint.import_copy import REASON
from streambank.sinks.file.capture import KIND, FileSinkCapture
from streambank.sinks.file.fits import ClockFit, fit_of, windows_of
from streambank.sinks.file.log import list_log
from streambank.sinks.file.position import Chunks
from streambank.sinks.unguarded import sink_from_description
from streambank.storage import local_path, normalize_location, open_store, same_place, scheme_of
from streambank.storage.store import Store, chunks

SERVICE_SLACK_NS = 2_000_000_000
"""The times of an object store are whole seconds, by the clocks of several servers."""


@dataclass(frozen=True, slots=True)
class Named:
    """A file sink that the savepoint does not name.

    Attributes:
        content: Its log up to the savepoint's batch, by the names that a manifest gives to its files.
        proven: Times show that the query of the savepoint has written it.
    """

    record: Mapping[str, Any]
    content: Mapping[str, Chunks]
    store: Store
    proven: bool


def named_afterwards(
    manifest: Manifest, locations: Iterable[str], same_line: bool | None = None
) -> list[Named]:
    """The file sinks that a person names for a savepoint; those that it names itself are left out.

    Args:
        same_line: The query was not restored to an earlier batch since the savepoint; None where no records
            tell.

    Raises:
        RefusedError: The log of one shows that another query writes it (code `not-this-sink`), or no longer
            tells what it had at the batch (`sink-log-not-retained`).
        InputError: Its log does not reach the batch, or there is none (`not-this-sink`).
        FormatError, StorageError, ConflictError: The log cannot be read.
    """
    kept = [
        str(one.get("path"))
        for one in manifest.sinks
        if one.get("kind") == KIND and one.get("guarded") is True
    ]
    found: list[Named] = []
    for location in dict.fromkeys(map(normalize_location, locations)):
        if not any(same_place(location, one) for one in kept):
            found.append(_named(manifest, open_store(location), same_line))
            kept.append(location)
    return found


def as_told(manifest: Manifest, description: str, same_line: bool | None) -> Named | None:
    """A file sink that the job's records name and the savepoint does not; None where its log cannot tell.

    Nobody has named it for this savepoint, so that it is the log of the savepoint's batches is to be proven.
    """
    capture = sink_from_description(description)
    try:
        found = next(iter(named_afterwards(manifest, [capture.path], same_line)), None)
    except StreambankError:
        return None  # it is one that cannot be judged
    return found if found is None or found.proven or same_line is True else None


def _named(manifest: Manifest, store: Store, same_line: bool | None) -> Named:
    try:
        captured = FileSinkCapture(store.uri, store).capture(manifest.batch)
    except NotFoundError as error:
        if error.code != "sink-log-not-retained":
            raise
        raise RefusedError(
            f"{error.message} The savepoint was taken without this sink, so only the sink could tell.",
            code="sink-log-not-retained",
            hint="Restore a savepoint that names the sink, or a newer one with --file-sink; --sink accept "
            "without --file-sink leaves the output as it is.",
        ) from error
    except InputError as error:
        error.hint = f"{error.hint} A sink that is behind batch {manifest.batch} lacks rows up to it."
        raise
    proven = _is_own(manifest, store, same_line)
    content = {info.path: partial(_read, store, info.path) for info in captured.files}
    return Named(captured.record, content, store, proven)


def _read(store: Store, key: str) -> Iterator[bytes]:
    with store.open(key) as reader:
        yield from chunks(reader)


def _is_own(manifest: Manifest, sink: Store, same_line: bool | None) -> bool:
    """Whether times show that the log is that of the savepoint's batches.

    Raises:
        RefusedError: An entry was written when the query did not run its batch, or the query went back since,
            and no time tells whose entries these are (code `not-this-sink`).
    """
    fit = _fit(manifest, sink)
    if not fit.against:
        if not fit.agree and same_line is False:
            raise _not_own(
                f"The query was restored to an earlier batch since savepoint {manifest.savepoint}, and no "
                f"time tells whether the log of {sink.uri} is of the batches before that or after."
            )
        return bool(fit.agree)
    which = f"batch {fit.against[-1]}"
    raise _not_own(
        f"The log of {sink.uri} does not belong to savepoint {manifest.savepoint}: its entry of {which} was "
        f"not written while the query ran {which}. Another query writes there, or the query ran {which} "
        "again after a restore."
    )


def _not_own(message: str) -> RefusedError:
    return RefusedError(
        message,
        code="not-this-sink",
        hint="Name the directory that the query of the savepoint writes to, or use a savepoint that was "
        "taken since. If the directory is a copy, whose files have new times, bring the original back. "
        "--sink accept without --file-sink leaves the output as it is.",
    )


def _fit(manifest: Manifest, sink: Store) -> ClockFit:
    """What the times of the log say; nothing where they are of other clocks than the checkpoint's."""
    slack_ns = _slack_ns(manifest.checkpoint, sink.uri)
    if slack_ns is None:
        return ClockFit((), ())
    times: list[tuple[str, int]] = []
    if manifest.taken_by.get("reason") != REASON:  # the times of a copy are its own
        times += [(one.path, one.mtime_ns) for one in manifest.files]
    windows = {**_windows_now(manifest), **windows_of(times)}
    entries = [(name.batch, info.mtime_ns) for name, info in list_log(sink).items()]
    until = {batch: one for batch, one in windows.items() if batch <= manifest.batch}
    return fit_of({one: (first - slack_ns, last + slack_ns) for one, (first, last) in until.items()}, entries)


def _slack_ns(checkpoint: str, sink: str) -> int | None:
    """How far apart the times of two places may be that are of one moment; None where nothing is known."""
    local = [local_path(one) is not None for one in (checkpoint, sink)]
    if all(local):
        return 0
    return None if any(local) or scheme_of(checkpoint) != scheme_of(sink) else SERVICE_SLACK_NS


def _windows_now(manifest: Manifest) -> Mapping[int, tuple[int, int]]:
    """When the batches ran that the checkpoint still has; none where it is gone, or is of another query."""
    try:
        place = open_store(manifest.checkpoint)
        if read_query_id(place) != manifest.query_id:
            return {}
        files = [place.stat("metadata"), *place.list("offsets"), *place.list("commits")]
    except StreambankError:
        return {}
    return windows_of((one.path, one.mtime_ns) for one in files)
