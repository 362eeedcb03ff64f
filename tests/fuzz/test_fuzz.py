"""Each parser for a moment, and for minutes in the storm; what fuzzing has found, once more."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import StreambankError
from tests.fuzz.inputs import Target
from tests.fuzz.mutate import Mutator
from tests.fuzz.run import Failure, fuzz, main
from tests.fuzz.targets import TARGETS

MOMENT_S = 0.3
MINUTES_S = 60.0


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_a_moment_of_each_parser(name: str) -> None:
    assert fuzz(TARGETS[name], MOMENT_S, seed=20, most=2000) > 0


@pytest.mark.storm
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", sorted(TARGETS))
def test_minutes_of_each_parser(name: str) -> None:
    seed = random.randrange(1 << 32)
    assert fuzz(TARGETS[name], MINUTES_S, seed) > 0, f"seed {seed}"


def test_the_same_seed_makes_the_same_inputs() -> None:
    def some(seed: int) -> list[bytes]:
        mutator, seeds = Mutator(random.Random(seed)), TARGETS["commits"].seeds()
        return [mutator(seeds[0], seeds) for _ in range(50)]

    assert some(1) == some(1) != some(2)


@pytest.mark.parametrize(
    ("does", "kind"),
    [
        (lambda data: [][1], "IndexError at outside"),
        (lambda data: exec("while True: pass"), "no answer within"),
        (lambda data: b"x" * (400 << 20), "more than 300 MB"),
    ],
)
def test_a_parser_that_breaks_its_promise_is_caught(
    does: object, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.fuzz.run.ANSWER_S", 0.2 if "answer" in kind else 5.0)
    seen: list[bytes] = []

    def feed(data: bytes) -> None:
        seen.append(data)
        if len(seen) > 1:
            does(data)  # type: ignore[operator]

    child = os.fork()  # the memory of this process is not to grow
    if child == 0:
        try:
            fuzz(Target(lambda: [b"seed"], feed), 5.0, seed=1)
        except Failure as failure:
            os._exit(0 if failure.kind.startswith(kind) else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_failure_is_kept_and_its_seed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def feed(data: bytes) -> None:
        if b"seed" not in data:
            raise KeyError(data)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tests.fuzz.run.TARGETS", {"broken": Target(lambda: [b"seed"], feed)})
    monkeypatch.setattr(sys, "argv", ["run", "--target", "broken", "--seconds", "5", "--seed", "7"])
    assert main() == 1
    (kept,) = (tmp_path / ".streambank/fuzz").iterdir()
    said = capfd.readouterr()
    assert f"--seed 7: {kept.relative_to(tmp_path)}" in said.out and "KeyError" in said.err
    assert b"seed" not in kept.read_bytes()


CODE = {"application": "/srv/a.py", "args": [], "spark": {}}
UPGRADE = {
    **{"name": "u", "job": "orders", "state": "stopping", "before": None, "after": CODE, "changes": []},
    **{"broken_before": [], "started_at": "2026-11-29T21:00:00Z", "at": "2026-11-29T21:00:00Z"},
}
CHANGED: Sequence[dict[str, Any]] = (
    {"name": [1]},
    {"state": "x"},
    {"steps": {"stop": "1"}},
    {"seconds": "1"},
    {"batches": [3]},
    {"savepoints": 7},
    {"notes": [{}]},
    {"changes": 1},
)
"""Of a record of an upgrade, values that are none."""
FOUND = [
    ("commits", b'v2\n{"stateUniqueIds":{"' + b"9" * 5000 + b'":[]}}'),
    ("operator-metadata", b'v1\n{"operatorInfo":{"operatorId":0,"operatorName":"\xff"},"stateStoreInfo":[]}'),
    ("jobs-file", b"a = " + b"[" * 5000),
    ("jobs-file", b"a = " + b"9" * 5000),
    ("kafka-offsets", b'{"t":{"' + b"9" * 5000 + b'":1}}'),
    ("jobs-file", b'repository = "r"\n[jobs.a.savepoint]\nrate = "' + b"9" * 400 + b'GB"'),
    ("offsets", b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{"\\ud800":"1"}}\n{"x":1}'),
    ("records", b'desired/0000000001.json\n{"state": "stopped", "by": {"user": "ann"}, "why": ""}'),
    ("records", b'desired/0000000001.json\n{"state": "stopped", "at": "yesterday", "by": 1}'),
    ("refreshes", b'refreshes/0000000001.json\n{"at": "2026-11-29T21:00:00Z", "by": {}, "directories": 7}'),
    (
        "sites",
        b'sites/0000000003.json\n{"number": 3, "state": "active", "site": "standby", "was": "primary", '
        b'"unfenced": true, "by": {}, "at": "2026-11-29T21:00:00Z", "savepoints": {"main": "b'
        + b"9" * 5000
        + b'"}, "left": {"main": "file:///p"}}',
    ),
    *(
        ("upgrades", b"upgrades/0000000003.json\n" + json.dumps(UPGRADE | changed).encode())
        for changed in CHANGED
    ),
    ("declarations", b'repository = "r"\n[maintenance]\nschedule = "@weekly"\nshare = "1e999999999%"'),
    ("notes", b'{"streambank_restore": {"owner": {}, "files": [{}]}}'),
    ("webhdfs", b'GETFILESTATUS 200\n{"FileStatus": {"type": "FILE", "length": "\\u0000"}}'),
    ("webhdfs", b'LISTSTATUS 200\n{"FileStatuses": {"FileStatus": [{"type": "FILE", "length": 1e400}]}}'),
]
"""What once ended in another exception than one of ours."""


@pytest.mark.parametrize(("name", "data"), FOUND)
def test_what_was_found_stays_mended(name: str, data: bytes) -> None:
    try:
        TARGETS[name].feed(data)
    except StreambankError as error:
        assert error.hint
