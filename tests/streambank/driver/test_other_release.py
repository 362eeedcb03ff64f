"""What a Spark does not go on with is said before anything is launched or stopped for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streambank.checkpoint.closure import Closure
from streambank.checkpoint.reader import CheckpointReader
from streambank.control.control import JobControl
from streambank.control.generations import Generation
from streambank.core.errors import ConflictError, RefusedError, StreambankError
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.driver.other_release import (
    SCHEMA_CHECK,
    check_change,
    check_release,
    check_rewritable,
    obstacles,
    writer_of,
)
from tests.support.checkpoint.recorded import PLANNED, checkpoint, unpack
from tests.support.refuses import refuses


def closure(name: str) -> Closure:
    return checkpoint(name).plan()


@pytest.mark.parametrize("name", PLANNED)
def test_whoever_wrote_it_goes_on_with_it(name: str) -> None:
    version = name.partition("/")[0]
    assert obstacles(closure(name), version, version) == []


@pytest.mark.parametrize(
    ("name", "version", "why"),
    [
        ("4.3.0/ids-window", "3.5.9", "format v2"),
        ("4.3.0/rocksdb-transform", "3.5.9", "transformWithState"),
        ("4.3.0/rocksdb-changelog-join3", "3.5.9", "state format v3"),
        ("4.3.0/rocksdb-changelog-join3", "4.0.5", "state format v3"),
        ("4.3.0/stateless-offsets2", "4.1.4", "offset log has format v2"),
        ("4.0.5/ids-changelog-window", "4.3.0", "Spark 4.0 wrote"),
        ("3.5.9/hdfs-join", "4.3.0", "Spark 3.5 wrote the state of its joins"),
    ],
)
@pytest.mark.parametrize("is_known", [True, False])
def test_what_another_one_does_not_go_on_with(name: str, version: str, why: str, is_known: bool) -> None:
    written_by = name.partition("/")[0] if is_known else None
    with refuses(RefusedError, "checkpoint-of-another-spark") as caught:
        check_release("orders", closure(name), version, written_by)
    assert why in caught.value.message and version in caught.value.message


def test_a_record_tells_spark_4_0_what_its_snapshots_do_not() -> None:
    """It writes snapshots of version 1, too, where another query of its JVM had format v1."""
    found = closure("4.3.0/ids-changelog-window")
    assert found.spark.snapshot_version == 1
    assert obstacles(found, "4.0.5", "4.3.0") == [
        "Spark 4.3.0 wrote its RocksDB state in checkpoint format v2"
    ]
    assert obstacles(found, "4.0.5", "4.0.5") == [] == obstacles(found, "4.0.5")
    assert obstacles(found, "4.3.0", "4.0.5") == [], "4.3 reads them"


def test_a_join_of_3_5_goes_on_where_the_setting_for_it_is_declared() -> None:
    found = closure("3.5.9/hdfs-join")
    assert obstacles(found, "4.3.0", "3.5.9", {SCHEMA_CHECK: "false"}) == []
    assert obstacles(closure("4.3.0/hdfs-join"), "4.3.0", "4.0.5") == []


def test_what_is_not_known_is_left_to_spark() -> None:
    found = closure("4.0.5/ids-window")
    assert obstacles(found, "9.0.0", "4.0.5") == []
    bare = replace(found, spark=replace(found.spark, snapshot_version=None))
    assert obstacles(bare, "4.3.0") == [], "no snapshot says which Spark wrote it, nor does a record"
    assert obstacles(bare, "4.3.0", "4.0.5") != [] == obstacles(bare, "4.3.0", "4.1.4")
    hdfs = replace(found, spark=replace(found.spark, provider="hdfs"))
    assert obstacles(hdfs, "4.3.0", "4.0.5") == [], "only RocksDB's files have that header"


@pytest.mark.parametrize("name", PLANNED)
def test_which_state_can_be_rewritten(name: str) -> None:
    version, _, cell = name.partition("/")
    if version != "4.0.5" or not cell.startswith("ids"):
        check_rewritable(closure(name), version)
        return
    with refuses(RefusedError, "state-of-another-spark"):
        check_rewritable(closure(name), version)


def orders(folder: Path, name: str, more: str = "") -> tuple[Job, JobControl, Generation]:
    """A job whose first generation is a recorded checkpoint, and its records."""
    location = str(unpack(name, folder / "old") / "checkpoint")
    jobs = folder / "jobs.toml"
    head = f'repository = "r"\n[jobs.orders]\napplication = "app.py"\ncheckpoint = "{location}"\n'
    jobs.write_text(head + more)
    job = load_jobs(jobs).job("orders")
    control = job.records()
    return job, control, control.generations("main").ensure_first(job.queries["main"], by={})


def test_who_wrote_it_is_asked_of_the_checkpoint_that_counts(tmp_path: Path) -> None:
    """Of one that was restored no record says it."""
    job, control, first = orders(tmp_path, "4.0.5/ids-window")
    check_change(job, control, "4.0.5")
    assert writer_of(control, "main") is None
    with pytest.raises(RefusedError):
        check_change(job, control, "4.3.0")
    control.record_query("main", {"generation": first.number, "spark_version": "4.3.0"})
    assert writer_of(control, "main") == "4.3.0"
    check_change(job, control, "4.3.0")
    control.record_query("main", {"generation": first.number + 1, "spark_version": "4.3.0"})
    assert writer_of(control, "main") is None
    with pytest.raises(RefusedError):
        check_change(job, control, "4.3.0")


def test_the_defaults_of_the_jobs_own_spark_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    home = tmp_path / "spark"
    for folder in ("bin", "jars", "conf"):
        (home / folder).mkdir(parents=True)
    (home / "bin" / "spark-submit").touch()
    job, control, _ = orders(tmp_path, "3.5.9/rocksdb-changelog-join", f'spark_home = "{home}"\n')
    with pytest.raises(RefusedError, match="state of its joins"):
        check_change(job, control, "4.3.0")
    (home / "conf" / "spark-defaults.conf").write_text(f"# ours\n{SCHEMA_CHECK}  false\n")
    check_change(job, control, "4.3.0")
    own = replace(job, spark={SCHEMA_CHECK: "true"})
    with pytest.raises(RefusedError, match="state of its joins"):
        check_change(own, control, "4.3.0")


@pytest.mark.parametrize("moves", [4, 5])
def test_a_checkpoint_that_moves_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    job, control, first = orders(tmp_path, "4.0.5/ids-window")
    control.record_query("main", {"generation": first.number, "spark_version": "4.0.5"})
    read, looks = CheckpointReader.closure, []

    def moving(self: CheckpointReader, *args: Any, **kwargs: Any) -> Closure:
        looks.append(args)
        if len(looks) <= moves:
            raise ConflictError("The checkpoint moved.", code="checkpoint-moved")
        return read(self, *args, **kwargs)

    monkeypatch.setattr(CheckpointReader, "closure", moving)
    with pytest.raises(StreambankError) as refused:
        check_change(job, control, "4.3.0")
    assert (refused.value.code, len(looks)) == (
        ("checkpoint-of-another-spark", 5) if moves == 4 else ("checkpoint-moved", 5)
    )
