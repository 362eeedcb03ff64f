"""Being denied: permissions mean nothing to root, so tests that run as root step down for a moment."""

from __future__ import annotations

import codecs
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534


@contextmanager
def open_folder() -> Iterator[Path]:
    """A new folder that every user may enter, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp(prefix="streambank-denied-"))
    try:
        folder.chmod(0o755)
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def as_ordinary_user() -> Iterator[None]:
    """Run as somebody who is not root."""
    if os.geteuid() != 0:
        yield
        return
    # What Python looks for in vain, since this user may not read it, it never looks for again.
    for codec in ("ascii", "idna", "latin-1"):
        codecs.lookup(codec)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
