"""A look at the sites of a job that does not wait long for one that is dead.

A site that does not answer in time is not known to be free, nor to be stopped: it counts as one that cannot
be reached, and each operation decides what that means. The sites are asked at the same time.

A site that is slow may be alive. Who is about to change something asks it once more, with patience.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from streambank.core.errors import StorageError
from streambank.core.patience import Waited
from streambank.sites.job_at_site import JobAtSite
from streambank.sites.records import SiteRecord, Sites
from streambank.storage import answering_within

REQUEST_S = 8.0
"""How long one request to S3 may take, a second try included; for other storage there is no such limit."""
ANSWER_S = 10.0
"""How long a site may take to answer, whatever it is stored on."""
PATIENT_S = 60.0
"""How long a slow site may take to answer who is about to change something, with the usual patience of S3."""
SILENT_S = 30.0
"""How long a site that let somebody wait is not asked again, where the answer decides nothing."""
_SLOW_S = 1.0

_silent: dict[tuple[str | None, ...], tuple[float, StorageError]] = {}


@dataclass(frozen=True, slots=True)
class SiteAnswer:
    """What one site has answered.

    Attributes:
        newest: Its newest record; None where it has none, or does not answer.
        silent: Why it does not answer; None where it does.
        late: It was reached, or may have been, and gave no answer in time: it may be alive.
    """

    site: str
    newest: SiteRecord | None = None
    silent: StorageError | None = None
    late: bool = False


def look_at(
    jobs: Iterable[JobAtSite], *, hurried: bool = False, patient: bool = False
) -> dict[str, SiteAnswer]:
    """The newest record of each site, or why it does not answer; each is asked at the same time.

    Args:
        hurried: A site that did not answer within the last `SILENT_S` seconds is not asked again, unless that
            was known at once: for looks that come one after the other and decide nothing.
        patient: A site that was late is asked once more, for `PATIENT_S` seconds: for who is about to change
            something.
    """
    asked = {job.site: job for job in jobs}
    looks = _ask([_Looking(job, ANSWER_S, REQUEST_S) for job in asked.values()], hurried)
    if patient:
        late = [asked[site] for site, look in looks.items() if look.late]
        looks |= _ask([_Looking(job, PATIENT_S) for job in late], hurried=False)
    return looks


def _ask(looking: Sequence[_Looking], hurried: bool) -> dict[str, SiteAnswer]:
    for one in looking:
        one.start(hurried)
    return {one.job.site: one.result() for one in looking}


class _Looking:
    """One look, which is not waited for where it hangs.

    Args:
        request_s: How long one request to S3 may take; the usual times where left out.
    """

    def __init__(self, job: JobAtSite, answer_s: float, request_s: float | None = None) -> None:
        self.job = job
        self.answer_s, self.request_s = answer_s, request_s
        self.asked: Waited[SiteAnswer] | None = None
        self.silent: StorageError | None = None  # of one that was silent just now, and is not asked

    def start(self, hurried: bool) -> None:
        until, silent = _silent.get(self._place, (0.0, None)) if hurried else (0.0, None)
        if time.monotonic() < until:
            self.silent = silent
        else:
            self.asked = Waited(self._look, f"streambank-look-{self.job.site}")

    @property
    def _place(self) -> tuple[str | None, ...]:
        return self.job.name, self.job.site, self.job.control, self.job.repository

    def _look(self) -> SiteAnswer:
        try:
            with nullcontext() if self.request_s is None else answering_within(self.request_s):
                return SiteAnswer(self.job.site, Sites(self.job.records()).newest())
        except StorageError as error:
            return SiteAnswer(self.job.site, silent=error, late=_is_late(error))

    def result(self) -> SiteAnswer:
        if self.asked is None:
            return SiteAnswer(self.job.site, silent=self.silent)
        look = SiteAnswer(self.job.site, silent=self._late(), late=True)
        if self.asked.ends_within(self.answer_s):
            look = self.asked.result()
        now = time.monotonic()
        if look.silent is None:
            _silent.pop(self._place, None)
        elif now - self.asked.began_s > _SLOW_S:
            _silent[self._place] = (now + SILENT_S, look.silent)
        return look

    def _late(self) -> StorageError:
        return StorageError(
            f"The records of job {self.job.name} at the {self.job.site} gave no answer within "
            f"{self.answer_s:.0f} s.",
            code="not-reachable",
            hint="Look at the storage of that site, and at the network.",
        )


def _is_late(error: StorageError) -> bool:
    """Whether a service was reached that did not answer in time, or that is busy."""
    names = {type(one).__name__ for one in (error.__cause__, error.__context__) if one is not None}
    return error.code == "service-busy" or bool(names & {"ReadTimeoutError", "TimeoutError"})
