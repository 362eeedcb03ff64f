"""Who keeps a job with two sites running: its number counts at the site where it began, and at no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streambank.control.watch import WatcherState, WatchView
from streambank.core.names import PRIMARY, STANDBY
from streambank.core.units import utc_now
from streambank.sites.records import SiteRecord, Sites
from streambank_airflow.hooks.streambank import StreambankHook
from streambank_airflow.triggers.job import JobEndTrigger
from tests.support.jobs.declared import BY
from tests.support.jobs.two_sites import NAME, TwoSites, two_sites

pytestmark = pytest.mark.airflow


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[TwoSites]:
    with two_sites(tmp_path) as found:
        yield found


def watched_at(sites: TwoSites, site: str) -> WatchView | None:
    return sites.at(site).records().watches.view()


def test_a_watcher_of_the_site_before_a_fail_over_does_not_end_the_one_after_it(sites: TwoSites) -> None:
    hook = StreambankHook(jobs_file=str(sites.jobs))
    before = hook.health.begin_watch(NAME, by={**BY, "run_id": "before"})
    record = SiteRecord(3, "active", STANDBY, PRIMARY, False, BY, "", utc_now())
    assert Sites(sites.at(STANDBY).records()).write(record)
    after = hook.health.begin_watch(NAME, by={**BY, "run_id": "after"})
    assert [(one.number, site) for one, site in (before, after)] == [(1, PRIMARY), (1, STANDBY)], (
        "each site counts for itself"
    )

    assert hook.health.watch_on(NAME, *before, next_s=60.0, doing="starting") == WatcherState()
    hook.health.end_watch(NAME, *before, "stopped", "failover")
    here, there = watched_at(sites, PRIMARY), watched_at(sites, STANDBY)
    assert here is not None and there is not None
    assert (here.by["run_id"], here.end["how"], here.doing) == ("before", "stopped", "starting")
    assert (there.by["run_id"], there.end, there.doing) == ("after", {}, "watching")
    trigger = JobEndTrigger(
        job=NAME,
        jobs_file=str(sites.jobs),
        watch=before[0].number,
        watch_id=before[0].identity,
        site=before[1],
    )
    again = JobEndTrigger(**trigger.serialize()[1])
    watcher = again.open_watcher(hook)
    assert watcher.job.site == PRIMARY, "another triggerer goes on with it"
    assert watcher.signs is not None and watcher.signs.watcher == before[0]


def test_a_watcher_from_before_the_standby_was_declared_is_one_of_the_primary(sites: TwoSites) -> None:
    declared = sites.jobs.read_text(encoding="utf-8")
    alone = declared.partition("[jobs.orders.standby]")[0]
    sites.jobs.write_text(alone, encoding="utf-8")
    begun = StreambankHook(jobs_file=str(sites.jobs)).health.begin_watch(NAME, by=BY)
    assert (begun[0].number, begun[1]) == (1, PRIMARY)
    sites.jobs.write_text(declared, encoding="utf-8")
    record = SiteRecord(3, "active", STANDBY, PRIMARY, False, BY, "", utc_now())
    assert Sites(sites.at(STANDBY).records()).write(record)
    hook = StreambankHook(jobs_file=str(sites.jobs))
    assert (hook.declared.job(NAME).site, hook.declared.job(NAME, begun[1]).site) == (STANDBY, PRIMARY)

    sites.jobs.write_text(alone, encoding="utf-8")  # and is taken out again
    hook = StreambankHook(jobs_file=str(sites.jobs))
    assert hook.watchers.job(NAME, PRIMARY).job == hook.declared.job(NAME)
    hook.health.end_watch(NAME, *begun, "stopped")
