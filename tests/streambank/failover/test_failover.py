"""Fail-over and the way back, with drivers without Spark and both sites on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import ConflictError, RefusedError
from streambank.core.names import PRIMARY, STANDBY
from streambank.core.units import utc_now
from streambank.declaration.load import load_jobs
from streambank.failover import failover as module
from streambank.failover.failover import plan_failover
from streambank.failover.fence import fence_other
from streambank.failover.report import FailoverPlan, FailoverRequest
from streambank.job.savepoint import savepoint_job
from streambank.job.start import start_job
from streambank.recovery.report import RestoreReport
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore, restore
from streambank.replicas.replicate import newest_first, replicate_to
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.sinks.file.capture import FileSinkCapture
from streambank.sites.records import SiteRecord, Sites
from streambank.sites.standing import check_site
from streambank.storage import open_store
from tests.support.checkpoint.file_sink import FileSinkWriter
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.declared import BY, end_drivers
from tests.support.jobs.two_sites import TwoSites, cut_apart, two_sites
from tests.support.refuses import refuses
from tests.support.waiting import poll


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[TwoSites]:
    with two_sites(tmp_path) as found:
        yield found


def test_a_planned_fail_over_and_the_way_back_lose_nothing(sites: TwoSites) -> None:
    sites.start()
    sites.until_batch(PRIMARY, 3)
    report = sites.fail_over()
    last = sites.batch(PRIMARY)
    assert (report.site, report.was, report.number) == (STANDBY, PRIMARY, 3)
    assert (report.fenced, report.fence, report.rpo_s, report.batches_behind) == (True, "boundary", 0.0, 0)
    assert report.savepoints["main"].batch == last
    assert report.rto_s is not None
    assert list(report.steps) == ["fence", "save", "begin", "restore", "activate", "start"]
    assert (sites.state(PRIMARY), sites.state(STANDBY)) == ("stopped", "running")
    sites.until_batch(STANDBY, last + 2)
    assert sites.batch(PRIMARY) == last
    assert sites.may_start() == [STANDBY]
    with refuses(RefusedError, "failed-over", hint="orders@standby"):
        sites.start(PRIMARY)

    back = sites.fail_over(PRIMARY)
    assert (back.site, back.was, back.number, back.rpo_s, back.batches_behind) == (
        PRIMARY,
        STANDBY,
        5,
        0.0,
        0,
    )
    assert sites.newest(PRIMARY) == sites.newest(STANDBY) == (5, "active", PRIMARY)
    assert (sites.state(PRIMARY), sites.state(STANDBY)) == ("running", "stopped")
    sites.until_batch(PRIMARY, back.savepoints["main"].batch + 1)


def test_a_site_that_burnt_down_is_left_to_a_persons_word(sites: TwoSites) -> None:
    sites.start()
    savepoint = sites.save()
    end_drivers(sites.at(PRIMARY).records())
    with sites.unreachable(PRIMARY):
        with refuses(RefusedError, "site-not-fenced", hint="--is-down primary"):
            sites.fail_over()
        assert sites.newest(STANDBY) == (1, "active", PRIMARY), "nothing was recorded"
        report = sites.fail_over(is_down=PRIMARY, why="it burns")
        assert (report.fenced, report.fence, report.batches_behind) == (False, None, None)
        assert report.savepoints["main"].savepoint == savepoint
        assert report.rpo_s == report.savepoints["main"].age_s > 0
        assert any("was not fenced" in one for one in report.warnings)
        assert sites.state(STANDBY) == "running"


def test_sites_that_are_cut_off_from_each_other_agree_when_they_answer_again(tmp_path: Path) -> None:
    """Both are alive: the one that was deposed ends by itself, and its start is refused from then on."""
    with cut_apart(tmp_path) as (there, here):
        with refuses(RefusedError, "site-not-fenced"):
            here.fail_over()
        report = here.fail_over(is_down=PRIMARY)
        assert not report.fenced
        assert here.newest(STANDBY) == (3, "active", STANDBY)
        assert there.newest(PRIMARY) == (1, "active", PRIMARY)
        assert (there.state(PRIMARY), here.state(STANDBY)) == ("running", "running")
        assert "cannot be excluded" in check_site(there.at(PRIMARY), there.at(PRIMARY).records()).warnings[0]

        here.join()  # one direction is enough: the driver of the active site tells the other one
        poll(lambda: there.state(PRIMARY) != "running", timeout_s=60)
        assert there.newest(PRIMARY) == (3, "active", STANDBY)
        with refuses(RefusedError, "failed-over"):
            there.start(PRIMARY)
        records = there.at(PRIMARY).records()
        event, desired = records.last_event("killed"), records.desired()
        assert event is not None and "not the active one" in event["why"]
        assert desired is not None and desired.state == "stopped", "nothing brings it back"
        poll(lambda: here.at(STANDBY).records().last_event("site-fenced") is not None)
        assert here.state(STANDBY) == "running"
        counts, how = fence_other(here.job, by=BY, launcher=here.launcher)
        assert counts is not None and how in ("killed", "dead", "none")


def test_what_a_deposed_site_saved_later_is_not_gone_on_from(tmp_path: Path) -> None:
    with cut_apart(tmp_path) as (there, here):
        here.fail_over(is_down=PRIMARY)
        taken_here = savepoint_job(here.at(STANDBY), by=BY).savepoints["main"].savepoint
        last = max(here.batch(STANDBY), there.batch(PRIMARY)) + 3
        there.until_batch(PRIMARY, last)
        there.join()  # the deposed primary saves, and replicates that, before it learns of the fail-over
        late = savepoint_job(there.at(PRIMARY), by=BY).savepoints["main"].savepoint
        end_drivers(here.at(STANDBY).records())
        end_drivers(there.at(PRIMARY).records())
        here.join()
        at_standby = here.at(STANDBY)
        which = [(at_standby.savepoint_name("main"), late)]
        replicate_to(there.at(PRIMARY).open_repository(), open_store, at_standby.repository, which, by=BY)
        records = at_standby.records()
        request = RestoreRequest(
            at_standby.open_repository(),
            "latest-good",
            job="orders",
            generation=records,
            checkpoint=at_standby.checkpoint,
        )
        plan = plan_restore(request)
        assert plan.savepoint == taken_here, late
        assert [one.savepoint for one in plan.skipped] == [late]
        assert "the line that it left" in plan.skipped[0].why


def write_fails(monkeypatch: pytest.MonkeyPatch, number: int) -> list[int]:
    """Let the first record of a number fail; what is returned is not empty when that fault has fired."""
    real = Sites.write
    fired: list[int] = []

    def write(self: Sites, record: SiteRecord) -> bool:
        if record.number == number and not fired:
            fired.append(number)
            raise OSError("The machine stops here.")
        return real(self, record)

    monkeypatch.setattr(Sites, "write", write)
    return fired


def test_a_restore_is_recognized_though_the_clocks_of_the_sites_differ(
    sites: TwoSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites.start()
    fired = write_fails(monkeypatch, 3)
    monkeypatch.setattr(module, "utc_now", lambda: utc_now() + timedelta(hours=1))
    with pytest.raises(OSError, match="stops here"):
        sites.fail_over()
    assert fired
    restored = sites.at(STANDBY).records().generation()
    report = sites.fail_over()
    assert report.resumed
    assert sites.at(STANDBY).records().generation() == restored is not None, "it was not restored twice"


def test_a_fail_over_that_was_overtaken_does_not_restore(
    sites: TwoSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites.start()
    fired = []

    def overtaken(request: RestoreRequest, **options: Any) -> RestoreReport:
        record = SiteRecord(3, "active", STANDBY, PRIMARY, False, BY, "", utc_now())
        fired.append(Sites(sites.at(STANDBY).records()).write(record))
        return restore(request, **options)

    monkeypatch.setattr(module, "restore", overtaken)
    with pytest.raises(ConflictError) as error:
        sites.fail_over()
    assert fired == [True] and error.value.code == "site-moved"
    assert sites.at(STANDBY).records().generation() is None


def test_sites_that_disagree_go_on_where_a_person_says_with_the_data_that_is_there(sites: TwoSites) -> None:
    sites.start()
    sites.save()
    end_drivers(sites.at(PRIMARY).records())
    with sites.unreachable(PRIMARY):
        sites.fail_over(is_down=PRIMARY)
    decided = SiteRecord(2, "active", PRIMARY, PRIMARY, True, BY, "", utc_now())
    assert Sites(sites.at(PRIMARY).records()).write(decided)
    assert sites.may_start() == []
    before = sites.at(STANDBY).records().generation()
    report = sites.fail_over(STANDBY)
    assert (report.site, report.was, report.number, report.savepoints) == (STANDBY, STANDBY, 5, {})
    assert sites.at(STANDBY).records().generation() == before is not None, "no data of the other one"
    assert sites.newest(PRIMARY) == sites.newest(STANDBY) == (5, "active", STANDBY)
    assert (sites.state(PRIMARY), sites.state(STANDBY)) == ("stopped", "running")


def test_what_was_not_fenced_is_fenced_by_the_run_that_reaches_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cut_apart(tmp_path) as (there, here):
        fired = []

        def dies(*_: Any, **__: Any) -> None:
            fired.append(True)
            raise OSError("The machine stops here.")

        with monkeypatch.context() as patch:
            patch.setattr(module, "start_job", dies)
            with pytest.raises(OSError, match="stops here"):
                here.fail_over(is_down=PRIMARY)
        assert fired and there.state(PRIMARY) == "running"
        here.join()
        report = here.fail_over(None)
        assert report.fenced and report.fence is not None
        assert list(report.steps) == ["activate", "fence", "start"], "its driver has ended before the start"
        assert (there.state(PRIMARY), here.state(STANDBY)) == ("stopped", "running")


def test_a_site_that_answers_again_gives_what_it_wrote_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cut_apart(tmp_path) as (there, here):
        fired = write_fails(monkeypatch, 3)
        with pytest.raises(OSError, match="stops here"):
            here.fail_over(is_down=PRIMARY)
        restored = here.at(STANDBY).records().generation()
        assert fired and restored is not None
        there.until_batch(PRIMARY, there.batch(PRIMARY) + 3)
        here.join()
        report = here.fail_over(None)
        assert (report.fenced, report.rpo_s) == (True, 0.0)
        assert report.savepoints["main"].batch == there.batch(PRIMARY)
        again = here.at(STANDBY).records().generation()
        assert again is not None and again.number > restored.number


def test_a_start_that_launches_nothing_does_not_wait_for_the_other_site(
    sites: TwoSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites.start()
    monkeypatch.setattr("streambank.job.start.check_site", lambda *_: pytest.fail("it was asked"))
    assert sites.start().state == "already-running"
    record = SiteRecord(2, "failing-over", STANDBY, PRIMARY, False, BY, "", utc_now())
    assert Sites(sites.at(PRIMARY).records()).write(record)
    with pytest.raises(RefusedError) as refused:
        sites.start()
    assert refused.value.code == "failing-over", "by its own record"


def test_the_standby_never_starts_by_itself(sites: TwoSites) -> None:
    with refuses(RefusedError, "failed-over"):
        sites.start(STANDBY)
    with sites.unreachable(PRIMARY), pytest.raises(RefusedError):
        start_job(sites.at(STANDBY), by=BY, launcher=sites.launcher)
    with sites.unreachable(STANDBY):
        started = sites.start(PRIMARY)
        assert "cannot be excluded" in started.warnings[0]


def test_a_plan_writes_nothing_and_says_what_would_be_lost(sites: TwoSites) -> None:
    sites.start()
    sites.save()
    plan = plan_failover(FailoverRequest(sites.job, by=BY))
    assert (plan.site, plan.was, plan.answers, plan.driver, plan.refusals) == (
        STANDBY,
        PRIMARY,
        True,
        "running",
        (),
    )
    assert plan.rpo_s is not None and plan.rpo_s >= 0
    assert plan.restores["main"].generation == 2
    assert sites.newest(PRIMARY) == sites.newest(STANDBY) == (1, "active", PRIMARY)


def test_a_sink_that_is_named_is_that_of_one_of_several_queries(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("")
    (tmp_path / "jobs.toml").write_text(
        'repository = "p/savepoints"\n[jobs.pair]\napplication = "app.py"\ncheckpoint = "p/ck"\n'
        'queries = ["one", "two"]\n[jobs.pair.replicate]\nto = ["s/savepoints"]\n[jobs.pair.standby]\n'
        'checkpoint = "s/ck"\nrepository = "s/savepoints"\ncontrol = "s/control"\n'
        '[jobs.reports]\napplication = "app.py"\ncheckpoint = "p/ck-reports"\n'
    )
    job = load_jobs(tmp_path / "jobs.toml").job("pair")
    repository = Repository.open(open_store(job.repository), create=True)
    outputs = {}
    for name, place in job.queries.items():
        live, output = LiveCheckpoint(open_store(place)), open_store(tmp_path / f"out-{name}")
        sink = FileSinkWriter(output)
        for batch in range(2):
            live.plan()
            sink.write(batch, [{"batch": batch}])
            live.commit()
        sinks = [FileSinkCapture(output.uri, output)]
        take(TakeRequest(live.store, repository, job.savepoint_name(name), sinks=sinks))
        outputs[name] = output.uri
    replicate_to(repository, open_store, job.replicate.to[0], newest_first(repository), by=BY)

    def planned(**options: Any) -> FailoverPlan:
        return plan_failover(FailoverRequest(job, is_down=PRIMARY, by=BY, **options))

    plan = planned(new_outputs={outputs["one"]: f"{outputs['one']}-new"}, sink_of={outputs["two"]: "accept"})
    assert plan.refusals == ()
    assert [sink["new_path"] for sink in plan.restores["one"].sinks] == [f"{outputs['one']}-new"]
    assert [sink["choice"] for sink in plan.restores["two"].sinks] == ["accept"]
    for wrong in ({"new_outputs": {"/nowhere": "/new"}}, {"sink_of": {"/nowhere": "accept"}}):
        assert [one.code for one in planned(**wrong).refusals] == ["unknown-sink"]
    assert planned(file_sinks={"two": ("/nowhere",)}).refusals[0].code == "not-this-sink"
    live.plan()
    sink.write(2, [{"batch": 2}])  # of query two
    reading = {"query_id": "q", "sources": [f"FileStreamSource[{outputs['two']}]"]}
    load_jobs(tmp_path / "jobs.toml").job("reports").records().record_query(None, reading)
    warned = planned(sink="rollback").restores["two"].warnings
    assert any("Query reports reads" in one for one in warned)
