"""What speaks against a compaction or another number of partitions is found while the job still runs."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streambank.checkpoint.rewritable import STRICT
from streambank.core.errors import StreambankError
from streambank.core.units import utc_now
from streambank.declaration.declaration import Job
from streambank.job.savepoint import savepoint_job
from streambank.recovery.foresee import foresee
from tests.support.jobs.declared import BY, declare, declare_recorded
from tests.support.refuses import refuses

HDFS, ROCKSDB = "4.3.0/hdfs-window", "4.3.0/rocksdb-window"
LOCAL = 'master = "local[2]"\n'


def refusal(job: Job, **order: Any) -> StreambankError:
    with pytest.raises(StreambankError) as caught:
        foresee(job, None, order)
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    ("name", "order", "code"),
    [
        ("4.3.0/stateless", {"operation": "compact", "where": "true"}, "no-state"),
        (HDFS, {"operation": "rescale", "partitions": 7}, "hdfs-backed"),
        (ROCKSDB, {"operation": "rescale", "partitions": 2}, "same-partitions"),
        (ROCKSDB, {"operation": "compact", "where": "true", "operator": 3}, "which-operator"),
        ("4.3.0/hdfs-chain", {"operation": "compact", "where": "true"}, "which-operator"),
        (HDFS, {"operation": "compact", "where": "value.nope > 1"}, "bad-expression"),
        (HDFS, {"operation": "compact", "where": "value.count > 1 and key.`no such` = 1"}, "bad-expression"),
        ("4.3.0/hdfs-global", {"operation": "compact", "where": "true"}, "no-key"),
        ("3.5.9/rocksdb-limit", {"operation": "rescale", "partitions": 7}, "limit-state"),
        (HDFS, {"operation": "compact", "idle_for_s": 3600.0}, "no-such-savepoint"),
        (HDFS, {"operation": "compact", "idle_since": "b000001"}, "no-such-savepoint"),
    ],
)
def test_what_would_be_refused_once_the_job_is_stopped_is_refused_before(
    tmp_path: Path, name: str, order: dict[str, Any], code: str
) -> None:
    assert refusal(declare_recorded(tmp_path, name, more=LOCAL), **order).code == code


@pytest.mark.parametrize(
    ("name", "order"),
    [
        (ROCKSDB, {"operation": "rescale", "partitions": 5}),
        (HDFS, {"operation": "compact", "where": "value.sum < 3 and key.window.end < {watermark}"}),
        (HDFS, {"operation": "compact", "where": "KEY.Window.start < now() -- value.nope"}),
        (HDFS, {"operation": "compact", "where": "concat('value.nope', key.window) = \"key.nope\""}),
        ("3.5.9/rocksdb-session", {"operation": "rescale", "partitions": 5}),
        ("4.3.0/hdfs-join", {"operation": "compact", "where": "value.nope = 1", "part": "left"}),
        ("4.3.0/rocksdb-transform", {"operation": "compact", "where": "value.nope = 1", "part": "seen"}),
        ("4.3.0/hdfs-chain", {"operation": "compact", "where": "true", "operator": 1}),
    ],
)
def test_what_can_be_done_or_only_spark_can_tell_is_let_through(
    tmp_path: Path, name: str, order: dict[str, Any]
) -> None:
    foresee(declare_recorded(tmp_path, name, more=LOCAL), None, order)


def test_a_savepoint_has_to_be_old_enough_and_earlier(tmp_path: Path) -> None:
    job = declare_recorded(tmp_path, HDFS, more=LOCAL)
    order = {"operation": "compact", "idle_for_s": timedelta(days=30).total_seconds()}
    savepoint_job(job, by=BY, batch=6)
    early = refusal(job, **order)
    due = utc_now() + timedelta(days=30)
    assert (
        early.code == "no-such-savepoint"
        and f"the oldest savepoint will be old enough on {due:%Y-%m-%d}" in early.hint
    )
    foresee(job, None, order, now=utc_now() + timedelta(days=31))
    newest = savepoint_job(job, by=BY).savepoints["main"].savepoint
    assert refusal(job, operation="compact", idle_since=newest).code == "not-earlier"


def test_packages_that_are_missing_here_count_where_this_machine_does_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = declare_recorded(tmp_path, HDFS, more=LOCAL)
    monkeypatch.setattr("streambank.checkpoint.rewritable.find_spec", lambda name: None)
    order = {"operation": "compact", "where": "true"}
    missing = refusal(job, **order)
    assert missing.code == "missing-package" and "lz4 and xxhash" in missing.message
    foresee(job, None, order, elsewhere=True)


def set_in_offset_log(folder: Path, name: str, before: str, after: str | None) -> None:
    """Another value of a setting in the newest entry; None for none."""
    offsets = (folder / "checkpoints/flights/offsets").glob("[0-9]*")
    newest = max(offsets, key=lambda one: int(one.name))
    text = newest.read_text()
    assert f'"{name}":"{before}"' in text
    other = f'"{name}":"{after}"' if after is not None else '"another":"1"'
    newest.write_text(text.replace(f'"{name}":"{before}"', other))


def test_checksums_of_rows_are_seen_before_the_stop(tmp_path: Path) -> None:
    job = declare_recorded(tmp_path, HDFS, more=LOCAL)
    name = "spark.sql.streaming.stateStore.rowChecksum.enabled"
    set_in_offset_log(tmp_path, name, "false", "true")
    assert refusal(job, operation="compact", where="true").code == "row-checksum"


def test_a_join_of_format_4_is_refused_by_name(tmp_path: Path) -> None:
    job = declare_recorded(tmp_path, "4.3.0/rocksdb-changelog-join3", more=LOCAL)
    order = {"operation": "compact", "where": "true", "operator": 0}
    foresee(job, None, order)
    name = "spark.sql.streaming.join.stateFormatVersion"
    set_in_offset_log(tmp_path, name, "3", "4")
    assert refusal(job, **order).code == "join-format"


@pytest.mark.parametrize("after", ["false", None])
def test_rows_whose_key_does_not_say_where_they_are_get_no_other_partition(
    tmp_path: Path, after: str | None
) -> None:
    """A checkpoint that Spark 3.2 began has no such setting at all."""
    job, order = declare_recorded(tmp_path, ROCKSDB, more=LOCAL), {"operation": "rescale", "partitions": 5}
    foresee(job, None, order)
    set_in_offset_log(tmp_path, STRICT, "true", after)
    assert refusal(job, **order).code == "loose-distribution"
    foresee(job, None, {"operation": "compact", "where": "true"})


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("3.5.9/rocksdb-changelog-join", False),
        ("4.3.0/ids-changelog-join", False),
        ("4.3.0/rocksdb-changelog-within", False),
        ("4.3.0/ids-changelog-window", True),
        ("3.5.9/rocksdb-session", True),
    ],
)
def test_a_join_and_a_key_of_one_column_say_where_their_rows_are(
    tmp_path: Path, name: str, refused: bool
) -> None:
    job, order = declare_recorded(tmp_path, name, more=LOCAL), {"operation": "rescale", "partitions": 5}
    set_in_offset_log(tmp_path, STRICT, "true", "false")
    if not refused:
        foresee(job, None, order)
        return
    found = refusal(job, **order)
    assert found.code == "loose-distribution" and "operator 0" in found.message


def test_a_job_that_could_not_be_started_again_is_not_stopped(tmp_path: Path) -> None:
    job, order = declare_recorded(tmp_path, ROCKSDB, more=LOCAL), {"operation": "rescale", "partitions": 5}
    (tmp_path / "app.py").unlink()
    foresee(job, None, order)  # it does not run, so nothing is stopped
    job.records().set_desired("running", by=BY, why="a test")
    assert "app.py" in refusal(job, **order).message
    (tmp_path / "app.py").touch()
    foresee(job, None, order)


def test_a_job_that_never_ran_and_a_query_that_is_none(tmp_path: Path) -> None:
    job = declare(tmp_path)
    assert refusal(job, operation="rescale", partitions=3).code == "never-started"
    with refuses(StreambankError, "which-query"):
        foresee(job, "left", {"operation": "rescale", "partitions": 3})
