"""Each pattern writes what a batch computation in plain Python gives of the same events."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark_jobs.patterns.cases.all import CASES, QUICK
from tests.spark_jobs.patterns.cases.case import PATTERNS, Case, play
from tests.support.paths import ROOT

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=str(case), marks=() if case in QUICK else pytest.mark.storm) for case in CASES],
)
def test_pattern_equals_its_batch_computation(case: Case, tmp_path: Path, session: SparkSession) -> None:
    answer = case.answer()
    assert answer
    assert play(case, tmp_path, "--files-per-trigger", str(case.together)) == answer


def test_every_pattern_is_played_and_in_the_guide() -> None:
    shared = {"application", "events", "in_order"}
    patterns = {path.stem for path in PATTERNS.glob("*.py")} - shared
    guide = (ROOT / "docs/guide/patterns.md").read_text(encoding="utf-8")
    assert {case.pattern for case in CASES} == patterns
    assert {name for name in patterns if f"/{name}.py)" in guide} == patterns
