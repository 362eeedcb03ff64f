"""A real Postgres of the system's packages, as `make stack` starts it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from demo.ports import any_free
from demo.ready import is_ready
from demo.stack import postgres as server
from demo.stack.places import StackPlaces
from tests.support.waiting import wait_for

PASSWORD = "hush-hush-7"


@contextmanager
def running_postgres() -> Iterator[str]:
    """Start one, with an empty database; it ends, and its data go, with the block.

    Returns:
        Its URL, as SQLAlchemy reads it; the password in it is `PASSWORD`.
    """
    home = Path(tempfile.mkdtemp(prefix="streambank-postgres-", dir="/tmp"))  # its own user has to get there
    home.chmod(0o711)
    port = any_free()
    processes: list[subprocess.Popen[bytes]] = []
    try:
        with (home / "log").open("wb") as log:
            for part in server.parts(StackPlaces(home), port, PASSWORD, {"PATH": os.environ["PATH"]}):
                process = subprocess.Popen(
                    part.command,
                    env=dict(part.environment),
                    cwd=part.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
                if part.once:
                    assert process.wait(120) == 0, (home / "log").read_text()
                else:
                    processes.append(process)
                    wait_for(part.name, partial(is_ready, part.ready))
        yield server.url(port, PASSWORD)
    finally:
        for process in processes:
            process.send_signal(signal.SIGINT)  # at SIGTERM it would wait for the caller's connections
            process.wait(60)
        shutil.rmtree(home, ignore_errors=True)
