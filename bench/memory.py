"""How much memory the plan and the manifest of very many files take, in a separate process.

    python -m bench.memory FILES

The listing is made up: no file is written. It has the shape of the many small files, so that a savepoint
needs 17 of 100. One line of JSON comes out, memory in MB.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.tree import environment
from bench.workloads import SmallFiles
from streambank.checkpoint.closure import plan_closure
from streambank.checkpoint.listing import Listing
from streambank.repository.manifest import FileEntry, Manifest, decode_head, encode
from streambank.savepoint.plan import make_plan
from streambank.storage.local.store import LocalStore
from streambank.storage.store import Row


def measure(files: int) -> dict[str, Any]:
    """Measure in a separate process."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.memory", str(files)],
        env=environment(),
        check=True,
        stdout=subprocess.PIPE,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main(files: int) -> dict[str, Any]:
    """Plan, write the manifest to nowhere, and look at the highest memory after each."""
    answer: dict[str, Any] = {"files": files, "start_mb": peak_mb()}
    with TemporaryDirectory() as name:
        small = LocalStore(name)
        SmallFiles(partitions=1).build(Path(name))
        _as_if_of(small, files // 100)
        started = time.perf_counter()
        listing = Listing()
        for folder, rows in _folders(small, files // 100):
            listing.add_rows(folder, rows)
        answer |= {"listed": len(listing), "listing_mb": peak_mb()}

        def read(path: str, offset: int = 0, length: int | None = None) -> bytes:
            return small.read(path, offset, length)

        closure = plan_closure(listing, read)
        answer |= {"closure": len(closure.files), "closure_mb": peak_mb()}
        plan = make_plan(small, listing, closure, [], {})
        answer |= {"plan_mb": peak_mb(), "plan_s": time.perf_counter() - started}
        entries = tuple(
            FileEntry(
                task.path, task.size_bytes, f"blake3:{number:064x}", task.mtime_ns, task.identity, task.role
            )
            for number, task in enumerate(plan.tasks)
        )
        manifest = Manifest(
            savepoint="b000094-000000000000",
            job="bench",
            query_id=closure.query_id,
            batch=closure.batch,
            taken_at=datetime.now(UTC),
            files=entries,
            file_count=len(entries),
        )
        size_bytes = sum(len(block) for block in encode(manifest))
        answer |= {"manifest_bytes": size_bytes, "manifest_mb": peak_mb()}
        decode_head(encode(manifest))
        answer["peak_mb"] = peak_mb()
    return answer


def _as_if_of(store: LocalStore, partitions: int) -> None:
    """Let the logs of a checkpoint say that it has more partitions than there are files of."""
    for info in list(store.list("offsets")):
        text = store.read(info.path).decode()
        store.write(info.path, text.replace('"1"', f'"{partitions}"').encode())


def _folders(store: LocalStore, partitions: int) -> Iterator[tuple[str, Sequence[Row]]]:
    """The folders of a checkpoint, with its only partition again and again."""
    for folder, rows in store.scan():
        if folder != "state/0/0":
            yield folder, rows
            continue
        for partition in range(partitions):
            numbered = enumerate(rows, partition * 100 + 1_000_000)
            yield (
                f"state/0/{partition}",
                [(name, number, size, mtime + number, 1) for number, (name, _, size, mtime, _) in numbered],
            )


def peak_mb() -> float:
    """The highest resident memory of this process; `getrusage` would count what its parent had."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return round(int(line.split()[1]) * 1024 / 1e6, 1)


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))
