"""Temporary files that a write has left on a local disk: it was killed, or it is going on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from streambank.core.errors import NotFoundError
from streambank.storage.local.errors import NOT_THERE, translate
from streambank.storage.local.root import Root
from streambank.storage.names import is_part, is_temporary
from streambank.storage.store import Leftover


def leftovers(root: Root, before_ns: int) -> Iterator[Leftover]:
    """Temporary files below a root that nobody has written to since a moment; links are never followed."""
    pending = [""]
    while pending:
        folder = pending.pop()
        found: list[tuple[str, os.stat_result]] = []
        try:
            with root.directory(folder) as descriptor, os.scandir(descriptor) as entries:
                for entry in entries:
                    key = f"{folder}/{entry.name}" if folder else entry.name
                    if is_temporary(entry.name) and entry.is_file(follow_symlinks=False):
                        with suppress(FileNotFoundError):  # it has its real name by now
                            found.append((key, entry.stat(follow_symlinks=False)))
                    elif is_part(entry.name) and entry.is_dir(follow_symlinks=False):
                        pending.append(key)
        except NotFoundError:
            continue  # it vanished, or was never made
        except OSError as error:
            raise translate(error, root.join(folder)) from error
        for key, status in found:
            if status.st_mtime_ns < before_ns:
                yield Leftover(key, status.st_size)


def discard(root: Root, leftover: Leftover) -> None:
    """Remove one; nothing else is ever removed by this."""
    parent, _, name = leftover.key.rpartition("/")
    if not is_temporary(name):
        return
    try:
        with root.directory(parent) as directory:
            os.unlink(name, dir_fd=directory)
    except NotFoundError:
        return
    except OSError as error:
        if error.errno not in NOT_THERE:
            raise translate(error, root.join(leftover.key)) from error
