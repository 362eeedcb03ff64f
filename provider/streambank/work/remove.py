"""Removing a whole directory, in an order that leaves nothing half that would be taken for whole."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from streambank.core.errors import RefusedError, StorageError
from streambank.storage import local_path
from streambank.storage.store import FileInfo, Store
from streambank.storage.threads import each
from streambank.work.pace import Meter, Progress

CHECK_EVERY_S = 1.0
"""How often a long removal looks whether it still may."""


def remove_tree(
    store: Store,
    *,
    first: Sequence[str] = (),
    last: Sequence[str] = (),
    check: Callable[[], None],
    progress: Progress | None = None,
) -> tuple[int, int]:
    """Delete everything at a location, and the location. What is gone meanwhile is no error.

    Args:
        store: The location.
        first: Files, and folders, that go before all others, in this order.
        last: Those that go after all others, in this order.
        check: Raises where it must not go on; asked again and again.
        progress: Hears of files and bytes.

    Returns:
        How many files were deleted, and their size.

    Raises:
        RefusedError: The location is a symbolic link (code `not-a-directory`).
        StorageError: Something could not be deleted; the same call goes on where this one stopped.
    """
    path = local_path(store.uri)
    if path is not None and Path(path).is_symlink():
        raise RefusedError(
            f"{path} is a symbolic link, so what it leads to is not removed.",
            code="not-a-directory",
            hint="Look at where it leads, and remove that or the link yourself.",
        )

    def rank(info: FileInfo) -> int:
        if _place(info.path, last) is not None:
            return len(first) + 1 + (_place(info.path, last) or 0)
        place = _place(info.path, first)
        return len(first) if place is None else place

    ranked: dict[int, list[FileInfo]] = {}
    for info in store.list():
        ranked.setdefault(rank(info), []).append(info)
    files = sum(map(len, ranked.values()))
    size_bytes = sum(info.size_bytes for infos in ranked.values() for info in infos)
    meter = Meter(progress, "remove", files, size_bytes)

    def delete(info: FileInfo) -> None:
        store.delete(info.path)
        meter.add(1, info.size_bytes)

    for number in sorted(ranked):
        check()
        checked_s = time.monotonic()
        for _ in each(delete, ranked[number], store.features.at_once):
            if time.monotonic() - checked_s >= CHECK_EVERY_S:
                check()
                checked_s = time.monotonic()
    if path is None:
        store.prune()
    else:
        _remove_rest(str(path))
    return files, size_bytes


def _place(path: str, names: Sequence[str]) -> int | None:
    return next((at for at, name in enumerate(names) if path == name or path.startswith(f"{name}/")), None)


def _remove_rest(top: str) -> None:
    """What no listing shows: empty directories, checksums of Hadoop, temporary files, links."""

    def remove(act: Callable[[str], None], path: str) -> None:
        try:
            act(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError(
                f"{path} could not be removed: {error}",
                code="directory-not-removed",
                hint="See to what the error says, and clean again: it goes on where it stopped.",
            ) from error

    for folder, folders, files in os.walk(top, topdown=False, followlinks=False):
        for name in files:
            remove(os.unlink, f"{folder}/{name}")
        for name in folders:
            path = f"{folder}/{name}"
            remove(os.unlink if Path(path).is_symlink() else os.rmdir, path)
    remove(os.rmdir, top)
