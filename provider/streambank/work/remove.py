"""Removing a whole directory, in an order that leaves nothing half that would be taken for whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import groupby
from pathlib import Path

from streambank.core.errors import NotFoundError
from streambank.storage import local_path
from streambank.storage.local.trees import DirectoryIdentity, judge, opened
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
    check: Callable[[], None] = lambda: None,
    progress: Progress | None = None,
    judged: DirectoryIdentity | None = None,
) -> tuple[int, int]:
    """Delete everything at a location, and the location: how many files, and bytes. What is gone is no error.

    Args:
        first: Files, and folders, directly in it that go before all others, in this order.
        check: Raises where it must not go on; asked again and again.
        judged: Which directory of this machine it is, where that was looked at before; nothing of another
            one that has its name by now is removed.

    Raises:
        RefusedError: The location is a symbolic link, or another directory than the one that was judged
            (code `not-a-directory`); or another user's, where everybody may write (`not-this-users`).
        StorageError: Something could not be deleted; the same call goes on where this one stopped.
        StreambankError: What `check` raises.
    """
    path = local_path(store.uri)
    which = None if path is None else judged or _judged(path)

    def rank(name: str) -> int:
        if name in last:
            return len(first) + 1 + last.index(name)
        return first.index(name) if name in first else len(first)

    found = {info.path: info for info in store.list()}
    size_bytes = sum(info.size_bytes for info in found.values())
    meter = Meter(progress, "remove", len(found), size_bytes)
    checked_s = 0.0

    def check_again(at_once: bool = False) -> None:
        nonlocal checked_s
        if at_once or time.monotonic() - checked_s >= CHECK_EVERY_S:
            check()
            checked_s = time.monotonic()

    def parts(names: Iterable[str]) -> Iterator[list[str]]:
        for _, same in groupby(sorted(names, key=rank), rank):
            check_again(at_once=True)
            yield list(same)

    def remove_local(place: Path, which: DirectoryIdentity) -> None:
        def goes(key: str) -> None:
            check_again()
            if key in found:
                meter.add(1, found[key].size_bytes)

        with ExitStack() as stack:
            try:
                tree = stack.enter_context(opened(place, which, goes))
            except NotFoundError:  # one of `check` is not ours to pass over
                return
            for names in parts(tree.names()):
                for name in names:
                    tree.remove(name)
            tree.end()

    def delete(info: FileInfo) -> None:
        store.delete(info.path)
        meter.add(1, info.size_bytes)

    if path is not None:
        if which is not None:
            remove_local(path, which)
        return len(found), size_bytes
    below: dict[str, list[FileInfo]] = {}
    for info in found.values():
        below.setdefault(info.path.partition("/")[0], []).append(info)
    for names in parts(below):
        infos = [info for name in names for info in below[name]]
        for _ in each(delete, infos, store.features.at_once):
            check_again()
    store.prune()
    return len(found), size_bytes


def just_made(store: Store) -> DirectoryIdentity | None:
    """Which directory of this machine was made right now by whoever asks, for `remove_tree` later on.

    Raises:
        StreambankError: As `judge`.
    """
    path = local_path(store.uri)
    return None if path is None else judge(path, made=True)


def _judged(path: Path) -> DirectoryIdentity | None:
    with suppress(NotFoundError):
        return judge(path)
    return None
