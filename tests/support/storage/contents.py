"""What lies in a store: its keys, and every file with its bytes."""

from __future__ import annotations

from streambank.storage.store import Store


def keys(store: Store, prefix: str = "") -> list[str]:
    """Every key below a prefix, in order."""
    return sorted(info.path for info in store.list(prefix))


def contents(store: Store) -> dict[str, bytes]:
    """Every file with its bytes."""
    return {info.path: store.read(info.path) for info in store.list()}
