"""Findings on a job with two sites: a fail-over that is not finished, or a site that was not fenced."""

from __future__ import annotations

from collections.abc import Iterator

from streambank.core.finding import Finding
from streambank.job.status import SiteStatus


def check_sites(job: str, site: SiteStatus | None) -> Iterator[Finding]:
    """What a person has to finish."""
    if site is None:
        return
    if site.active is None:
        yield Finding(
            "failover-unfinished",
            "error",
            "",
            f"Job {job} may run at no site: {site.why}, and is not finished.",
            "Its input waits, and nothing is written.",
            f"Finish it with `streambank failover {job}`, or give it up with --to and the other site.",
        )
    if site.unfenced is not None:
        yield Finding(
            "site-not-fenced",
            "error",
            "",
            f"The {site.unfenced} of job {job} could not be reached at the fail-over, and has not been "
            f"since: {site.why}.",
            "If its driver runs, two drivers write to every sink that both sites share.",
            f"Once it answers: `streambank failover {job} --fence`. If it is gone for good, take it off the "
            "network, and take its rights to the sinks away.",
        )
