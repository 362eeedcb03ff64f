"""A driver in a cluster that comes up when nobody wants it any more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streambank.errors import ConflictError, InputError, RefusedError, StorageError, StreambankError
from streambank.job.claims import Claim
from streambank.job.control import JobControl
from streambank.job.launch import LaunchSpec
from streambank.job.prepare import prepare_launch
from streambank.job.processes import this_process
from streambank.job.requests import STOP
from streambank_spark.wanted import check_wanted, exit_code
from tests.support.jobs import BY, declare

LAUNCH = {"deploy_mode": "cluster", "on": "standalone", "supervised": True}


def coming_up(folder: Path) -> tuple[LaunchSpec, JobControl]:
    job = declare(folder)
    control = job.records()
    control.set_desired("running", by=BY)
    return replace(prepare_launch(job, control, by=BY), **LAUNCH), control  # type: ignore[arg-type]  # as named


def hold(spec: LaunchSpec, control: JobControl) -> Claim:
    return control.lease.acquire([this_process("python")], details={"launch_id": spec.launch_id})


def test_a_driver_that_is_wanted_goes_on(tmp_path: Path) -> None:
    spec, control = coming_up(tmp_path)
    check_wanted(spec, control, hold(spec, control))


def test_one_that_was_stopped_before_it_had_the_lease_ends(tmp_path: Path) -> None:
    spec, control = coming_up(tmp_path)
    control.set_desired("stopped", by=BY)
    claim = hold(spec, control)
    with pytest.raises(RefusedError) as caught:
        check_wanted(spec, control, claim)
    assert caught.value.code == "not-wanted"
    check_wanted(replace(spec, deploy_mode="client"), control, claim)


def test_one_that_comes_back_after_it_was_asked_to_stop_ends(tmp_path: Path) -> None:
    spec, control = coming_up(tmp_path)
    first = hold(spec, control)
    control.requests.post(STOP, epoch=first.epoch, by=BY, why="a restart")
    first.release("killed")
    with pytest.raises(RefusedError) as caught:
        check_wanted(spec, control, again := hold(spec, control))
    assert (caught.value.code, again.epoch) == ("not-wanted", 2)
    again.release()
    other = replace(spec, launch_id="launch-other")
    check_wanted(other, control, hold(other, control))


@pytest.mark.parametrize(
    ("error", "supervised"),
    [
        (InputError("x", hint="x"), 0),
        (RefusedError("x", code="not-wanted", hint="x"), 0),
        (ConflictError("x", code="stale-launch", hint="x"), 0),
        (ConflictError("x", hint="x"), 6),
        (StorageError("x", hint="x"), 7),
    ],
)
def test_a_supervisor_tries_again_only_where_that_helps(
    tmp_path: Path, error: StreambankError, supervised: int
) -> None:
    spec, control = coming_up(tmp_path)
    assert exit_code(spec, error) == supervised
    event = control.last_event("driver-refused", launch_id=spec.launch_id)
    assert event is not None and (event["code"], event["exit_code"]) == (error.code, error.exit_code)
    assert exit_code(replace(spec, supervised=False), error) == error.exit_code


def test_outside_a_cluster_nothing_is_left_behind(tmp_path: Path) -> None:
    spec, control = coming_up(tmp_path)
    assert exit_code(replace(spec, deploy_mode="client"), RefusedError("x", hint="x")) == 8
    assert control.last_event("driver-refused") is None


@pytest.mark.parametrize(
    ("purpose", "mine", "expected"), [("run", True, 8), ("run", False, 0), ("restore", False, 8)]
)
def test_it_waits_for_itself_and_for_operations_but_not_for_another_driver(
    tmp_path: Path, purpose: str, mine: bool, expected: int
) -> None:
    spec, control = coming_up(tmp_path)
    details = {"launch_id": spec.launch_id if mine else "launch-other"}
    control.lease.acquire([this_process("python")], purpose=purpose, details=details)
    assert exit_code(spec, RefusedError("x", code="lease-held", hint="x")) == expected
