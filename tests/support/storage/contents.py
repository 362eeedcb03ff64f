"""What lies in a store: its keys, and every file with its bytes."""

from __future__ import annotations

from streambank.storage.store import Store


def keys(store: Store, prefix: str = "") -> list[str]:
    return sorted(info.path for info in store.list(prefix))


def contents(store: Store) -> dict[str, bytes]:
    return {info.path: store.read(info.path) for info in store.list()}
