"""Whether a job may run at a site, by the records of both, without any driver."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from streambank.control.control import JobControl
from streambank.control.marker import records_root
from streambank.core.errors import ConflictError, RefusedError
from streambank.core.names import PRIMARY, STANDBY
from streambank.core.signing import VARIABLE
from streambank.core.units import utc_now
from streambank.declaration.declaration import Job
from streambank.driver.spec import LaunchSpec
from streambank.sites import look
from streambank.sites.records import SiteRecord, Sites, SiteState
from streambank.sites.standing import (
    at_active_site,
    check_active,
    check_launched_site,
    check_site,
    deposed,
)
from tests.support.jobs.declared import BY
from tests.support.jobs.two_sites import TwoSites
from tests.support.refuses import refuses


@pytest.fixture
def sites(tmp_path: Path) -> TwoSites:
    return TwoSites(tmp_path)


def write(sites: TwoSites, at: str, number: int, site: str, state: SiteState = "active") -> None:
    record = SiteRecord(number, state, site, PRIMARY, False, {"user": "ann"}, "", utc_now())
    assert Sites(sites.at(at).records()).write(record)


def begin(sites: TwoSites, site: str) -> None:
    """Give the job a generation at a site, as a start or a restore there does."""
    job = sites.at(site)
    job.records().generations().ensure_first(job.checkpoint, by=BY)


def codes(sites: TwoSites) -> dict[str, str]:
    """Why each site may not start the job; empty where it may."""
    found = {}
    for site in (PRIMARY, STANDBY):
        try:
            check_site(sites.at(site), sites.at(site).records())
            found[site] = ""
        except (RefusedError, ConflictError) as error:
            found[site] = error.code
    return found


def spec(sites: TwoSites, site: str) -> LaunchSpec:
    check_site(sites.at(site), sites.at(site).records())
    return spec_at(sites, site)


def spec_at(sites: TwoSites, site: str) -> LaunchSpec:
    """What is launched at a site, whether it may be or not."""
    there = sites.at(site).other_site
    assert there is not None
    where = {"site": site, "other_control": records_root(there.records())}
    return LaunchSpec("orders", "launch-1", "app.py", (), "", {}, "", **where)  # type: ignore[arg-type]  # as given


def test_the_primary_may_start_while_there_was_no_fail_over(sites: TwoSites) -> None:
    assert codes(sites) == {PRIMARY: "", STANDBY: "failed-over"}
    assert at_active_site(sites.job).site == PRIMARY


def test_no_site_may_start_while_a_fail_over_is_under_way(sites: TwoSites) -> None:
    codes(sites)
    write(sites, PRIMARY, 2, STANDBY, "failing-over")
    assert codes(sites) == {PRIMARY: "failing-over", STANDBY: "failing-over"}
    assert at_active_site(sites.job).site == PRIMARY, "that is where it was"
    write(sites, STANDBY, 3, STANDBY)
    begin(sites, STANDBY)
    assert codes(sites) == {PRIMARY: "failed-over", STANDBY: ""}
    assert at_active_site(sites.job).site == at_active_site(sites.at(STANDBY)).site == STANDBY


def test_none_may_start_where_the_sites_do_not_agree(sites: TwoSites) -> None:
    codes(sites)
    write(sites, PRIMARY, 2, PRIMARY)
    write(sites, STANDBY, 2, STANDBY)
    assert codes(sites) == {PRIMARY: "sites-disagree", STANDBY: "sites-disagree"}


def test_a_driver_ends_by_what_either_site_says(sites: TwoSites) -> None:
    launched, records = spec(sites, PRIMARY), sites.at(PRIMARY).records()
    check_launched_site(launched, records)
    assert deposed(launched, records) is None
    write(sites, STANDBY, 3, STANDBY)
    check_launched_site(launched, records)  # its own site does not know yet
    found = deposed(launched, records)
    assert found is not None and "the standby is the active site" in found.why
    with pytest.raises(RefusedError, match=r"the standby is the active site"):
        check_launched_site(launched, records)
    with sites.unreachable(STANDBY):
        assert deposed(launched, records) is not None, "its own site knows it now"


def test_a_driver_ends_by_its_own_record_though_the_other_site_is_damaged(sites: TwoSites) -> None:
    launched, records = spec(sites, PRIMARY), sites.at(PRIMARY).records()
    damaged = Sites(sites.at(STANDBY).records()).records
    damaged.store.write(damaged.key(2), b"not a record")
    assert deposed(launched, records) is None, "what cannot be read does not end a driver"
    write(sites, PRIMARY, 3, STANDBY)
    found = deposed(launched, records)
    assert found is not None and "the standby is the active site" in found.why


def test_a_driver_without_the_key_is_not_ended_by_what_it_may_not_write(
    sites: TwoSites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("ab" * 32, encoding="ascii")
    keys.chmod(0o600)

    def signed(site: str) -> JobControl:
        with monkeypatch.context() as patch:
            patch.setenv(VARIABLE, str(keys))
            return JobControl(sites.at(site).records().store, "orders")

    for site in (PRIMARY, STANDBY):
        assert Sites(signed(site)).write(SiteRecord(1, "active", PRIMARY, PRIMARY, False, {}, "", utc_now()))
    launched, records = spec_at(sites, PRIMARY), sites.at(PRIMARY).records()
    assert deposed(launched, records) is None
    again = SiteRecord(3, "active", PRIMARY, PRIMARY, False, {}, "", utc_now())
    assert Sites(signed(STANDBY)).write(again)
    with refuses(RefusedError, "signing-key-missing"):
        Sites(records).write(again)
    assert deposed(launched, records) is None, "it is the active site, though it may not write that"
    assert Sites(signed(STANDBY)).write(replace(again, number=5, site=STANDBY))
    assert deposed(launched, records) is not None


def test_two_decisions_are_seen_though_one_site_went_on_further(sites: TwoSites) -> None:
    codes(sites)
    write(sites, PRIMARY, 2, PRIMARY)
    write(sites, STANDBY, 2, STANDBY, "failing-over")
    write(sites, STANDBY, 3, STANDBY)
    assert codes(sites) == {PRIMARY: "sites-disagree", STANDBY: "sites-disagree"}
    write(sites, PRIMARY, 4, PRIMARY)
    write(sites, STANDBY, 4, PRIMARY)
    assert codes(sites) == {PRIMARY: "", STANDBY: "failed-over"}, "a person decided, for both"


def test_an_active_site_without_any_generation_does_not_begin_from_nothing(sites: TwoSites) -> None:
    write(sites, PRIMARY, 3, STANDBY)
    job = sites.at(STANDBY)
    for _ in range(2):
        assert codes(sites)[STANDBY] == "site-empty"
    assert Sites(job.records()).newest() is None, "the empty place learns nothing"
    job.records().record_event("anything")
    check_active(job, job.records())  # a restore may be what helps
    assert codes(sites)[STANDBY] == "site-empty"
    begin(sites, STANDBY)
    assert codes(sites)[STANDBY] == ""


def test_a_fail_over_outlives_the_declaration_of_its_standby(sites: TwoSites) -> None:
    codes(sites)
    alone = replace(sites.at(PRIMARY), standby=None)
    check_site(alone, alone.records())
    write(sites, PRIMARY, 2, STANDBY, "failing-over")
    with refuses(RefusedError, "failing-over"):
        check_site(alone, alone.records())
    write(sites, PRIMARY, 3, STANDBY)
    with refuses(RefusedError, "failed-over", hint="standby] again"):
        check_site(alone, alone.records())


def test_a_site_waits_for_the_driver_of_one_that_was_not_fenced(sites: TwoSites) -> None:
    codes(sites)
    begin(sites, STANDBY)
    record = SiteRecord(3, "active", STANDBY, PRIMARY, True, {"user": "ann"}, "", utc_now())
    assert Sites(sites.at(STANDBY).records()).write(record)
    with sites.at(PRIMARY).records().lease.held("run", by=BY):
        assert codes(sites)[STANDBY] == "other-site-runs"
        check_active(sites.at(STANDBY), sites.at(STANDBY).records())
    assert codes(sites)[STANDBY] == ""


@pytest.mark.parametrize("asks", ["operation", "start"])
def test_a_slow_site_that_is_active_lets_the_other_one_do_nothing(
    sites: TwoSites, monkeypatch: pytest.MonkeyPatch, asks: str
) -> None:
    codes(sites)
    write(sites, STANDBY, 3, STANDBY)
    usual, asked = Job.records, list[str]()

    def slow_at_first(job: Job) -> JobControl:
        asked.append(job.site)
        if asked == [STANDBY]:
            time.sleep(1)
        return usual(job)

    primary, control = sites.at(PRIMARY), sites.at(PRIMARY).records()
    with monkeypatch.context() as patch:
        patch.setattr(look, "ANSWER_S", 0.2)
        patch.setattr(Job, "records", slow_at_first)
        with pytest.raises(RefusedError) as refused:
            if asks == "start":
                check_site(primary, control)
            else:
                with control.operation("clean", by=BY):
                    pytest.fail("It was let through.")
    assert refused.value.code == "failed-over" and asked[:2] == [STANDBY, STANDBY]
    assert sites.newest(PRIMARY) == (3, "active", STANDBY), "it has learnt of the fail-over"


def test_an_operation_logs_what_cannot_be_excluded(sites: TwoSites, caplog: pytest.LogCaptureFixture) -> None:
    codes(sites)
    with sites.unreachable(STANDBY), sites.at(PRIMARY).records().operation("clean", by=BY):
        pass
    assert [one.getMessage() for one in caplog.records if "cannot be excluded" in one.getMessage()]


def test_a_driver_runs_on_while_the_other_site_does_not_answer(sites: TwoSites) -> None:
    launched, records = spec(sites, PRIMARY), sites.at(PRIMARY).records()
    with sites.unreachable(STANDBY):
        assert deposed(launched, records) is None


def test_a_job_with_one_site_is_not_asked(tmp_path: Path) -> None:
    sites = TwoSites(tmp_path)
    job = sites.at(STANDBY)
    alone = LaunchSpec("orders", "launch-1", "app.py", (), "", {}, "")
    check_launched_site(alone, job.records())
    assert deposed(alone, job.records()) is None
