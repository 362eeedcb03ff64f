"""Makes what this version stores: a repository, a replica, the records and the checkpoint of a job.

    sudo unshare --uts sh -c 'hostname localhost; python tests/data/stored/make.py /srv/words 0.1.0'

Everything is made by the command line, so that it needs nothing but `streambank` on the path; it leaves
`VERSION.tar.xz` here. Every later version must read it (tests/test_stored.py), so a file here is never
made again; a version that stores something new adds its own.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
JOBS = f"""
repository = "repository"

[jobs.words]
description = "Words, counted by five minutes."
application = "counts.py"
args = ["."]
checkpoint = "checkpoint"
master = "local[1]"

[jobs.words.spark]
"spark.driver.bindAddress" = "127.0.0.1"
"spark.driver.host" = "127.0.0.1"
"spark.sql.session.timeZone" = "UTC"
"spark.sql.shuffle.partitions" = 2
"spark.sql.streaming.stateStore.providerClass" = "{PROVIDER}"
"spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled" = true
"spark.ui.enabled" = false

[jobs.words.sla]
batch_duration = {{ warn = "1h" }}
"""
NEVER = ("in-progress", "logs", "bundles")
"""Folders whose content no later version reads."""
WAIT_S = 120


class Story:
    """What happens to one job, by the command line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = 0

    def ask(self, *words: str) -> Any:
        """Run one verb."""
        print("streambank", *words, flush=True)
        command = ["streambank", *words, "--json"]
        done = subprocess.run(command, cwd=self.folder, stdout=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 0, (words, done.returncode, done.stdout)
        return json.loads(done.stdout)

    def arrive(self, number: int) -> None:
        """More files of the input: each is a batch."""
        for _ in range(number):
            start = datetime(2026, 11, 23, tzinfo=UTC) + timedelta(minutes=self.files)
            times = [(start + timedelta(seconds=7 * n)).isoformat() for n in range(200)]
            rows = [{"at": at, "word": f"w{n % 13}"} for n, at in enumerate(times)]
            file = self.folder / f"{self.files:04}.json"
            file.write_text("\n".join(json.dumps(row) for row in rows))
            file.rename(self.folder / "input" / file.name)
            self.files += 1

    def committed(self, batch: int, checkpoint: str) -> None:
        until = time.monotonic() + WAIT_S
        while not (self.folder / checkpoint / "commits" / str(batch)).exists():
            assert time.monotonic() < until, f"batch {batch} was not committed"
            time.sleep(0.2)

    def tell(self) -> None:
        job, repository = ("words", "--jobs", "jobs.toml"), ("-r", "repository")
        self.arrive(4)
        self.ask("job", "start", *job, "--why", "the first start")
        self.committed(3, "checkpoint")
        self.ask("job", "savepoint", *job, "--note", "the first, hot")
        self.arrive(4)
        self.committed(7, "checkpoint")
        self.ask("job", "savepoint", *job, "--note", "pinned", "--pin")
        self.ask("sla", *job)
        self.arrive(2)
        self.committed(9, "checkpoint")
        self.ask("job", "stop", *job, "--savepoint", "--note", "of a stop")
        self.ask("job", "start", *job)
        self.arrive(3)
        self.committed(12, "checkpoint")
        status = self.ask("job", "status", *job)
        os.kill(_driver(status), signal.SIGKILL)
        time.sleep(2)
        shutil.rmtree(self.folder / "checkpoint")
        back = ("--job", "words", "--generation", "--sink", "rollback")
        self.ask("restore", "latest-good", *repository, *back)
        self.ask("job", "start", *job)
        self.committed(12, "checkpoint.g0002")
        self.ask("job", "savepoint", *job, "--note", "after the restore")
        self.ask("sla", *job)
        self.ask("job", "stop", *job, "--why", "the end")
        self.ask("verify", "--all", *repository, "--level", "full")
        self.ask("replicate", *repository, "--to", "replica")
        self.ask("expire", *repository, "--keep-last", "2")
        self.ask("sweep", *repository)


def _driver(status: Any) -> int:
    for name in ("pid", "jvm_pid"):
        found = [one for one in _walk(status) if one[0] == name]
        if found:
            return int(str(found[0][1]))
    raise AssertionError(status)


def _walk(data: object) -> list[tuple[str, object]]:
    if isinstance(data, dict):
        return [pair for name, value in data.items() for pair in [(name, value), *_walk(value)]]
    return [pair for value in data for pair in _walk(value)] if isinstance(data, list) else []


def main() -> None:
    """Make it, and pack it."""
    folder, version = Path(sys.argv[1]), sys.argv[2]
    (folder / "input").mkdir(parents=True)
    shutil.copy(HERE / "counts.py", folder)
    (folder / "jobs.toml").write_text(JOBS)
    Story(folder).tell()
    with tarfile.open(HERE / f"{version}.tar.xz", "w:xz") as tar:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not set(path.relative_to(folder).parts) & set(NEVER):
                tar.add(path, path.relative_to(folder))


if __name__ == "__main__":
    main()
