"""Drivers that YARN runs, and drivers here whose executors it runs: all that there is, on a real cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.jobs.lifecycle import end_all, live_through_everything
from tests.support.jobs.lines_job import lines_job
from tests.support.spark.yarn_cluster import Yarn, running_yarn
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.storm, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    with running_yarn(tmp_path_factory.mktemp("yarn")) as found:
        yield found


@pytest.mark.parametrize("deploy_mode", ["cluster", "client"])
def test_a_job_lives_through_everything(
    tmp_path: Path, yarn: Yarn, monkeypatch: pytest.MonkeyPatch, deploy_mode: str
) -> None:
    for name, value in yarn.environment.items():
        monkeypatch.setenv(name, value)
    launch = f'master = "yarn"\nlaunch = {{deploy_mode = "{deploy_mode}", queue = "default"}}'
    lines = lines_job(tmp_path, launch, yarn.conf)
    before = {one["id"] for one in yarn.apps()}
    try:
        started = live_through_everything(lines, submitted=deploy_mode == "cluster")
        if started.submission is not None:
            assert started.submission.startswith("application_")
            assert started.tracking and "application_" in started.tracking
            assert {started.submission} < {one["id"] for one in yarn.apps()} - before
        wait_for("nothing runs", lambda: not [one for one in yarn.apps() if one["state"] == "RUNNING"])
        applications = [one for one in yarn.apps() if one["id"] not in before]
        assert 3 <= len(applications) <= 4, "one for each epoch, and the one that did not come up"
    finally:
        end_all(lines)
