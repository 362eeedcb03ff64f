"""A job with a primary and a standby, each in a separate folder, run by drivers without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streambank.core.errors import StreambankError
from streambank.core.names import PRIMARY, SITES, STANDBY
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.failover.failover import failover
from streambank.failover.report import FailoverReport, FailoverRequest
from streambank.job.savepoint import savepoint_job
from streambank.job.start import StartResult, start_job
from streambank.job.status import job_status
from streambank.job.stop import last_batches
from streambank.replicas.replicate import newest_first, replicate_to
from streambank.sites.records import Sites
from streambank.sites.standing import check_site
from streambank.storage import open_store
from tests.support.jobs.declared import BY, end_drivers, fake_launcher
from tests.support.waiting import poll

NAME = "orders"


class TwoSites:
    """The job, and what a person does with it.

    Args:
        folder: Where both sites are: `primary` and `standby`.
        far: The site that is reached by another path, over a network that can be cut.
    """

    def __init__(self, folder: Path, more: str = "", far: str = "") -> None:
        self.folder = folder
        self.launcher = fake_launcher(folder)
        self.jobs = folder / f"streaming_jobs{far}.toml"
        self.network = folder / f"network-to-{far}"
        places = {site: f"{self.network.name}/{site}" if site == far else site for site in SITES}
        if far:
            self.join()
        primary, standby = places[PRIMARY], places[STANDBY]
        (folder / "app.py").write_text("", encoding="utf-8")
        self.jobs.write_text(
            f"""
repository = "{primary}/savepoints"

[jobs.{NAME}]
application = "app.py"
args = ["--period-s", "0.05"]
checkpoint = "{primary}/checkpoint"
control = "{primary}/control"
[jobs.{NAME}.lease]
beat = "100ms"
ttl = "2s"
[jobs.{NAME}.replicate]
to = ["{standby}/savepoints"]
[jobs.{NAME}.standby]
checkpoint = "{standby}/checkpoint"
repository = "{standby}/savepoints"
control = "{standby}/control"
{more}
""",
            encoding="utf-8",
        )
        self.job = load_jobs(self.jobs).job(NAME)

    def at(self, site: str) -> Job:
        return self.job.at_site(site)

    def start(self, site: str = PRIMARY) -> StartResult:
        """Start it there, and wait for its first batch."""
        return start_job(self.at(site), by=BY, launcher=self.launcher)

    def save(self, site: str = PRIMARY) -> str:
        """Take a savepoint there, and bring it to the other site."""
        job = self.at(site)
        taken = savepoint_job(job, by=BY).savepoints["main"]
        which = newest_first(job.open_repository(), NAME)
        report = replicate_to(job.open_repository(), open_store, job.replicate.to[0], which, by=BY)
        assert report.ok, report
        return taken.savepoint

    def fail_over(self, to: str | None = STANDBY, **options: Any) -> FailoverReport:
        request = FailoverRequest(self.job, to=to, by=BY, **options)
        return failover(request, launcher=self.launcher, other_launcher=self.launcher)

    def state(self, site: str) -> str:
        return job_status(self.at(site), launcher=self.launcher).state

    def batch(self, site: str) -> int:
        """The newest committed batch there; -1 before the first."""
        job = self.at(site)
        committed = last_batches(job.records(), job)["main"].committed
        return -1 if committed is None else committed

    def until_batch(self, site: str, batch: int) -> None:
        poll(lambda: self.batch(site) >= batch)

    def may_start(self) -> list[str]:
        """The sites at which the job may start, by all records that answer."""
        found = []
        for site in SITES:
            try:
                check_site(self.at(site), self.at(site).records())
            except StreambankError:
                continue
            found.append(site)
        return found

    def newest(self, site: str) -> tuple[int, str, str] | None:
        """What a site knows: number, state and site."""
        record = Sites(self.at(site).records()).newest()
        return None if record is None else (record.number, record.state, record.site)

    def join(self) -> None:
        self.cut()
        self.network.unlink()
        self.network.symlink_to(self.folder)

    def cut(self) -> None:
        self.network.unlink(missing_ok=True)
        self.network.write_text("not a folder", encoding="utf-8")

    @contextmanager
    def unreachable(self, site: str) -> Iterator[None]:
        """Let the storage of a site answer nothing: its folder is a file for as long."""
        place, aside = self.folder / site, self.folder / f".{site}"
        if place.exists():
            place.rename(aside)
        place.write_text("not a folder", encoding="utf-8")
        try:
            yield
        finally:
            place.unlink()
            if aside.exists():
                aside.rename(place)


@contextmanager
def two_sites(folder: Path, more: str = "") -> Iterator[TwoSites]:
    """Such a job; whatever runs of it is ended."""
    sites = TwoSites(folder, more)
    try:
        yield sites
    finally:
        for site in SITES:
            end_drivers(sites.at(site).records())


@contextmanager
def cut_apart(folder: Path) -> Iterator[tuple[TwoSites, TwoSites]]:
    """Such a job that runs, as each side sees it since the line between them was cut: the primary's, ours."""
    with two_sites(folder):
        there, here = TwoSites(folder, far=STANDBY), TwoSites(folder, far=PRIMARY)
        there.start()
        there.save()
        there.cut()
        here.cut()
        yield there, here
