"""From Spark's words to metrics: of real progress, and of any other."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streambank.control.progress import ProgressRecord
from streambank.core.units import from_json_time
from streambank.sla.history.history import HistoryScan
from streambank.sla.history.point import Point
from streambank.sla.history.progress_json import Measuring, source_lag_rows
from tests.support.sla.progress_records import at, line, operator, recorded


def record(data: bytes) -> ProgressRecord:
    fields = json.loads(data)
    return ProgressRecord(
        from_json_time(fields["at"]),
        fields["epoch"],
        "main",
        fields["run_id"],
        fields["batch"],
        fields["progress"],
    )


def measured(*lines: bytes) -> Point:
    """The point of the last line."""
    measuring = Measuring()
    points = [measuring.point(one, one.at) for one in map(record, lines)]
    return points[-1]


def test_a_real_aggregation_with_the_hdfs_backed_store() -> None:
    points = list(HistoryScan(recorded("hourly-delays")))
    assert [point.batch for point in points] == [0, 1, 2, 3, 4]
    fourth = points[3]
    assert fourth.watermark == from_json_time("2013-01-02T10:30:00.000Z")
    assert points[0].watermark is None, "the first batch has none: Spark says 1970"
    assert fourth.values == pytest.approx(
        {
            "input_rows": 1,
            "state_rows": 28,
            "state_bytes": 11_040,
            "state_memory_bytes": 48_304,
            "updated_rows": 1,
            "removed_rows": 108,
            "dropped_rows": 0,
            "batch_s": 5.668,
            "wal_s": 0.111,
            "commit_s": 0.195,
            "state_commit_s": 0.548 / 2,
            "checkpoint_s": 0.111 + 0.195 + 0.548 / 2,
            "snapshot_age_batches": 4,
            "watermark_lag_s": (fourth.at - from_json_time("2013-01-02T10:30:00.000Z")).total_seconds(),
            # From 10:53:29.452 + 7.148 s to 10:53:36.632.
            "gap_s": 0.032,
        }
    )
    assert fourth.operators[0]["state_rows"] == 28


def test_a_real_transform_with_state_in_rocksdb() -> None:
    points = list(HistoryScan(recorded("aircraft-sessions")))
    second = points[1]
    assert (second.values["state_rows"], second.values["state_bytes"]) == (40, 7282)
    assert second.values["state_memory_bytes"] == 23_096
    assert second.values["snapshot_age_batches"] == 0, "without changelog each batch uploads a snapshot"
    assert second.values["get_ms"] == second.values["put_ms"] == 0, "80 calls, less than a ms in each task"
    assert "get_ms" not in points[2].values, "a batch that reads nothing has no latency, rather than none"
    assert "watermark_lag_s" not in second.values


def test_a_real_query_without_state_and_a_real_restart() -> None:
    points = list(HistoryScan(recorded("driver-killed")))
    assert [(point.epoch, point.batch) for point in points] == [(1, n) for n in range(4)] + [
        (2, n) for n in (5, 6, 7)
    ]
    first, again = points[0], points[4]
    assert set(first.values) == {"input_rows", "batch_s", "wal_s", "commit_s", "checkpoint_s"}
    assert first.values["checkpoint_s"] == pytest.approx(first.values["wal_s"] + first.values["commit_s"])
    assert "wal_s" not in again.values, "it was planned before the kill, so this run planned nothing"
    assert "checkpoint_s" not in again.values
    assert "gap_s" not in again.values, "the batch in between left no record"


def test_operators_are_added_up_and_kept_apart() -> None:
    both = [
        operator(customMetrics={"rocksdbSstFileSize": 1000, "rocksdbGetLatency": 30, "rocksdbGetCount": 10}),
        operator(
            numRowsTotal=11,
            commitTimeMs=400,
            customMetrics={"rocksdbSstFileSize": 20, "rocksdbGetLatency": 10, "rocksdbGetCount": 10},
        ),
    ]
    point = measured(line(0, 1, stateOperators=both))
    assert (point.values["state_rows"], point.values["state_bytes"]) == (111, 1020)
    assert (point.values["updated_rows"], point.values["removed_rows"]) == (14, 10)
    assert point.values["dropped_rows"] == 2
    assert point.values["state_commit_s"] == pytest.approx(0.2 + 0.1), "800 and 400 ms, over 4 tasks each"
    assert point.values["checkpoint_s"] == pytest.approx(0.02 + 0.03 + 0.3)
    assert point.values["get_ms"] == 2.0, "all time through all calls"
    assert [point.operators[n]["get_ms"] for n in (0, 1)] == [3.0, 1.0]
    assert [point.operators[n]["state_rows"] for n in (0, 1)] == [100, 11]


def test_what_one_of_several_operators_does_not_say_is_not_known_of_all() -> None:
    silent = {
        name: value for name, value in operator().items() if name not in ("numRowsTotal", "commitTimeMs")
    }
    point = measured(line(0, 1, stateOperators=[operator(), silent]))
    assert not {"state_rows", "state_commit_s", "checkpoint_s"} & set(point.values)
    assert point.operators[0]["state_rows"] == 100
    assert point.values["updated_rows"] == 14


@pytest.mark.parametrize(
    ("partitions", "instances", "tasks"),
    [(4, 4, 4), (4, 16, 4), (200, 1, 1), (-1, 3, 3), (None, None, None), (0, 0, None)],
    ids=["one-store", "join", "no-key", "unset", "old", "zero"],
)
def test_a_commit_is_shared_by_the_tasks_that_make_it(
    partitions: int | None, instances: int | None, tasks: int | None
) -> None:
    one = operator(numShufflePartitions=partitions, numStateStoreInstances=instances)
    values = measured(line(0, 1, stateOperators=[one])).values
    assert values.get("state_commit_s") == (None if tasks is None else pytest.approx(0.8 / tasks))


def test_the_age_of_snapshots_is_that_of_the_oldest_store() -> None:
    custom = {
        f"SnapshotLastUploaded.partition_{n}_default": version for n, version in enumerate((90, 97, 99))
    }
    point = measured(line(99, 1, stateOperators=[operator(customMetrics=custom)]))
    assert point.values["snapshot_age_batches"] == 10


def test_a_restart_makes_no_snapshot_a_million_batches_old() -> None:
    def of(batch: int, second: float, run: str, version: int) -> bytes:
        custom = {"SnapshotLastUploaded.partition_0_default": version}
        return line(batch, second, run=run, stateOperators=[operator(customMetrics=custom)])

    lines = [of(999_999, 1, "a", 999_998), of(1_000_000, 60, "b", -1), of(1_000_001, 62, "b", -1)]
    assert measured(*lines[:1]).values["snapshot_age_batches"] == 2
    assert measured(*lines[:2]).values["snapshot_age_batches"] == 1
    assert measured(*lines).values["snapshot_age_batches"] == 2


def test_hdfs_backed_memory_stands_in_where_an_old_spark_does_not_say_more() -> None:
    point = measured(line(0, 1, stateOperators=[operator()]))
    assert point.values["state_bytes"] == point.values["state_memory_bytes"] == 9000


def test_pauses_are_between_batches_that_follow_each_other() -> None:
    one, two = line(0, 10, took_s=2), line(1, 25, took_s=5)
    assert measured(one, two).values["gap_s"] == 10
    assert measured(one, line(1, 25, took_s=5, run="other", epoch=2)).values["gap_s"] == 10
    assert "gap_s" not in measured(one).values
    assert "gap_s" not in measured(one, line(2, 25)).values, "batch 1 is not there: nobody knows"
    assert "gap_s" not in measured(one, line(0, 25)).values, "a restore"
    assert measured(one, line(1, 10.5, took_s=1)).values["gap_s"] == 0
    assert "gap_s" not in measured(one, line(1, 5, took_s=1)).values, "a clock that went back"


KAFKA = {
    "description": "KafkaV2[Subscribe[topic-0]]",
    "startOffset": {"topic-0": {"2": 0, "4": 1}},
    "endOffset": {"topic-0": {"2": 10, "4": 134, "1": 1}},
    "latestOffset": {"topic-0": {"2": 15, "4": 134, "1": 1, "0": 5}},
}


def test_only_kafka_tells_how_many_rows_wait() -> None:
    file = {"description": "FileStreamSource", "endOffset": {"logOffset": 3}, "latestOffset": None}
    rate = {"endOffset": 8, "latestOffset": 9}
    micro = {"endOffset": {"offset": 7, "timestamp": 7000}, "latestOffset": {"offset": 9, "timestamp": 9000}}
    assert source_lag_rows([KAFKA]) == 10, "5 in partition 2, and all 5 of partition 0, which nobody has read"
    assert source_lag_rows([file, KAFKA]) == 10
    others: list[Any] = [[file], [rate], [micro], [], None, ["odd"], [{"endOffset": {}, "latestOffset": {}}]]
    assert [source_lag_rows(silent) for silent in others] == [None] * len(others)
    assert source_lag_rows([KAFKA | {"latestOffset": {"topic-0": {"2": "ten"}}}]) is None
    assert source_lag_rows([KAFKA | {"latestOffset": {"topic-0": {"2": 3}}}]) == 0, "a topic begun again"


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("durationMs", "numInputRows", "eventTime", "stateOperators", "sources", "timestamp")
OPERATOR_FIELDS = ("numRowsTotal", "commitTimeMs", "numShufflePartitions", "memoryUsedBytes", "customMetrics")


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(st.sampled_from(FIELDS), ANYTHING),
    st.dictionaries(st.sampled_from(OPERATOR_FIELDS), ANYTHING),
    st.text(max_size=30),
)
def test_no_progress_is_too_odd(progress: dict[str, Any], one: dict[str, Any], moment: str) -> None:
    said = {"eventTime": {"watermark": moment}, "stateOperators": [one], **progress}
    measuring = Measuring()
    for batch in range(2):
        point = measuring.point(ProgressRecord(at(batch), 1, "main", "r", batch, said), at(batch))
        assert all(isinstance(value, float | int) for value in point.values.values())


@pytest.mark.parametrize("watermark", ["+10000-01-01T00:00:00.000Z", "yesterday", "", None, 5])
def test_a_watermark_that_no_calendar_has_is_none(watermark: Any) -> None:
    assert measured(line(0, 1, eventTime={"watermark": watermark})).watermark is None
