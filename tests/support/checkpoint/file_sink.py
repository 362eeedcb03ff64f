"""A file sink as Spark writes it, without Spark: data files, a log, compaction every so many batches."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote

from streambank.storage.store import Store
from tests.support.checkpoint.live_checkpoint import oldest_log_entry

Rows = Sequence[Mapping[str, object]]


class FileSinkWriter:
    """Writes batches into an output directory the way Spark's FileStreamSink does.

    Args:
        compact_every: Spark's `fileSink.log.compactInterval`.
        keep_old: Keep the entries that a compaction replaces, as Spark does for ten minutes.
        retain: Otherwise, the log of how many batches is kept.
        timeline: Part of the names of data files; two timelines never write the same name.
    """

    def __init__(
        self,
        store: Store,
        *,
        compact_every: int = 10,
        keep_old: bool = False,
        retain: int = 0,
        timeline: str = "a",
    ) -> None:
        self.store = store
        self.compact_every = compact_every
        self.keep_old = keep_old
        self.retain = retain
        self.timeline = timeline
        self.rows: dict[str, list[Mapping[str, object]]] = {}

    def write(self, batch: int, rows: Rows, *, folder: str = "") -> str:
        """One batch with one data file; skipped where the log already has that batch, as Spark does it."""
        if batch <= self.latest():
            return ""
        key = f"{folder}/" if folder else ""
        key += f"part-00000-{self.timeline}{batch:04d}-c000.json"
        data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        self.store.write(key, data)
        self._log(batch, [self._entry(key, len(data))])
        return key

    def latest(self) -> int:
        """The newest batch in the log, -1 for none."""
        return max((int(name.partition(".")[0]) for name in self._names()), default=-1)

    def read(self) -> list[dict[str, object]]:
        """The rows that a reader of the output sees, by the log."""
        return [row for _, rows in self.files() for row in rows]

    def files(self) -> Iterator[tuple[int, list[dict[str, object]]]]:
        """The data files by the log: when each was written, in ms since 1970, and its rows."""
        for entry in self._all_entries(self.latest()):
            lines = self.store.read(self._key(entry)).splitlines()
            yield int(str(entry["modificationTime"])), [json.loads(line) for line in lines]

    def _key(self, entry: Mapping[str, object]) -> str:
        path = str(entry["path"])
        assert path.startswith(self.store.uri + "/"), path
        return path[len(self.store.uri) + 1 :].replace("%20", " ")

    def _entry(self, key: str, size: int) -> dict[str, object]:
        return {
            "path": f"{self.store.uri}/{quote(key, safe='/=')}",
            "size": size,
            "isDir": False,
            "modificationTime": 1,
            "blockReplication": 1,
            "blockSize": 33554432,
            "action": "add",
        }

    def _names(self) -> list[str]:
        return [name for name in self.store.names("_spark_metadata") if not name.startswith(".")]

    def _log(self, batch: int, entries: list[dict[str, object]]) -> None:
        if (batch + 1) % self.compact_every:
            self._put(str(batch), entries)
            return
        older = self._all_entries(batch - 1)
        self._put(f"{batch}.compact", older + entries)
        if not self.keep_old:
            oldest = oldest_log_entry(batch, self.retain, self.compact_every)
            for name in self._names():
                if int(name.partition(".")[0]) < oldest:
                    self.store.delete(f"_spark_metadata/{name}")

    def _put(self, name: str, entries: list[dict[str, object]]) -> None:
        lines = ["v1", *(json.dumps(entry, separators=(",", ":")) for entry in entries)]
        self.store.write(f"_spark_metadata/{name}", "\n".join(lines).encode())

    def _all_entries(self, batch: int) -> list[dict[str, object]]:
        """As Spark reads them: the last compacted entry, then each one; a gap is an error."""
        names = [name for name in self._names() if int(name.partition(".")[0]) <= batch]
        compacts = [int(name.partition(".")[0]) for name in names if name.endswith(".compact")]
        base = max(compacts, default=None)
        wanted = [] if base is None else [f"{base}.compact"]
        first = min((int(name) for name in names if name.isdigit()), default=0) if base is None else base + 1
        wanted += [str(number) for number in range(first, batch + 1)]
        entries: list[dict[str, object]] = []
        for name in wanted:
            lines = self.store.read(f"_spark_metadata/{name}").decode().split("\n")
            assert lines[0] == "v1"
            entries += [json.loads(line) for line in lines[1:] if line]
        return entries
