"""Who fills a directory that a checkpoint is restored into, and whether they still do."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from streambank.control.processes import HostId, ProcessId, this_host, this_process
from streambank.core.errors import FormatError
from streambank.core.shape import decode
from streambank.work.target import Owner

_ACTIVE: set[str] = set()
_LOCK = threading.Lock()


@contextmanager
def restoring(*, exclusive: bool) -> Iterator[Owner]:
    """An owner for the `with` block of one restore.

    Args:
        exclusive: The caller holds a lock that no other restore into the same target can hold.
    """
    token = str(uuid.uuid4())
    details = {**this_host().to_dict(), **this_process("restore").to_dict(), "restore": token}
    with _LOCK:
        _ACTIVE.add(token)
    try:
        yield Owner(details, is_live, exclusive)
    finally:
        with _LOCK:
            _ACTIVE.discard(token)


def is_live(details: Mapping[str, Any]) -> bool | None:
    """Whether the restore that left these details goes on; None where that cannot be seen from here."""
    try:
        host, process = decode(HostId, details, "note"), decode(ProcessId, details, "note")
    except FormatError:
        return None
    if not this_host().sees(host):
        return None
    if process == this_process("restore"):
        with _LOCK:
            return details.get("restore") in _ACTIVE
    return process.is_living()
