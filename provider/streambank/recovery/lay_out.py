"""Laying a savepoint out in a fresh directory: for a restore, a drill and a copy."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from streambank.control.processes import HostId, ProcessId, this_host, this_process
from streambank.core.errors import FormatError, IntegrityError, StreambankError
from streambank.core.python310 import add_note
from streambank.core.shape import decode
from streambank.recovery.sinks.sinks import begin_outputs, look_at_sinks
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank.savepoint.materialize import MaterializeReport, Owner, materialize
from streambank.storage.store import Store
from streambank.work.executor import Pace


@contextmanager
def remembering_damage(repository: Repository, manifest: Manifest, by: Mapping[str, str]) -> Iterator[None]:
    """Record damage that only reading found, so that nobody counts on the savepoint."""
    try:
        yield
    except IntegrityError as error:
        try:
            repository.record_verification(
                manifest.job, manifest.savepoint, level="full", ok=False, findings=1, by=by
            )
        except StreambankError as failure:  # such as a replica that can only be read
            add_note(error, f"That could not be recorded: {failure}")
        raise


def lay_out_copy(
    repository: Repository,
    manifest: Manifest,
    target: Store,
    outputs: Mapping[str, str],
    *,
    by: Mapping[str, str],
    pace: Pace,
) -> MaterializeReport:
    """Lay a second query out beside the one that was saved, in a directory that nobody else restores into.

    Args:
        outputs: File sinks of the savepoint, each with a fresh directory: the query goes on there only by a
            log that reaches the savepoint's batch.
    """
    with remembering_damage(repository, manifest, by), restoring(exclusive=True) as owner:
        layout = materialize(repository, manifest, target, owner=owner, fork=True, pace=pace)
    if outputs:
        begin_outputs(look_at_sinks(repository, manifest, {}, outputs, mode="fork"))
    return layout


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
