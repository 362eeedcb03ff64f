"""What is promised, kept and broken by real queries of a real driver, judged by the engine as it runs.

Real: Spark, its queries, their state and checkpoints, the runner's records, the pauses and failures, and the
clock. Scaled, by fields that a job may declare: limits (a leak of kilobytes stands for one of gigabytes),
windows (a minute for an hour or two weeks) and `min_history`. What cannot be shown in minutes: a breach by
growth or time to a limit, which takes five days of history (a warning is the worst before); what needs a
source that tells its offsets (`source_lag`: Kafka); `hot_key`, of which only Spark's state reader knows
(`tests/streambank_spark/programs/test_inspect_state.py`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from streambank.core.units import utc_now
from streambank.declaration.declaration import Job as Declaration
from streambank.declaration.objectives import PROMISES, Statistic
from streambank.declaration.sla import Declared, SlaPolicy
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.sla.assess import assess_job
from streambank.sla.history.history import HistoryScan, Records
from streambank.sla.objectives import HISTORY
from streambank.sla.verdict import Verdict
from streambank.storage import open_store
from tests.support.drivers.real_driver import APPLICATIONS, Driver, Job
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1500)]

QUERIES = ("steady", "leak", "heavy", "behind", "slow", "failing")
CONF = {
    "spark.master": "local[4]",
    "spark.sql.streaming.stateStore.maintenanceInterval": "2s",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
BATCHES = 36
"""Batches of the leak: three minutes where nothing else is done."""
WARM_BATCHES = 15
"""From this one on the steady query has to be called steady: the first ones of a JVM take far longer."""
LEAK_ROWS = 300
"""What the leak gains with each of them."""
WINDOW_S = 60.0


def limit(
    breach: float,
    *,
    warn: float | None = None,
    statistic: Statistic | None = None,
    window_s: float | None = None,
) -> Declared:
    return Declared(warn=warn, breach=breach, statistic=statistic, window_s=window_s)


TREND = Declared(window_s=3600.0, min_history_s=40.0)

BROKEN: Mapping[str, tuple[Declared, str, str]] = {
    "state_bytes": (limit(600_000, window_s=WINDOW_S), "leak", "steady"),
    "state_memory_bytes": (limit(600_000, window_s=WINDOW_S), "leak", "steady"),
    "state_rows": (limit(4_000, window_s=WINDOW_S), "leak", "steady"),
    "checkpoint_bytes": (limit(2_000_000), "heavy", "steady"),
    "checkpoint_duration": (limit(60.0, statistic="median", window_s=WINDOW_S), "slow", "steady"),
    "batch_duration": (limit(5.5, statistic="median", window_s=WINDOW_S), "slow", "steady"),
    "failed_batches": (Declared(warn=0, breach=0), "failing", "steady"),
    "access_latency": (limit(0.0001, statistic="median", window_s=600.0), "heavy", "behind"),
    "partition_skew": (limit(3.0, warn=3.0), "heavy", "behind"),
    "watermark_lag": (limit(1800.0), "behind", "steady"),
    "dropped_rows": (limit(0), "behind", "steady"),
    "snapshot_age": (limit(12, statistic="max"), "behind", "steady"),
    "savepoint_age": (limit(3600), "leak", "steady"),
    "progress_age": (limit(90.0), "failing", "steady"),
    "pause": (limit(0.2, statistic="median", window_s=WINDOW_S), "slow", "steady"),
}
"""Each objective with limits that fit into minutes, the query that breaks it and one that keeps it."""
WARNED: Mapping[str, tuple[Declared, str, str]] = {
    "growth": (replace(TREND, warn=1e6), "leak", "steady"),
    "row_growth": (replace(TREND, warn=20_000.0), "leak", "steady"),
}
BETWEEN = ("checkpoint_duration",)
"""What takes as long as the machine likes: the limit is put between what the two queries take."""
ELSEWHERE = {
    *("alive", "restart_rate", "source_lag", "hot_key", "recovery_time", "time_to_limit", "drill_age"),
    *("replayable_for", "replica_age", "copy_age"),
}


def test_every_objective_is_here_or_said_to_be_elsewhere() -> None:
    assert {*BROKEN, *WARNED, *ELSEWHERE} == set(PROMISES)


@dataclass
class Stream:
    """The driver, and the job as it would be declared.

    Attributes:
        seen: Every verdict on the steady query that was worse than it should have been.
        foretold: When, by the forecast in the middle of the run, the leak reaches its limit.
    """

    driver: Driver
    job: Declaration
    asked: int = 0
    seen: list[Verdict] = field(default_factory=list)
    foretold: Verdict | None = None

    def verdicts(self, query: str, **objectives: Declared) -> Mapping[str, Verdict]:
        job = replace(self.job, sla=SlaPolicy(objectives))
        return {one.objective: one for one in assess_job(job, query=query).verdicts}

    def last_batch(self, query: str) -> int:
        newest = Records.of_query(self.driver.control.store, query).newest()
        return -1 if newest is None else newest.batch


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stream]:
    """The run: judged again and again, until the leak has gone on for long enough."""
    folder = tmp_path_factory.mktemp("promises")
    job = Job(folder, queries=QUERIES, conf=CONF)
    repository = Repository.open(open_store(folder / "savepoints"), create=True)
    with job.driver("promises.py") as driver:
        driver.event("query-started")
        driver.control.set_desired("running", by={"user": "storm", "host": "here"})
        locations = {name: f"file://{driver.checkpoint(name)}" for name in QUERIES}
        declared = Declaration(
            job.name,
            str(APPLICATIONS / "promises.py"),
            f"file://{folder}/checkpoint",
            locations,
            f"file://{folder}/savepoints",
            f"file://{folder}/control",
        )
        found = Stream(driver, declared)
        driver.wait_committed(WARM_BATCHES, "steady")
        take(TakeRequest(open_store(locations["steady"]), repository, "job/steady"))
        policy = {
            name: limits for name, (limits, _, keeps) in {**BROKEN, **WARNED}.items() if keeps == "steady"
        }

        def look() -> bool:
            assert driver.child.poll() is None, driver.tail()
            found.asked += 1
            verdicts = found.verdicts("steady", **policy)
            found.seen += [one for one in verdicts.values() if one.level in ("warn", "breach")]
            last = found.last_batch("leak")
            if found.foretold is None and last >= BATCHES * 2 // 3:
                ahead = Declared(warn=LEAK_ROWS * BATCHES, breach=LEAK_ROWS * BATCHES)
                found.foretold = found.verdicts("leak", state_rows=ahead, time_to_limit=TREND)[
                    "time_to_limit"
                ]
            time.sleep(1.0)  # how often is judged, not a wait for anything
            return last >= BATCHES + 2

        wait_for("the leak", look, 900)
        yield found


def test_no_false_alarm_over_a_steady_run(stream: Stream) -> None:
    assert stream.asked >= 20
    assert [(one.objective, one.why) for one in stream.seen] == []
    levels = {name: one.level for name, one in stream.verdicts("steady").items()}
    assert levels[HISTORY] == levels["state_bytes"] == levels["checkpoint_duration"] == "ok"
    assert not {"warn", "breach"} & set(levels.values()), "nor by the usual limits"


def between(stream: Stream, name: str) -> Declared:
    """The same objective with a limit between what its two queries take."""
    declared, *queries = BROKEN[name]
    more, less = (stream.verdicts(query, **{name: declared})[name].value for query in queries)
    assert more is not None and less is not None
    assert more > 1.5 * less, f"{more:.3f} and {less:.3f} are too close to tell"
    middle = (more * less) ** 0.5
    return replace(declared, warn=middle, breach=middle)


@pytest.mark.parametrize("name", BROKEN)
def test_an_objective_is_broken_by_one_query_and_kept_by_another(stream: Stream, name: str) -> None:
    declared, breaks, keeps = BROKEN[name]
    if name in BETWEEN:
        declared = between(stream, name)
    broken = stream.verdicts(breaks, **{name: declared})[name]
    assert broken.level == "breach", broken.why
    assert broken.why and broken.advice
    kept = stream.verdicts(keeps, **{name: declared})[name]
    assert kept.level == "ok", kept.why


@pytest.mark.parametrize("name", WARNED)
def test_a_growth_is_warned_of_in_one_query_and_not_in_another(stream: Stream, name: str) -> None:
    declared, grows, rests = WARNED[name]
    found = stream.verdicts(grows, **{name: declared})[name]
    assert found.level == "warn", found.why
    assert found.growth is not None and found.growth.grows
    assert stream.verdicts(rests, **{name: declared})[name].level == "ok"


def test_a_recovery_is_measured_and_held_against_both_limits(stream: Stream) -> None:
    kept = stream.verdicts("steady", recovery_time=limit(900.0))["recovery_time"]
    assert kept.level == "ok" and kept.value is not None and kept.value > 1.0, kept.why
    broken = stream.verdicts("slow", recovery_time=limit(1.0))["recovery_time"]
    assert broken.level == "breach" and broken.value is not None and broken.value > 6.0, broken.why


def test_a_leak_is_foretold_before_its_limit(stream: Stream) -> None:
    """By how much the forecast is off is in what fails, and in what is printed."""
    foretold = stream.foretold
    assert foretold is not None and foretold.value is not None, foretold
    assert foretold.level == "warn", "nothing is certain after minutes"
    records = Records.of_query(stream.driver.control.store, "leak")
    points = list(HistoryScan(records))
    reached = next(point.at for point in points if point.values["state_rows"] >= LEAK_ROWS * BATCHES)
    expected = foretold.at + timedelta(seconds=foretold.value)
    ahead_s = (reached - foretold.at).total_seconds()
    off_s = (expected - reached).total_seconds()
    pauses = [(two.at - one.at).total_seconds() for one, two in pairwise(points)]
    print(f"foretold {ahead_s:.0f} s ahead, off by {off_s:+.1f} s; a batch every {median(pauses):.1f} s")
    print("\n".join((foretold.why, *foretold.evidence)))
    assert ahead_s > 0, "before it was reached"
    assert abs(off_s) <= max(0.35 * ahead_s, 2 * max(pauses)), f"off by {off_s} s of {ahead_s} s"
    calm = stream.verdicts("steady", state_rows=limit(1e6, warn=1e6), time_to_limit=TREND)
    assert calm["time_to_limit"].level == "ok", calm["time_to_limit"].why


def test_a_history_that_cannot_be_read_is_a_breach_of_its_own(stream: Stream, tmp_path: Path) -> None:
    control = tmp_path / "control" / stream.job.name
    (control / "generation" / "steady").mkdir(parents=True)
    (control / "generation" / "steady" / "0000000001.json").write_bytes(b"{")
    assert stream.verdicts("steady")[HISTORY].level == "ok"
    elsewhere = replace(stream.job, control=f"file://{tmp_path}/control")
    found = {one.objective: one for one in assess_job(elsewhere, query="steady").verdicts}
    assert found[HISTORY].level == "breach", found[HISTORY].why
    assert found["state_bytes"].level == "unknown"
    assert found[HISTORY].at <= utc_now()
