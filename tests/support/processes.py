"""Python processes that tests start beside themselves: one to talk to and to kill, or many that race."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.paths import ROOT

TIDY = """
import signal, sys
from pathlib import Path

def tidy(*_):
    Path(sys.argv[1]).unlink()
    sys.exit(143)

signal.signal(signal.SIGTERM, tidy)
print("up", flush=True)
while True:
    signal.pause()
"""
"""A process that removes a file when TERM ends it."""
DEAF = TIDY.replace(", tidy)", ", signal.SIG_IGN)")
"""One that TERM does not end."""


@contextmanager
def child(code: str, *args: str | Path) -> Iterator[subprocess.Popen[str]]:
    """A Python process that runs `code` with the engine at hand; killed at the end."""
    path = [str(ROOT / "provider"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


def say(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def race(code: str, count: int, *args: str | Path, timeout_s: float = 60.0) -> Sequence[str]:
    """Run `code` in many processes at once; what each said in its last line.

    Each says `ready`, waits for a line on its standard input, and goes.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "provider"), str(ROOT)))}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for _ in range(count)
    ]
    try:
        for process in processes:
            assert say(process) == "ready"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        # All have had their try before anybody's standard input ends, for which a winner may wait.
        first = [say(process) for process in processes]
        rest = [process.communicate(timeout=timeout_s)[0].strip() for process in processes]
        return [(late or early).splitlines()[-1] for early, late in zip(first, rest, strict=True)]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
