"""The verb `fork`."""

from __future__ import annotations

from pathlib import Path

from streambank.core.names import PRIMARY, SITES, STANDBY
from streambank.core.units import utc_now
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.sites.records import SiteRecord, Sites
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.cli import succeed
from tests.support.jobs.declared import BY
from tests.support.jobs.two_sites import NAME, TwoSites


def test_the_job_at_its_active_site_is_copied_where_no_site_is_named(tmp_path: Path) -> None:
    """After a fail-over the primary has old savepoints, too."""
    sites = TwoSites(tmp_path)
    text = sites.jobs.read_text()
    sites.jobs.write_text(f'{text}[jobs.{NAME}.copies.staging]\ncheckpoint = "staging/ck"\n')
    for site, batches in zip(SITES, (2, 5), strict=True):
        job = sites.at(site)
        LiveCheckpoint(open_store(job.checkpoint), query_id="q").run(batches)
        repository = Repository.open(open_store(job.repository), create=True)
        take(TakeRequest(open_store(job.checkpoint), repository, NAME))
        job.records().generations().ensure_first(job.checkpoint, by=BY)

    def copied(job: str) -> tuple[str, int]:
        planned = succeed("fork", job, "staging", "--jobs", sites.jobs, "--dry-run", "--json").document
        (query,) = planned["queries"]
        return query["repository"], query["batch"]

    primary, standby = (sites.at(site).repository for site in SITES)
    assert copied(NAME) == (primary, 1)
    for site in SITES:
        record = SiteRecord(2, "active", STANDBY, PRIMARY, False, BY, "", utc_now())
        Sites(sites.at(site).records()).write(record)
    assert copied(NAME) == (standby, 4)
    assert copied(f"{NAME}@{PRIMARY}") == (primary, 1)
