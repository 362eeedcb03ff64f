"""Fencing a site whose records answer: its driver ends, and none starts there again.

The driver is stopped as by `job stop`. Where that fails, because its host or its cluster does not answer, the
records alone do it: its lease is ended, and its TTL waited for. A driver that reads its records ends at its
next heartbeat; one that cannot read them ends before its TTL is over.
"""

from __future__ import annotations

from collections.abc import Mapping

from streambank.control.control import JobControl
from streambank.control.operation import Operation
from streambank.core.errors import InputError, StorageError
from streambank.core.names import PRIMARY, STANDBY, other_of
from streambank.declaration.declaration import Job
from streambank.driver.launcher import Launcher
from streambank.job.stop import stop_job
from streambank.sites.look import look_at
from streambank.sites.records import SiteRecord, Sites, agree, which_counts

_PATIENCE_S = 60.0
BROKEN = "broken"
"""How a driver ended whose lease was ended, since nothing else reached it."""


def fence_site(
    job: Job,
    control: JobControl,
    operation: Operation,
    *,
    by: Mapping[str, str],
    why: str,
    launcher: Launcher | None = None,
) -> tuple[str, str]:
    """See to it that no driver runs at a site.

    Args:
        operation: Their operation lock, held: no start gets in between.

    Returns:
        How its driver ended, and why it could not be stopped where its lease was ended instead.

    Raises:
        RefusedError: An operation holds the lease, or it cannot be judged (code `lease-held`).
    """
    try:
        stopped = stop_job(job, by=by, why=why, launcher=launcher, control=control, operation=operation)
        return stopped.how, ""
    except (StorageError, InputError) as error:
        reason = error.message
    control.set_desired("stopped", by=by, why=why)
    view = control.lease.view()
    if view is not None and not view.free and view.holder is not None:
        control.lease.break_off(by=by, why=why, even_live=True)
        control.clock.sleep(view.holder.ttl_s)
    return BROKEN, reason


def fence_other(
    job: Job, *, by: Mapping[str, str], why: str = "", launcher: Launcher | None = None
) -> tuple[SiteRecord | None, str | None]:
    """Let the site that is not the active one know, and end what runs there.

    Args:
        launcher: Where drivers run at the site that is not active.

    Returns:
        The record that counts, None where there never was a fail-over; and how a driver there ended, None
        where there was nothing to fence.

    Raises:
        InputError: The job has no standby (code `no-standby`).
        RefusedError: The sites do not agree (`sites-disagree`).
        StorageError: One of the sites does not answer.
    """
    primary, standby = job.at_site(PRIMARY), job.at_site(STANDBY)
    for look in look_at((primary, standby)).values():
        if look.silent is not None:
            raise look.silent
    known = {PRIMARY: Sites(primary.records()), STANDBY: Sites(standby.records())}
    newest = which_counts(known[PRIMARY], known[STANDBY], job.name)
    if newest is None or newest.active is None:
        return newest, None
    passive = job.at_site(other_of(newest.site))
    records = known[passive.site].control
    with records.operation("failover", by=by, wait_s=_PATIENCE_S, any_site=True) as operation:
        counts = agree(known[newest.site], known[passive.site], job.name)
        if counts.active != newest.active:
            return counts, None  # another fail-over came first: that site is not the passive one any more
        how, _ = fence_site(passive, records, operation, by=by, why=why, launcher=launcher)
    return newest, how
