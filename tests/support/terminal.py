"""A command on a terminal of so many columns: what it draws there."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_STYLES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(command: Sequence[str], folder: Path, environment: Mapping[str, str], columns: int) -> bytes:
    """Run a command on a terminal, and give everything that it draws, with its styles.

    Args:
        command: It and its arguments; it must end with 0.
    """
    main, other = pty.openpty()
    try:
        process = subprocess.Popen(
            command,
            env={**environment, "TERM": "xterm", "COLUMNS": str(columns)},
            cwd=folder,
            stdout=other,
            stderr=other,
        )
        os.close(other)
        said = b""
        while True:
            try:
                part = os.read(main, 4096)
            except OSError:  # how a terminal says that its other end is closed
                break
            if not part:
                break
            said += part
        assert process.wait(timeout=30) == 0, said
    finally:
        os.close(main)
    return said


def plain(said: bytes) -> list[str]:
    """The lines without styles, and without spaces at their ends."""
    return [line.rstrip() for line in _STYLES.sub(b"", said).decode().splitlines()]
