"""What was approved is done, and nothing that loses more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import InputError, NotFoundError, RefusedError, StorageError
from streambank.core.names import PRIMARY, STANDBY
from streambank.core.units import utc_now
from streambank.failover import failover as module
from streambank.failover.approval import Approved
from streambank.failover.failover import failover, plan_failover
from streambank.failover.report import FailoverPlan, FailoverRequest
from streambank.sites.records import SiteRecord, Sites
from tests.support.jobs.declared import BY
from tests.support.jobs.two_sites import TwoSites, two_sites
from tests.support.refuses import refuses

RUN = {"user": "airflow", "dag_id": "orders.failover", "run_id": "manual__1", "task_id": "failover"}


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[TwoSites]:
    with two_sites(tmp_path) as found:
        yield found


def test_an_approval_holds_for_what_was_shown_and_for_nothing_worse(sites: TwoSites) -> None:
    sites.start()
    sites.save()
    sites.until_batch(PRIMARY, sites.batch(PRIMARY) + 1)
    request = FailoverRequest(sites.job, to=STANDBY, by=BY)
    plan = plan_failover(request)
    assert plan.batches_behind is not None and plan.batches_behind > 0 and plan.answers
    approved = Approved.read(json.loads(json.dumps(Approved.of(plan).to_dict())))
    approved.check(plan)
    shown = plan.savepoints["main"]
    approved.check(replace(plan, savepoints={"main": replace(shown, batch=shown.batch + 1)}))
    gone = replace(plan, savepoints={"main": replace(shown, batch=shown.batch - 1)})
    silent = replace(plan, answers=False, answers_why="It burns.")
    for worse in (gone, replace(plan, savepoints={}), silent, replace(plan, number=4)):
        with refuses(RefusedError, "approval-outdated"):
            approved.check(worse)

    def lacking(files: int) -> FailoverPlan:
        sink = {"path": "/out", "missing_files": files}
        return replace(plan, restores={"main": replace(plan.restores["main"], sinks=(sink,))})

    one_lacks = Approved.of(lacking(1))
    one_lacks.check(lacking(1))
    with pytest.raises(RefusedError, match="lacks 2 data files, and the plan showed 1"):
        one_lacks.check(lacking(2))
    before = {name: value for name, value in one_lacks.to_dict().items() if name != "missing"}
    Approved.read(before).check(lacking(2))
    unread = StorageError("The store did not answer.", code="service-busy")
    for unknown in (replace(plan, refusals=(unread,)), replace(plan, without_final=(unread,))):
        with pytest.raises(StorageError, match="did not answer"):
            approved.check(replace(unknown, savepoints={}))
    lost = Approved.of(replace(silent))
    lost.check(silent)
    lost.check(plan)  # the site answers by now, which loses less
    later = replace(silent, committed={"main": lost.newest["main"] + 1})
    with pytest.raises(RefusedError, match="has gone on"):
        lost.check(later)
    batch = lost.newest["main"] + 1
    arrived = replace(
        later,
        savepoints={"main": replace(shown, batch=batch)},
        restores={"main": replace(silent.restores["main"], batch=batch)},
    )
    lost.check(arrived)  # a newer savepoint has come, so nothing is lost

    run = partial(failover, request, launcher=sites.launcher, other_launcher=sites.launcher)
    with refuses(RefusedError, "approval-outdated"):
        run(approved=replace(approved, number=4))
    assert sites.state(PRIMARY) == "running", "nothing was stopped"
    done = run(approved=approved)
    assert (done.site, done.rpo_s) == (STANDBY, 0)


def test_an_approval_binds_what_is_lost_if_the_last_savepoint_fails(
    sites: TwoSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites.start()
    sites.save()
    sites.until_batch(PRIMARY, sites.batch(PRIMARY) + 1)
    request = FailoverRequest(sites.job, to=STANDBY, final_savepoint=False, by=BY)
    plan = plan_failover(request)
    assert plan.saves and not plan.needs_final
    sites.until_batch(PRIMARY, plan.newest["main"] + 2)
    fired = []

    def fails(*_: Any, **__: Any) -> None:
        fired.append(True)
        raise StorageError("The disk is full.", code="disk-full", hint="Free space.")

    monkeypatch.setattr(module, "savepoint_job", fails)
    run = partial(failover, request, launcher=sites.launcher, other_launcher=sites.launcher)
    with pytest.raises(RefusedError, match="has gone on") as refused:
        run(approved=Approved.of(plan))
    assert fired and refused.value.code == "approval-outdated"
    assert sites.newest(PRIMARY) == sites.newest(STANDBY) == (1, "active", PRIMARY), "nothing has begun"
    assert sites.state(PRIMARY) == "stopped"
    exact = Approved.of(plan_failover(request))
    assert run(approved=exact).batches_behind == exact.newest["main"] - exact.batches["main"] > 0


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"site": "standby"},
        {**asdict(Approved(STANDBY, PRIMARY, 2, True, {}, {})), "more": 1},
        {**asdict(Approved(STANDBY, PRIMARY, 2, True, {}, {})), "batches": {"main": "b10"}},
        {**asdict(Approved(STANDBY, PRIMARY, 2, True, {}, {})), "newest": None},
    ],
)
def test_what_is_no_approval_is_refused(data: dict[str, Any]) -> None:
    with refuses(InputError, "bad-option"):
        Approved.read(data)


def test_a_run_that_has_begun_the_fail_over_finishes_it_by_its_approval(sites: TwoSites) -> None:
    record = SiteRecord(2, "failing-over", STANDBY, PRIMARY, False, RUN, "", utc_now())
    for site in (PRIMARY, STANDBY):
        assert Sites(sites.at(site).records()).write(record)
    before = Approved(STANDBY, PRIMARY, 7, True, {}, {})
    with refuses(RefusedError, "approval-outdated"):
        failover(FailoverRequest(sites.job, by={**RUN, "run_id": "manual__2"}), approved=before)
    with pytest.raises(NotFoundError):  # it goes on, and finds no savepoint
        failover(FailoverRequest(sites.job, by=RUN, final_savepoint=False), approved=before)
