"""Fail-over of a signed job: its drivers have no key, and who fails over needs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streambank.core.errors import IntegrityError, RefusedError, StreambankError
from streambank.core.names import PRIMARY, SITES, STANDBY
from streambank.core.signing import VARIABLE, new_key
from streambank.core.units import utc_now
from streambank.failover.failover import plan_failover
from streambank.failover.fence import fence_other
from streambank.failover.report import FailoverRequest
from streambank.sites.records import SiteRecord, Sites
from streambank.sites.standing import at_active_site
from tests.support.jobs.declared import BY, end_drivers
from tests.support.jobs.two_sites import NAME, TwoSites, cut_apart, two_sites
from tests.support.refuses import refuses
from tests.support.waiting import poll


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The signing key of this installation."""
    file = tmp_path / "keys"
    new_key(file)
    monkeypatch.setenv(VARIABLE, str(file))
    return file


@pytest.fixture
def sites(tmp_path: Path, key: Path) -> Iterator[TwoSites]:
    with two_sites(tmp_path) as found:
        yield found


def check_all_signed(sites: TwoSites) -> None:
    """Each record that decides has a signature that verifies, at both sites."""
    for site in SITES:
        control = sites.at(site).records()
        assert control.signer.keys
        for stream in (Sites(control).records, control.desired_records, control.generations().records):
            numbers = [one.number for one in stream.all()]  # which verifies each of them
            names = control.store.names(stream.prefix)
            signed = {name.partition(".")[0] for name in names if name.endswith(".signature")}
            assert numbers and {f"{number:010d}" for number in numbers} <= signed, (site, stream.prefix)


def test_all_that_a_fail_over_writes_is_signed_and_a_driver_without_a_key_runs(sites: TwoSites) -> None:
    sites.start()
    sites.until_batch(PRIMARY, 2)
    report = sites.fail_over()
    assert (report.fenced, report.rpo_s) == (True, 0)
    sites.until_batch(STANDBY, report.savepoints["main"].batch + 1)
    check_all_signed(sites)
    repository = sites.at(STANDBY).open_repository()
    assert repository.load(NAME, report.savepoints["main"].savepoint), "it verifies"


def test_without_the_key_nothing_is_begun(sites: TwoSites, monkeypatch: pytest.MonkeyPatch) -> None:
    sites.start()
    sites.save()
    before = sites.newest(PRIMARY)
    monkeypatch.delenv(VARIABLE)
    with refuses(RefusedError, "signing-key-missing"):
        sites.fail_over()
    assert (sites.state(PRIMARY), sites.newest(PRIMARY)) == ("running", before)
    with sites.unreachable(PRIMARY), pytest.raises(StreambankError) as refused_there:
        sites.fail_over(is_down=PRIMARY)
    assert refused_there.value.code == "signing-key-missing"
    assert sites.newest(STANDBY) == before
    assert sites.at(STANDBY).records().generation() is None, "nothing was restored"


def test_a_site_record_without_a_signature_decides_nothing(
    sites: TwoSites, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.delenv(VARIABLE)
        forged = SiteRecord(3, "active", STANDBY, PRIMARY, True, BY, "forged", utc_now())
        assert Sites(sites.at(STANDBY).records()).write(forged)
    for what in (sites.start, sites.fail_over, lambda: at_active_site(sites.job)):
        with refuses(IntegrityError, "not-signed"):
            what()


def test_a_savepoint_at_the_standby_without_a_signature_is_not_gone_on_from(
    sites: TwoSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites.start()
    signed = sites.save()
    sites.until_batch(PRIMARY, sites.batch(PRIMARY) + 2)
    later = sites.save()
    end_drivers(sites.at(PRIMARY).records())
    store = sites.at(STANDBY).open_repository().store
    dropped = [one.path for one in store.list() if later in one.path and one.path.startswith("signatures/")]
    assert dropped
    for one in dropped:
        store.delete(one)
    request = FailoverRequest(sites.job, to=STANDBY, is_down=PRIMARY, by=BY, final_savepoint=False)
    assert plan_failover(request).savepoints["main"].savepoint == signed


@pytest.mark.storm
def test_a_driver_without_a_key_ends_by_what_it_reads_and_a_person_with_one_signs_the_rest(
    tmp_path: Path, key: Path
) -> None:
    """The driver may not record that its job is meant to be stopped; no start is allowed all the same."""
    with cut_apart(tmp_path) as (there, here):
        assert not here.fail_over(is_down=PRIMARY).fenced
        there.join()  # what the driver at the primary sees
        poll(lambda: there.state(PRIMARY) != "running", timeout_s=60)
        event = there.at(PRIMARY).records().last_event("killed")
        assert event is not None and "not the active one" in event["why"]
        desired = there.at(PRIMARY).records().desired()
        assert desired is not None and desired.state == "running", "it has no key to say so"
        with refuses(RefusedError, "failed-over"):
            there.start(PRIMARY)
        here.join()
        counts, _how = fence_other(here.job, by=BY, launcher=here.launcher)
        assert counts is not None and counts.active == STANDBY
        desired = here.at(PRIMARY).records().desired()
        assert desired is not None and desired.state == "stopped"
        check_all_signed(here)
