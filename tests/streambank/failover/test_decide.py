"""What the records of both sites mean for a fail-over, without any driver."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from streambank.control.control import JobControl
from streambank.core.errors import RefusedError
from streambank.core.names import PRIMARY, STANDBY
from streambank.core.units import utc_now
from streambank.declaration.declaration import Job
from streambank.failover.decide import DONE, Known, check_not_rolled_back_there
from streambank.failover.failover import failover
from streambank.failover.report import FailoverRequest
from streambank.sites import look
from streambank.sites.records import SiteRecord, Sites, SiteState
from tests.support.jobs.declared import BY
from tests.support.jobs.two_sites import TwoSites
from tests.support.refuses import refuses

RUN = {"user": "airflow", "dag_id": "orders.failover", "run_id": "manual__1", "task_id": "fail_over"}


@pytest.fixture
def sites(tmp_path: Path) -> TwoSites:
    return TwoSites(tmp_path)


def write(sites: TwoSites, at: str, number: int, site: str, state: SiteState = "active") -> SiteRecord:
    record = SiteRecord(number, state, site, PRIMARY, False, RUN, "", utc_now(), {}, {"main": 0})
    assert Sites(sites.at(at).records()).write(record)
    return record


def known(sites: TwoSites, to: str | None = None, by: dict[str, str] = BY) -> Known:
    return Known(FailoverRequest(sites.job, to=to, by=by))


def test_a_task_that_is_tried_again_does_not_fail_back(sites: TwoSites) -> None:
    for site in (PRIMARY, STANDBY):
        write(sites, site, 3, STANDBY)
    assert known(sites).site == STANDBY, "it has not been proven yet"
    sites.at(STANDBY).records().record_event(DONE, number=3)
    again = known(sites, by=RUN)
    assert (again.site, again.is_active, again.resumes) == (STANDBY, True, True)
    other_run = {**RUN, "run_id": "manual__2"}
    assert known(sites).site == known(sites, by=other_run).site == PRIMARY, "the way back"


def test_a_site_that_was_right_goes_on_in_its_own_checkpoint(sites: TwoSites) -> None:
    write(sites, PRIMARY, 2, PRIMARY)
    write(sites, STANDBY, 2, STANDBY, "failing-over")
    write(sites, STANDBY, 3, STANDBY)
    for site in (PRIMARY, STANDBY):
        found = known(sites, site)
        assert found.disagree
        assert (found.was, found.number, found.restores) == (site, 4, False)


def test_a_fail_over_that_rolled_sinks_back_is_not_given_up(sites: TwoSites) -> None:
    for site in (PRIMARY, STANDBY):
        begun = write(sites, site, 2, STANDBY, "failing-over")
    job, records = sites.at(STANDBY), sites.at(STANDBY).records()
    check_not_rolled_back_there(job, records, begun)
    records.record_event("sink-rolled-back", query="main", savepoint="b000057-1", by=BY, sink={})
    check_not_rolled_back_there(job, records, begun)  # by an earlier restore
    generations = records.generations()
    first = generations.ensure_first(job.checkpoint, by=BY)
    restored = replace(first, number=2, location=f"{first.location}.g0002", from_savepoint="b000057-1")
    with records.operation("restore", by=BY, any_site=True) as operation:
        generations.switch(restored, operation=operation)
    with refuses(RefusedError, "sinks-taken-back", hint="--to standby"):
        failover(
            FailoverRequest(sites.job, to=PRIMARY, by=BY),
            launcher=sites.launcher,
            other_launcher=sites.launcher,
        )
    assert sites.newest(PRIMARY) == (2, "failing-over", STANDBY), "nothing was recorded"


def test_a_site_that_is_said_to_be_down_and_is_slow_is_fenced(
    sites: TwoSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    for site in (PRIMARY, STANDBY):
        write(sites, site, 1, PRIMARY)
    usual, asked = Job.records, list[str]()

    def slow_at_first(job: Job) -> JobControl:
        asked.append(job.site)
        if asked.count(PRIMARY) == 1 and job.site == PRIMARY:
            time.sleep(1)
        return usual(job)

    monkeypatch.setattr(look, "ANSWER_S", 0.2)
    monkeypatch.setattr(Job, "records", slow_at_first)
    found = Known(FailoverRequest(sites.job, to=STANDBY, is_down=PRIMARY, by=BY))
    assert asked.count(PRIMARY) > 1 and not found.silent, "it is not taken for dead"
