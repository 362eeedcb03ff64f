"""A driver waits for its release among the records: nobody but the upgrade that launched it releases it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streambank.control.control import JobControl
from streambank.core.errors import StreambankError
from streambank.driver.prepare import prepare_launch
from streambank.driver.spec import (
    LaunchSpec,
    is_held,
    release_launch,
    released_key,
    released_launch,
    seal_of,
    write_launch,
)
from streambank.upgrade.record import upgrading
from streambank_spark.runner.until_released import NotNeededError, until_released
from tests.support.jobs.declared import BY, declare
from tests.support.refuses import refuses

SECRET = "of the upgrade alone"


@pytest.fixture
def control(tmp_path: Path) -> JobControl:
    return declare(tmp_path).records()


@pytest.fixture
def held(control: JobControl, tmp_path: Path) -> LaunchSpec:
    """A launch whose driver waits."""
    launch = prepare_launch(declare(tmp_path), control, by=BY)
    spec = replace(launch, held_by=1, seal=seal_of(SECRET))
    write_launch(control, spec)
    assert released_launch(control, spec) is None and is_held(spec, control)
    return spec


def written(spec: LaunchSpec, **changed: Any) -> Mapping[str, Any]:
    """What the upgrade would write, but for what is changed."""
    return {**json.loads(json.dumps(spec.to_dict())), "secret": SECRET, **changed}


def elsewhere(spec: LaunchSpec, **changed: Any) -> dict[str, Any]:
    return {"queries": {name: {**one, **changed} for name, one in written(spec)["queries"].items()}}


FORGED: Mapping[str, Callable[[LaunchSpec], Mapping[str, Any]]] = {
    "a guessed secret": lambda spec: written(spec, secret="guessed"),
    "no secret": lambda spec: {name: value for name, value in written(spec).items() if name != "secret"},
    "null for a secret": lambda spec: written(spec, secret=None),
    "its seal for a secret": lambda spec: written(spec, secret=spec.seal),
    "a seal of one's own": lambda spec: written(spec, secret="mine", seal=seal_of("mine")),
    "no seal at all": lambda spec: written(spec, secret=None, seal=None),
    "another program": lambda spec: written(spec, application="/tmp/evil.py"),
    "other arguments": lambda spec: written(spec, args=["--evil"]),
    "other records": lambda spec: written(spec, control="file:///tmp/evil"),
    "another job": lambda spec: written(spec, job="payments"),
    "another launch": lambda spec: written(spec, launch_id="launch-other"),
    "another checkpoint": lambda spec: written(spec, **elsewhere(spec, checkpoint="file:///tmp/evil")),
    "another generation": lambda spec: written(spec, **elsewhere(spec, generation=9)),
    "another output": lambda spec: written(spec, **elsewhere(spec, new_sinks={"file:///a": "file:///b"})),
    "one query less": lambda spec: written(spec, queries={}),
    "another format": lambda spec: written(spec, format=99),
    "no object": lambda spec: {"garbage": True},
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_release_lets_nothing_run(control: JobControl, held: LaunchSpec, forged: str) -> None:
    """Some of these know the secret, which only the upgrade does: they would still run nothing else."""
    data = json.dumps(FORGED[forged](held)).encode()
    control.store.write(released_key(held.launch_id), data)
    with pytest.raises(StreambankError) as refused:
        until_released(held, control)
    assert refused.value.code in ("changed-launch", "damaged-record", "unknown-format")
    if forged not in ("another format", "no object"):
        assert refused.value.code == "changed-launch"


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"7", b"null", b'"text"', b"\xff\xfe", b"[" * 100_000])
def test_garbage_is_named_and_lets_nothing_run(control: JobControl, held: LaunchSpec, data: bytes) -> None:
    control.store.write(released_key(held.launch_id), data)
    with refuses(StreambankError, "damaged-record"):
        until_released(held, control)


def test_what_the_upgrade_releases_runs_with_the_batches_of_that_moment(
    control: JobControl, held: LaunchSpec
) -> None:
    """The honest case: the same release, by who has the secret."""
    queries = {name: replace(one, committed=7) for name, one in held.queries.items()}
    later = replace(held, queries=queries, asked=3)
    release_launch(control, later, SECRET)
    assert until_released(held, control) == later
    release_launch(control, later, SECRET)  # the answer to the first try was lost
    assert not is_held(held, control)


def test_a_release_is_never_exchanged(control: JobControl, held: LaunchSpec) -> None:
    release_launch(control, held, SECRET)
    with pytest.raises(StreambankError):
        release_launch(control, replace(held, application="/tmp/evil.py"), SECRET)
    assert until_released(held, control) == held


def test_without_a_release_the_driver_ends_with_the_upgrade(control: JobControl, held: LaunchSpec) -> None:
    with upgrading(control, BY) as claim:
        waits = replace(held, held_by=claim.epoch)
    with pytest.raises(NotNeededError, match="the upgrade has ended"):
        until_released(waits, control)
