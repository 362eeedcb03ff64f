"""A driver that comes up when nobody wants it any more."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest

from streambank.control.claims import Claim, Clock
from streambank.control.control import JobControl
from streambank.control.processes import this_process
from streambank.control.requests import STOP
from streambank.core.errors import ConflictError, InputError, RefusedError, StorageError, StreambankError
from streambank.driver.failure import driver_failure
from streambank.driver.prepare import prepare_launch
from streambank.driver.spec import LaunchSpec, write_launch
from streambank.driver.stops import mark_stop, why_superseded
from streambank.storage.store import Store
from streambank_spark.runner.superseded import check_not_superseded, exit_code, take_lease
from tests.support.jobs.declared import BY, declare
from tests.support.refuses import refuses

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
    check_not_superseded(spec, control, hold(spec, control))


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_one_that_was_stopped_before_it_had_the_lease_ends(tmp_path: Path, mode: str) -> None:
    spec, control = coming_up(tmp_path)
    spec = replace(spec, deploy_mode=mode)
    control.set_desired("stopped", by=BY)
    claim = hold(spec, control)
    with refuses(RefusedError, "not-wanted"):
        check_not_superseded(spec, control, claim)


def test_one_that_comes_back_after_it_was_asked_to_stop_ends(tmp_path: Path) -> None:
    spec, control = coming_up(tmp_path)
    first = hold(spec, control)
    control.requests.post(STOP, epoch=first.epoch, by=BY, why="a restart")
    first.release("killed")
    with pytest.raises(RefusedError) as caught:
        check_not_superseded(spec, control, again := hold(spec, control))
    assert (caught.value.code, again.epoch) == ("not-wanted", 2)
    again.release()
    other = replace(prepare_launch(declare(tmp_path), control, by=BY), **LAUNCH)  # type: ignore[arg-type]
    check_not_superseded(other, control, hold(other, control))


def test_one_that_an_older_version_launched_has_no_numbers_and_looks_at_its_own_epochs(
    tmp_path: Path,
) -> None:
    spec, control = coming_up(tmp_path)
    spec = LaunchSpec.from_dict({k: v for k, v in spec.to_dict().items() if k not in ("desired", "asked")})
    assert (spec.desired, spec.asked) == (None, None)
    first = hold(spec, control)
    control.requests.post(STOP, epoch=first.epoch, by=BY, why="a restart")
    first.release("killed")
    with pytest.raises(RefusedError):
        check_not_superseded(spec, control, again := hold(spec, control))
    again.release()
    other = replace(spec, launch_id="launch-other")
    check_not_superseded(other, control, hold(other, control))


def test_a_stop_is_against_every_launch_before_it_and_none_after(tmp_path: Path) -> None:
    spec, control = coming_up(tmp_path)
    running = control.desired()
    assert running is not None
    early = replace(spec, desired=running.number)
    control.set_desired("stopped", by=BY)
    again = control.set_desired("running", by=BY)
    late = replace(spec, desired=again.number)
    assert why_superseded(late, control) is None
    assert why_superseded(early, control) == "the job was stopped after this driver had been launched"
    mark_stop(control, by=BY, why="a restart")
    assert why_superseded(late, control) == "it was asked to stop before it ended"
    assert why_superseded(replace(late, asked=1), control) is None


def test_a_request_to_the_epoch_that_it_has_is_obeyed_and_no_reason(tmp_path: Path) -> None:
    spec, control = coming_up(tmp_path)
    claim = hold(spec, control)
    control.requests.post(STOP, epoch=claim.epoch, by=BY)
    check_not_superseded(spec, control, claim)
    control.requests.post("another thing", epoch=7, by=BY)
    check_not_superseded(spec, control, claim)


class Counting:
    """A store that counts what is read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reads = 0

    def open(self, key: str) -> AbstractContextManager[BinaryIO]:
        self.reads += 1
        return self._store.open(key)

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


@pytest.mark.parametrize("numbered", [True, False])
def test_a_driver_that_comes_back_for_the_hundredth_time_reads_no_more_than_it_must(
    tmp_path: Path, numbered: bool
) -> None:
    spec, control = coming_up(tmp_path)
    old = replace(spec, launch_id="launch-old")
    for _ in range(100):
        hold(old, control).release("killed")
    if not numbered:
        spec = replace(spec, desired=None, asked=None)
    claim = hold(spec, control)
    store = Counting(control.store)
    check_not_superseded(spec, JobControl(store, control.name), claim)  # type: ignore[arg-type]  # it passes the rest on
    assert store.reads <= 3


@pytest.mark.parametrize("wanted", [False, True])
def test_it_waits_for_one_that_is_about_to_refuse_itself_and_for_no_other(
    tmp_path: Path, wanted: bool
) -> None:
    spec, control = coming_up(tmp_path)
    write_launch(control, spec)
    claim = hold(spec, control)
    if not wanted:
        mark_stop(control, by=BY, why="a restart")
    other = replace(prepare_launch(declare(tmp_path), control, by=BY), **LAUNCH)  # type: ignore[arg-type]
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        claim.release("refused")

    watching = JobControl(control.store, control.name, clock=Clock(sleep=sleep))
    if wanted:
        with pytest.raises(RefusedError) as caught:
            take_lease(other, watching, [this_process("python")])
        assert (caught.value.code, waited) == ("lease-held", [])
    else:
        assert take_lease(other, watching, [this_process("python")]).epoch == 2 and len(waited) == 1


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


def test_outside_a_cluster_the_code_is_its_own_and_the_reason_is_left_behind(tmp_path: Path) -> None:
    spec, control = coming_up(tmp_path)
    refusal = RefusedError("It is not declared.", code="undeclared-query", hint="Declare it; token=abcdefgh")

    assert exit_code(replace(spec, deploy_mode="client"), refusal) == 8

    found = driver_failure(control, spec.launch_id, ["the end of a log"])
    assert found is not None
    assert (found.sentence, found.hint) == ("It is not declared.", "Declare it; token=***")


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
