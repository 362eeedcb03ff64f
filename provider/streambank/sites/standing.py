"""Whether a job may run at a site: asked by the process that launches its driver, and by the driver itself.

A site may run the job only where the newest record of both sites says that it is the active one
(sites/records.py). Where the other site does not answer, the one that is active by its own newest record may
start, and a warning says what cannot be excluded; the other one never may. A site that is slow rather than
dead is waited for (look.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from streambank.control.control import JobControl
from streambank.control.marker import records_root
from streambank.control.place import INSIDE, beside
from streambank.core.errors import ConflictError, FormatError, IntegrityError, RefusedError, StorageError
from streambank.core.names import PRIMARY, SITES, other_of
from streambank.sites.job_at_site import JobAtSite
from streambank.sites.look import look_at
from streambank.sites.records import SiteRecord, Sites, agree, which_counts

_Job = TypeVar("_Job", bound=JobAtSite)


class Launched(Protocol):
    """What of a launch is asked here; `LaunchSpec` has it."""

    @property
    def job(self) -> str:
        """The job."""

    @property
    def site(self) -> str | None:
        """At which of its sites; None for a job that has only one."""

    @property
    def other_control(self) -> str | None:
        """The control location of the other site."""


@dataclass(frozen=True, slots=True)
class SiteStanding:
    """How a job stands at a site where it may start.

    Attributes:
        site: The site; None for a job that has only one.
    """

    site: str | None = None
    other_control: str | None = None
    warnings: tuple[str, ...] = ()


def check_site(job: JobAtSite, control: JobControl) -> SiteStanding:
    """Make sure that a job may start at its site, by all records that answer.

    Raises:
        RefusedError: The other site is the active one (code `failed-over`), a fail-over is under way
            (`failing-over`), the sites do not agree (`sites-disagree`), or by the other site this one is
            active, and it knows of no generation (`site-empty`).
        ConflictError: The other site could not be fenced, and its driver still runs (`other-site-runs`).
    """
    return _check(job, control, starts=True)


def check_own_site(job: JobAtSite, control: JobControl) -> None:
    """The same by the records of the site alone, where nothing is launched.

    Raises:
        RefusedError: See `check_site`.
    """
    counts = Sites(control).newest()
    if job.other_site is None:
        _refuse_undeclared(job.name, counts)
    else:
        refuse_inactive(job.name, job.site, counts)


def check_active(job: JobAtSite, control: JobControl) -> tuple[str, ...]:
    """Make sure that a job may be restored, or its checkpoint changed, at its site; what cannot be excluded.

    Raises:
        RefusedError: See `check_site`; a site without generations is none.
    """
    return _check(job, control, starts=False).warnings


def _check(job: JobAtSite, control: JobControl, *, starts: bool) -> SiteStanding:
    other, own = job.other_site, Sites(control)
    if other is None:
        _refuse_undeclared(job.name, own.newest())
        return SiteStanding()
    warnings: tuple[str, ...] = ()
    empty: RefusedError | None = None
    there: JobControl | None = None
    try:
        silent = look_at([other], patient=True)[other.site].silent
        if silent is not None:
            raise silent
        there = other.records()
        empty = _empty_site(job, control, Sites(there).newest()) if starts else None
        counts: SiteRecord | None = None if empty else agree(own, Sites(there), job.name)
        place = records_root(there)
    except StorageError as error:
        place = other.control or beside(other.repository) or f"{other.repository}/{INSIDE}"  # as declared
        counts, there = own.newest(), None
        warnings = (
            f"The {other.site} does not answer ({error.message.rstrip('.')}). By the records of the "
            f"{job.site} it is not the active site; that a fail-over to it has been made since, and that "
            "its driver runs, cannot be excluded.",
        )
    if empty is not None:
        raise empty
    refuse_inactive(job.name, job.site, counts)
    if starts and there is not None and counts is not None and counts.unfenced:
        _check_fenced(job, other.site, there)
    return SiteStanding(job.site, place, warnings)


def _check_fenced(job: JobAtSite, site: str, there: JobControl) -> None:
    """Make sure that no driver runs at the site that could not be fenced, now that it answers.

    Raises:
        ConflictError: One does (code `other-site-runs`): it ends by itself, having learnt of the fail-over.
    """
    try:
        view = there.lease.settle()
    except StorageError:
        return  # it does not answer any more
    if view is not None and not view.free:
        raise ConflictError(
            f"Job {job.name} cannot start at the {job.site} yet: its driver at the {site}, which was not "
            "fenced at the fail-over, has not ended.",
            code="other-site-runs",
            hint="It ends by itself when it sees the records. To end it now: "
            f"`streambank failover {job.name} --fence`.",
        )


def _refuse_undeclared(job: str, counts: SiteRecord | None) -> None:
    """Make sure that a job without a standby did not fail over while it had one.

    Raises:
        RefusedError: It did, or began to (codes `failed-over`, `failing-over`).
    """
    if counts is None or counts.active == PRIMARY:
        return
    raise RefusedError(
        f"Job {job} cannot start: {counts.describe()}, and the declaration names no standby.",
        code="failed-over" if counts.active else "failing-over",
        hint=f"Declare [jobs.{job}.standby] again, and fail over to the {PRIMARY} before you remove it.",
    )


def _empty_site(job: JobAtSite, control: JobControl, counts: SiteRecord | None) -> RefusedError | None:
    """Why a site must not start although it is the active one: what it went on in is not there.

    A fail-over leaves a generation of each query behind. Without any, the site's disk is not mounted, or its
    declared places are others than then: a start would begin from nothing.
    """
    if counts is None or counts.number == 1 or counts.active != job.site:
        return None
    if counts.was == job.site and Sites(control).newest() is not None:
        return None  # a fail-over was given up, before the first start
    if any(control.generation(name) is not None for name in job.queries):
        return None
    return RefusedError(
        f"By the other site {counts.describe()}, but there is no generation of job {job.name} at "
        f"{control.store.uri}.",
        code="site-empty",
        hint="Mount the disk, or look at the declared locations of the site. If they are lost, restore a "
        "savepoint as the job's next generation.",
    )


def at_active_site(job: _Job, say: Callable[[str], object] = lambda words: None) -> _Job:
    """The job at the site that is the active one, by the sites that answer; the same for one with one site.

    While a fail-over is under way that is the site that was active before.

    Args:
        say: Hears of a site that was not reached.
    """
    if job.other_site is None:
        return job
    looks = look_at((job.at_site(site) for site in SITES), hurried=True).values()
    for one in looks:
        if one.silent is not None:  # the other one has to do
            say(f"The {one.site} of job {job.name} was not reached: {one.silent.message}")
    known = [one.newest for one in looks if one.newest is not None]
    counts = max(known, key=lambda one: one.number, default=None)
    return job.at_site(PRIMARY if counts is None else counts.active or counts.was)


def refuse_inactive(job: str, site: str, counts: SiteRecord | None) -> None:
    """Make sure that a site is the active one, by the record that counts.

    Raises:
        RefusedError: It is not (codes `failed-over`, `failing-over`).
    """
    active = counts.active if counts is not None else PRIMARY
    if active == site:
        return
    if counts is None:
        raise RefusedError(
            f"Job {job} runs at its {PRIMARY}: there was no fail-over to the {site}.",
            code="failed-over",
            hint=f"Fail over first: `streambank failover {job} --to {site}`.",
        )
    if active is None:
        raise RefusedError(
            f"Job {job} must not be started, restored or changed at the {site}: {counts.describe()}, and is "
            "not finished.",
            code="failing-over",
            hint=f"Finish it: `streambank failover {job} --to {counts.site}`. To give it up: "
            f"`streambank failover {job} --to {other_of(counts.site)}`.",
        )
    raise RefusedError(
        f"Job {job} must not be started, restored or changed at the {site}: {counts.describe()}.",
        code="failed-over",
        hint=f"Start it there: `streambank job start {job}@{active}`. To come back: "
        f"`streambank failover {job} --to {site}`.",
    )


def check_launched_site(spec: Launched, control: JobControl) -> None:
    """The same for a driver that has the lease, by the records of its site alone.

    A fail-over may have come between its launch and the lease.

    Raises:
        RefusedError: See `refuse_inactive`.
    """
    if spec.site is not None:
        refuse_inactive(spec.job, spec.site, Sites(control).newest())


@dataclass(frozen=True, slots=True)
class Deposed:
    """Why a running driver must end.

    Attributes:
        why: What the records say, as a sentence without a full stop.
    """

    why: str
    by: Mapping[str, str]


def deposed(spec: Launched, control: JobControl) -> Deposed | None:
    """Why a running driver must end; None where nothing that it can read says so.

    The records of the own site decide first. Then the other one is asked, and each learns what the other
    knows. Where that does not answer, or its records are damaged, those of the own one decide.
    """
    if spec.site is None:
        return None
    own = Sites(control)
    counts = own.newest()
    if spec.other_control is not None and (counts is None or counts.active == spec.site):
        try:
            counts = _learn(own, Sites(JobControl.open(spec.other_control, spec.job)), spec.job)
        except (StorageError, FormatError, IntegrityError):
            pass  # it does not answer, or not in a way that can be trusted: the own records have to do
        except RefusedError as error:
            if error.code != "sites-disagree":
                raise
            return Deposed(error.message.rstrip("."), {})  # never two writers
    return None if counts is None or counts.active == spec.site else Deposed(counts.describe(), counts.by)


def _learn(own: Sites, other: Sites, job: str) -> SiteRecord | None:
    """The record that counts, known to both sites where this process may write.

    A driver has no key to sign records with: what it read counts all the same, and a start, or
    `failover --fence`, writes it.
    """
    try:
        return agree(own, other, job)
    except RefusedError as error:
        if error.code != "signing-key-missing":
            raise
        return which_counts(own, other, job)
