"""What may still need a directory in which the checkpoint of a query has lived. Only looks.

* `writers`: a driver that may still write into it, although it has lost the lease or is about to
* `healing_savepoint`: a savepoint that is not whole, and could be stored again from the files there
"""

from __future__ import annotations

from datetime import datetime, timedelta

from streambank.control.claims import Holder
from streambank.control.control import JobControl
from streambank.control.records import read_or_empty
from streambank.core.errors import FormatError, NotFoundError
from streambank.core.units import time_or_none
from streambank.repository.catalog import heads
from streambank.repository.repository import Repository
from streambank.savepoint.verify import whole_objects
from streambank.storage import open_store, service_name

SILENT = timedelta(days=1)
"""A driver on another host that lost its lease without a word has ended when it has not been heard of for so
long: one that lives finds out within a beat, and ends itself."""


def writers(control: JobControl, query: str, now: datetime) -> dict[str | None, str]:
    """Which directories a driver may still write into, and which driver that is, as a part of a sentence.

    The directories are named as `service_name` names them.
    """
    view = control.lease.view()
    found: dict[str | None, str] = {}
    for record in control.stream(f"queries/{query}").history():
        location, epoch = record.data.get("checkpoint"), record.data.get("epoch")
        if not isinstance(location, str) or not isinstance(epoch, int):
            continue
        if view is not None and epoch == view.epoch:
            free = view.free and control.lease.doubt(view) is None
            why = "" if free else f"the driver of epoch {epoch}, which may still run ({view.why})"
        else:
            why = _of_epoch(control, epoch, now)
        if why:
            found[service_name(location)] = why
    return found


def _of_epoch(control: JobControl, epoch: int, now: datetime) -> str:
    """Why the driver of an earlier epoch may still write; empty where it ended, or is not known any more."""
    records = control.lease.claims.records
    if isinstance(read_or_empty(control.store, records.key(epoch, ".end")).get("exit_code"), int):
        return ""  # it gave the lease back itself
    data = read_or_empty(control.store, records.key(epoch))
    try:
        holder = Holder.from_dict(data)
    except FormatError:
        return ""  # pruned: a month ago and more
    if control.here.sees(holder.host):
        if not any(one.is_living() for one in holder.processes):
            return ""
        return f"the driver of epoch {epoch}, which lost its lease and has not ended"
    beat = read_or_empty(control.store, records.key(epoch, ".beat"))
    seen_at = time_or_none(beat.get("at")) or time_or_none(data.get("at"))
    if seen_at is not None and now - seen_at >= SILENT:
        return ""
    return f"the driver of epoch {epoch} on {holder.host.host}, which has not said that it ended: for a day"


def healing_savepoint(repository: str, called: str, location: str) -> str:
    """Which savepoint is not whole that was taken there, of a batch that is still there; empty for none."""
    opened = Repository.open(open_store(repository))
    there, place = set(open_store(location).names("commits")), service_name(location)
    for head in heads(opened.store, called):
        if head.job != called or service_name(head.checkpoint) != place or str(head.batch) not in there:
            continue
        try:
            manifest = opened.load(called, head.savepoint)
        except NotFoundError:
            continue  # expired meanwhile
        if set(manifest.objects()) - whole_objects(opened, manifest):
            return head.savepoint
    return ""
