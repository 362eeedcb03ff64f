"""`--max-rate`, `--parallel` and `--gentle` on the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streambank.work import pace
from tests.support.cli import streambank, succeed
from tests.support.jobs.simulated_job import JOB, SimulatedJob
from tests.support.paths import ROOT


@pytest.fixture
def shop(tmp_path: Path) -> SimulatedJob:
    return SimulatedJob(tmp_path, sink=False).run(3)


def verbs(tmp_path: Path) -> list[list[str]]:
    repository = str(tmp_path / "repository")
    return [
        ["take", str(tmp_path / "ck"), "-r", repository, "--job", JOB],
        ["verify", "b000002", "-r", repository, "--level", "full"],
        ["restore", "latest-good", "-r", repository, "--into", str(tmp_path / "restored")],
    ]


def replica_verbs(tmp_path: Path) -> list[list[str]]:
    repository, replica = str(tmp_path / "repository"), str(tmp_path / "replica")
    return [["replicate", "-r", repository, "--to", replica], ["repair", "-r", repository, "--from", replica]]


def test_a_rate_bounds_every_verb(
    shop: SimulatedJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: set[int | None] = set()
    spend = pace.RateLimit.spend

    def noted(limit: pace.RateLimit, size_bytes: int) -> None:
        limits.add(limit._bytes_per_s)
        spend(limit, size_bytes)

    monkeypatch.setattr(pace.RateLimit, "spend", noted)
    for verb in [*verbs(tmp_path), *replica_verbs(tmp_path)]:
        if verb[0] == "repair":
            spoilt = max(path for path in (tmp_path / "repository/packs").rglob("*") if path.is_file())
            spoilt.write_bytes(b"?" + spoilt.read_bytes()[1:])
        limits.clear()
        succeed(*verb, "--max-rate", "50MB/s", "--parallel", "2")
        assert limits == {50_000_000}, verb


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--max-rate", "fast", "'fast' is not a rate"),
        ("--max-rate", "0", "is not a rate"),
        ("--parallel", "0", "equal to 1"),
    ],
)
def test_a_bad_value_is_refused_before_anything_is_done(
    shop: SimulatedJob, tmp_path: Path, option: str, value: str, says: str
) -> None:
    for verb in [*verbs(tmp_path), *replica_verbs(tmp_path)]:
        answer = streambank(*verb, option, value)
        assert answer.code == 2 and says in answer.err, verb
    assert not (tmp_path / "replica").exists()
    assert list(shop.repository.manifests()) == []
    assert not (tmp_path / "restored").exists()


def test_a_gentle_take_is_a_take(shop: SimulatedJob, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "streambank", *verbs(tmp_path)[0], "--gentle"]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(ROOT / "provider")}, capture_output=True, check=True
    )
    assert b"batch 2" in done.stdout
    assert [summary.batch for summary in shop.repository.manifests()] == [2]


def test_a_linked_restore_is_told_and_is_not_wrong(tmp_path: Path) -> None:
    shop = SimulatedJob(tmp_path, sink=False, state_bytes=700_000).run(3)
    take, verify, restore = verbs(tmp_path)
    succeed(*take)
    answer = streambank(*restore, "--link")
    assert answer.code == 0 and "share their bytes with the repository" in answer.out
    answer = streambank(*verify)
    assert answer.code == 0
    assert "info: objects-shared" in answer.out and ": ok (" in answer.out
    assert [summary.verified_ok for summary in shop.repository.manifests()] == [True]
