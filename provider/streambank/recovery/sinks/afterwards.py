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
from streambank.sinks.file.fits import fit_of, windows_of
from streambank.sinks.file.log import list_log
from streambank.sinks.file.position import Chunks
from streambank.sinks.unguarded import sink_from_description
from streambank.storage import local_path, normalize_location, open_store, same_place
from streambank.storage.store import Store, chunks


@dataclass(frozen=True, slots=True)
class Named:
    """A file sink that the savepoint does not name.

    Attributes:
        record: The sink as a savepoint would keep it.
        content: Its log up to the savepoint's batch, by the names that a manifest gives to its files.
        store: The output directory.
    """

    record: Mapping[str, Any]
    content: Mapping[str, Chunks]
    store: Store


def named_afterwards(manifest: Manifest, locations: Iterable[str]) -> list[Named]:
    """The file sinks that a person names for a savepoint; those that it names itself are left out.

    Args:
        manifest: The savepoint.
        locations: Output directories.

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
            found.append(_named(manifest, open_store(location)))
            kept.append(location)
    return found


def as_told(manifest: Manifest, description: str) -> Named | None:
    """A file sink that the job's records name and the savepoint does not; None where its log cannot tell."""
    capture = sink_from_description(description)
    try:
        return next(iter(named_afterwards(manifest, [capture.path])), None)
    except StreambankError:
        return None  # it is one that cannot be judged


def _named(manifest: Manifest, store: Store) -> Named:
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
    check_own(manifest, store)
    content = {info.path: partial(_read, store, info.path) for info in captured.files}
    return Named(captured.record, content, store)


def _read(store: Store, key: str) -> Iterator[bytes]:
    with store.open(key) as reader:
        yield from chunks(reader)


def check_own(manifest: Manifest, sink: Store) -> None:
    """Make sure that no time speaks against the log being that of the savepoint's query.

    Times are compared on this machine only: elsewhere they are of other clocks, or of whole seconds.

    Raises:
        RefusedError: An entry was written when the query did not run its batch (code `not-this-sink`).
    """
    if local_path(sink.uri) is None or local_path(manifest.checkpoint) is None:
        return
    times: list[tuple[str, int]] = []
    if manifest.taken_by.get("reason") != REASON:  # the times of a copy are its own
        times += [(one.path, one.mtime_ns) for one in manifest.files]
    windows = {**_windows_now(manifest), **windows_of(times)}
    entries = [(name.batch, info.mtime_ns) for name, info in list_log(sink).items()]
    fit = fit_of({batch: one for batch, one in windows.items() if batch <= manifest.batch}, entries)
    if not fit.against:
        return
    which = f"batch {fit.against[-1]}"
    raise RefusedError(
        f"The log of {sink.uri} does not belong to savepoint {manifest.savepoint}: its entry of {which} was "
        f"not written while the query ran {which}. Another query writes there, or the query ran {which} "
        "again after a restore.",
        code="not-this-sink",
        hint="Name the directory that the query of the savepoint writes to, or use a savepoint that was "
        "taken since. If the directory is a copy, whose files have new times, bring the original back. "
        "--sink accept without --file-sink leaves the output as it is.",
    )


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
