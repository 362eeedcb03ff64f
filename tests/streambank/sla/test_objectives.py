"""Which objectives hold for a job; and the page says the same as the code."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from streambank.core.units import say_duration
from streambank.declaration.load import load_jobs
from streambank.declaration.objectives import PROMISES
from streambank.declaration.savepoints import SavepointPolicy
from streambank.declaration.sla import MIN_DELTAS, Declared, Mute, SlaPolicy, with_usual
from streambank.sla.objectives import Objective, objectives
from streambank.sla.verdict import say
from tests.support.paths import ROOT

PAGE = (ROOT / "docs/reference/sla-objectives.md").read_text(encoding="utf-8")


def by_name(policy: SlaPolicy | None = None) -> dict[str, Objective]:
    return {one.name: one for one in objectives(policy)}


def test_every_promise_has_a_meaning_and_a_way_out() -> None:
    for promise in PROMISES.values():
        assert promise.meaning and promise.advice.endswith(".")
        assert (promise.kind == "reported") == (not promise.metrics)
        has_statistic = promise.kind == "window" or promise is PROMISES["recovery_time"]
        assert (promise.statistic is not None) == has_statistic
        assert promise.statistic is None or promise.window_s is not None


def test_without_a_declaration_the_usual_limits_hold() -> None:
    assert {name: (one.warn, one.breach) for name, one in by_name().items()} == {
        "alive": (None, 300.0),
        "free_space": (1e9, 100e6),
        "state_bytes": (10e9, 100e9),
        "checkpoint_duration": (60.0, 600.0),
        "failed_batches": (0.0, 3.0),
        "restart_rate": (2.0, 9.0),
        "access_latency": (None, 100.0),
        "recovery_time": (None, 300.0),
        "growth": (1e6, None),
        "time_to_limit": (7 * 86_400.0, 86_400.0),
        "partition_skew": (3.0, None),
        "hot_key": (10.0, None),
        "snapshot_age": (None, 1000.0),
        "progress_age": (None, 1800.0),
    }


def test_what_is_declared_wins_and_a_usual_warning_gives_way() -> None:
    mute = Mute(datetime(2027, 1, 1, tzinfo=UTC), "moving")
    own = Mute(datetime(2028, 1, 1, tzinfo=UTC), "known")
    found = by_name(
        SlaPolicy(
            {
                "state_bytes": Declared(breach=5e9, window_s=60.0, statistic="max", severity="warn"),
                "hot_key": Declared(off=True),
                "pause": Declared(warn=30.0, mute=own),
                "growth": Declared(min_history_s=5.0),
                "time_to_limit": Declared(breach=8 * 86_400.0),
            },
            mute,
        )
    )
    state = found["state_bytes"]
    assert (state.warn, state.breach, state.window_s, state.statistic, state.severity) == (
        None,
        5e9,
        60.0,
        "max",
        "warn",
    )
    assert "hot_key" not in found and "watermark_lag" not in found
    assert found["pause"].mute == own and state.mute == mute
    assert found["growth"].min_history_s == 5.0 and found["growth"].warn == 1e6
    assert found["time_to_limit"].warn is None
    assert replace(state, breach=None, warn=1.0).size_limit == 1.0


def test_what_else_a_job_declares_makes_usual_limits() -> None:
    policy = with_usual(
        SlaPolicy({"savepoint_age": Declared(warn=9000.0)}),
        SavepointPolicy(schedule="@hourly"),
        {MIN_DELTAS: "50"},
    )
    found = by_name(policy)
    assert found["snapshot_age"].breach == 5000.0
    assert (found["savepoint_age"].warn, found["savepoint_age"].breach) == (9000.0, 10_800.0)
    late = replace(policy, objectives={"savepoint_age": Declared(warn=20_000.0)})
    assert by_name(late)["savepoint_age"].breach is None, "a usual breach gives way to a later warning"
    by_hand = with_usual(SlaPolicy(), SavepointPolicy(), {})
    assert "savepoint_age" not in by_name(by_hand), "nothing says how often one is due"


def rows() -> list[list[str]]:
    table = PAGE.partition("| objective | what it is about |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines()[2:]]


def test_the_page_has_the_table_of_the_code() -> None:
    expected = []
    for name, promise in PROMISES.items():
        metrics = ", ".join(f"`{metric}`" for metric in promise.metrics) or "-"
        limits = [
            "-" if limit is None else say(limit, promise.unit) for limit in (promise.warn, promise.breach)
        ]
        window = "-" if promise.window_s is None else say_duration(promise.window_s)
        expected.append(
            [
                f"`{name}`",
                promise.meaning,
                metrics + (", each operator" if promise.per_operator else ""),
                promise.unit,
                *limits,
                f"{promise.statistic} of {window}" if promise.statistic else window,
            ]
        )
    assert rows() == expected


def test_the_declaration_of_the_page_loads(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    file = tmp_path / "streaming_jobs.toml"
    file.write_text(text, encoding="utf-8")
    sla = load_jobs(file, variables={}).job("flights").sla
    assert sla.objectives["growth"].mute == Mute(datetime(2026, 12, 1, tzinfo=UTC), "backfill of November")
    assert len(objectives(sla)) == len(objectives()) - 1 + 2


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (12.34e9, "bytes", "12.3 GB"),
        (1e6, "bytes/h", "1 MB/h"),
        (0.25, "s", "0.25 s"),
        (90.4, "s", "1 min 30 s"),
        (3600, "s", "1 h"),
        (7 * 86_400 + 3600 * 4.9, "s", "7 d 4 h"),
        (99.96, "ms", "100 ms"),
        (3.14159, "ratio", "3.14 times"),
        (1234567, "rows", "1,234,567 rows"),
        (0.5, "rows/h", "0.5 rows/h"),
        (3, "count", "3"),
    ],
)
def test_figures_for_people(value: float, unit: str, text: str) -> None:
    known = next(promise.unit for promise in PROMISES.values() if promise.unit == unit)
    assert say(value, known) == text
