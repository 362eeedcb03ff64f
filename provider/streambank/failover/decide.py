"""What both sites of a job know, and what follows for a fail-over: to which site, from where."""

from __future__ import annotations

from streambank.control.control import JobControl
from streambank.control.generations import Generation
from streambank.control.processes import is_same_run
from streambank.control.rollbacks import check_not_rolled_back
from streambank.core.errors import InputError, RefusedError, StorageError
from streambank.core.names import PRIMARY, SITES, STANDBY, other_of
from streambank.declaration.declaration import Job
from streambank.failover.report import FailoverRequest
from streambank.procedure.procedure import Procedure, Say, quiet
from streambank.sites.look import SiteAnswer, look_at
from streambank.sites.records import SiteRecord, Sites, which_counts
from streambank.work.executor import DEFAULT_PACE, Pace

DONE = "failed-over"
"""The event that carries the report."""


class Known(Procedure[FailoverRequest]):
    """What both sites know when a fail-over is asked for.

    Attributes:
        known: The newest record of each site that answers.
        newest: The record that counts; None where no site has any.
        disagree: The sites do not agree which that is.
        number: The number of the record that begins the fail-over, or has begun it.

    Raises:
        InputError: The job has no standby, or no such site; or the site is said to be down.
    """

    def __init__(self, request: FailoverRequest, say: Say = quiet, pace: Pace = DEFAULT_PACE) -> None:
        super().__init__(request, say, pace)
        self.jobs: dict[str, Job] = {site: request.job.at_site(site) for site in SITES}
        self.known: dict[str, SiteRecord | None] = {}
        self.sites: dict[str, Sites] = {}
        self.silent: dict[str, StorageError] = {}
        for site, look in look_at(self.jobs.values(), patient=True).items():
            self._reach(site, look)
        self.newest, self.disagree = self._newest()
        self.site = request.to or self._usual_site()
        if self.site not in SITES:
            request.job.at_site(self.site)  # says which sites there are
        self.other = other_of(self.site)
        if request.is_down is not None and request.is_down != self.other:
            raise InputError(
                f"The {request.is_down} is the site that job {request.job.name} is to go on at: it has to "
                "answer.",
                code="no-such-site",
                hint=f"Say that the {self.other} is down, or fail over to the {self.other}.",
            )
        if self.site in self.silent:
            raise self.silent[self.site]
        self.was, self.number, self.resumes = self._where_it_is()
        if self.was == self.other and self.other not in self.silent:
            self._check_not_empty()

    @property
    def is_active(self) -> bool:
        """Whether the site is the active one already, so that only its start may be missing."""
        active = PRIMARY if self.newest is None else self.newest.active
        return active == self.site and not self.disagree

    @property
    def restores(self) -> bool:
        """Whether the site goes on from a savepoint; else from its own checkpoint, which was the last."""
        return not self.is_active and self.was != self.site

    def _check_not_empty(self) -> None:
        """A site that was active has records: one without any is a disk that is not mounted, or lost."""
        records = self.sites[self.other].control
        if not records.store.names():
            self.silent[self.other] = StorageError(
                f"There are no records of job {records.name} at {records.store.uri}.",
                code="site-empty",
                hint="Mount the disk, or look at the declared locations of the site.",
            )

    def _reach(self, site: str, look: SiteAnswer) -> None:
        if look.silent is not None:
            self.silent[site] = look.silent
            return
        try:
            self.sites[site] = Sites(
                self.jobs[site].records()
            )  # with the usual patience: this is for the work
            self.known[site] = look.newest
        except StorageError as error:
            self.silent[site] = error

    def _newest(self) -> tuple[SiteRecord | None, bool]:
        """The record that counts, and whether the sites do not agree which that is."""
        found = [one for one in self.known.values() if one is not None]
        newest = max(found, key=lambda one: one.number, default=None)
        try:
            if not self.silent:
                which_counts(self.sites[PRIMARY], self.sites[STANDBY], self.request.job.name)
        except RefusedError:
            return newest, True
        return newest, False

    def _usual_site(self) -> str:
        """The site of a fail-over that is not finished, or has not been proven yet; else the other one.

        The run of a DAG that asks again means the fail-over that it has made, finished or not: a task that is
        tried again must not fail back.
        """
        newest = self.newest
        if newest is None:
            return STANDBY
        if newest.active is None or is_same_run(newest.by, self.request.by):
            return newest.site
        return newest.site if self._is_unproven(newest) else other_of(newest.site)

    def _is_unproven(self, newest: SiteRecord) -> bool:
        """Whether the site was made the active one, and the report that ends a fail-over is missing."""
        if newest.site in self.silent or newest.number == 1:
            return False
        done = self.sites[newest.site].control.last_event(DONE)
        return done is None or done.get("number") != newest.number

    def _where_it_is(self) -> tuple[str, int, bool]:
        """The site that was active, the number of the record that begins, and whether one has begun."""
        newest = self.newest
        if newest is None:
            return PRIMARY, 2, False  # the sites may meet meanwhile, under number 1
        if self.disagree:
            own = self.known[self.site]
            # Who has the right data by the person's word goes on with it, in the checkpoint that it has.
            mine = own is not None and (own.active or own.was) == self.site
            return self.site if mine else self.other, newest.number + 1, False
        if newest.active is not None:
            mine = newest.site == self.site
            return (newest.was, newest.number, True) if mine else (newest.site, newest.number + 1, False)
        if newest.site == self.site:
            return newest.was, newest.number, True
        return newest.was, newest.number + 1, False  # the one to the other site is given up


def check_not_rolled_back_there(job: Job, control: JobControl, begun: SiteRecord) -> None:
    """Make sure that a fail-over may be given up: that none of its restores has rolled sinks back.

    Args:
        job: The job at the site that the fail-over led to.

    Raises:
        RefusedError: One has, or may have (code `sinks-taken-back`).
    """
    events = [one.data for one in control.events() if one.data.get("kind") == "sink-rolled-back"]
    for name in job.queries:
        current, before = control.generation(name), begun.generations.get(name, 0)
        restored = current is not None and current.number > before
        savepoint = current.from_savepoint if restored and current is not None else None
        of_query = [one for one in events if one.get("query") == name]
        if not (restored and any(one.get("savepoint") == savepoint for one in of_query)):
            try:
                # A restore that was cut off left a note; the first one would have made generation 2.
                known = current or Generation(1, "", None, begun.at, {})
                check_not_rolled_back(control, name, known)
                continue
            except RefusedError:
                pass
        raise RefusedError(
            f"The fail-over of job {job.name} to the {job.site} cannot be given up: its restore of query "
            f"{name} rolled sinks back, or may have, and the checkpoint of the {begun.was} is further: rows "
            "would be lost.",
            code="sinks-taken-back",
            hint=f"Finish it: `streambank failover {job.name} --to {job.site}`. Then fail over to the "
            f"{begun.was}, which restores there.",
        )
