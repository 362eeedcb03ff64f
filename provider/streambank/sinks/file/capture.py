"""What a savepoint keeps of a file sink: its log up to the savepoint's batch.

The data files are not copied: they are the query's output, and going back sets later ones aside instead.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from streambank.core.errors import InputError, NotFoundError, StreambankError
from streambank.savepoint.sinks import MISSING, Captured
from streambank.sinks.file.lacking import look_for
from streambank.sinks.file.log import LOG_DIRECTORY, Roots, chain, list_log
from streambank.sinks.file.named import NamedFiles
from streambank.sinks.table import sink_moved
from streambank.storage import normalize_location, open_store
from streambank.storage.store import Store

KIND = "file"
NEAR = "near the checkpoint, by its log, whose entries were written while the query ran"
"""How a sink was found that nobody and no record names. Another query that runs in step may write there."""


class FileSinkCapture:
    """A file sink whose output directory was named, or found as `found` says."""

    kind = KIND
    keeps_files = True

    def __init__(self, location: str, store: Store | None = None, *, found: str = "") -> None:
        self.path = store.uri if store is not None else normalize_location(location)
        self._store = store if store is not None else open_store(location)
        self._found = found

    def capture(self, batch: int) -> Captured:
        """The log up to `batch`: the last compacted entry, and each one after it.

        Raises:
            InputError: `not-this-sink`: its log does not reach `batch`.
            NotFoundError: `sink-log-not-retained`: entries up to `batch` were compacted away.
            FormatError: An entry cannot be understood.
            StorageError: A long log does not fit into the temporary directory.
            ConflictError: `sink-moved`: an entry went away while it was read.
        """
        for _ in range(2):  # a log that is compacted while it is listed may show an older end
            found = list_log(self._store)
            latest = max((name.batch for name in found), default=None)
            if latest is not None and latest >= batch:
                break
        if latest is None or latest < batch:
            reached = "is not there" if latest is None else f"ends at batch {latest}"
            raise InputError(
                f"The log of the file sink {self.path} {reached}, though batch {batch} is committed.",
                code="not-this-sink",
                hint=f"Name the directory that holds {LOG_DIRECTORY} of this query's output.",
            )
        where = f"{self.path}/{LOG_DIRECTORY}"
        try:
            names = chain(found, batch, where)
        except NotFoundError as error:
            raise NotFoundError(
                f"The file sink {self.path} no longer tells which files were written up to batch {batch}: "
                f"{error.message}",
                code="sink-log-not-retained",
                hint="Take a newer batch; the sink compacts its log as it goes.",
            ) from error
        try:
            named = NamedFiles()
            named.add_log(self._store, names, Roots(self.path))
        except NotFoundError as error:
            said = f"The log of the file sink {self.path} changed while it was read."
            raise sink_moved(said, "Take again.") from error
        files, size_bytes = named.totals()
        record = {
            "kind": self.kind,
            "path": self.path,
            "guarded": True,
            "batch": batch,
            "latest_batch": latest,
            "data_files": files,
            "data_bytes": size_bytes,
            **({"found": self._found} if self._found else {}),
        }
        files_of_log = tuple(found[name] for name in names)
        said = f"The file sink {self.path} was not named: it was found {self._found}." if self._found else ""
        return Captured(record, self._store, files_of_log, said, later=partial(self._missing, named))

    def _missing(self, named: NamedFiles) -> dict[str, Any]:
        try:
            found = look_for(self._store, named)
        except StreambankError:
            return {}  # only a warning depends on it: a restore looks for itself
        return {MISSING: found.to_dict()} if found.missing else {}
