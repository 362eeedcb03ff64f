"""Fencing a site whose driver cannot be reached but by its records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import RefusedError, StorageError
from streambank.core.names import PRIMARY, STANDBY
from streambank.failover import fence
from tests.support.jobs.declared import fake_launcher
from tests.support.jobs.two_sites import TwoSites, two_sites


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[TwoSites]:
    with two_sites(tmp_path) as found:
        yield found


def test_a_driver_that_no_launcher_reaches_ends_by_its_lease(
    sites: TwoSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites.start()
    fired = []

    def unreachable(*_: Any, **__: Any) -> None:
        fired.append(True)
        raise StorageError("The cluster does not answer.", code="cluster-unreachable", hint="Wait.")

    monkeypatch.setattr(fence, "stop_job", unreachable)
    report = sites.fail_over()
    assert fired, "the fault has fired"
    assert (report.fence, report.fenced, report.rpo_s) == (fence.BROKEN, True, 0.0)
    assert any("its lease was ended" in one for one in report.warnings)
    records = sites.at(PRIMARY).records()
    assert fake_launcher(sites.folder).find(records) == [], "it has ended itself"
    desired = records.desired()
    assert desired is not None and desired.state == "stopped"
    assert sites.state(STANDBY) == "running"


def test_a_site_that_gives_no_last_savepoint_is_a_refusal_and_may_start_again(
    sites: TwoSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites.start()
    sites.save()
    from streambank.failover import failover as module

    def fails(*_: Any, **__: Any) -> None:
        raise StorageError("The disk is full.", code="disk-full", hint="Make room.")

    monkeypatch.setattr(module, "savepoint_job", fails)
    with pytest.raises(RefusedError) as refused:
        sites.fail_over()
    assert refused.value.code == "final-savepoint-failed" and "The disk is full." in refused.value.message
    assert sites.newest(PRIMARY) == sites.newest(STANDBY) == (1, "active", PRIMARY)
    assert sites.may_start() == [PRIMARY]

    report = sites.fail_over(final_savepoint=False)
    assert (report.site, report.fenced) == (STANDBY, True)
    assert report.batches_behind is not None and report.rpo_s is not None and report.rpo_s > 0
    assert any("The disk is full." in one for one in report.warnings)
