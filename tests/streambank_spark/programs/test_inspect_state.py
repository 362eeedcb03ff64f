"""Keys of state by size and by change, read by Spark, against what files and rows tell by other ways."""

from __future__ import annotations

import json
from argparse import Namespace
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streambank.checkpoint.closure import OperatorState, StoreState
from streambank.core.errors import InputError, NotFoundError
from streambank.declaration.load import load_jobs
from streambank.declaration.sla import Declared, SlaPolicy
from streambank.sla.assess import assess_job
from streambank.sla.skew.hot_key_record import read_hot_keys
from streambank.storage import open_store
from streambank_spark.programs.inspect_state import inspect_state, keep, laid_out, lines, main, parse
from streambank_spark.state.hot_keys import by_key, changes, sizes
from streambank_spark.state.state import StatePart, parts_of
from tests.support.checkpoint.recorded import checkpoint, unpack
from tests.support.jobs.declared import declare
from tests.support.refuses import refuses
from tests.support.spark.saved_state import name_of, save_jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def operator(name: str | None, *stores: str, variables: tuple[str, ...] = ()) -> OperatorState:
    return OperatorState(3, name, tuple(StoreState(each, 2, None, 1) for each in stores), variables)


def test_the_parts_of_an_operator_are_what_the_state_reader_reads_at_once() -> None:
    assert parts_of(operator("stateStoreSave", "default")) == [StatePart(3, "default")]
    assert parts_of(operator(None, "default")) == [StatePart(3, "default")]
    sides = [StatePart(3, "left", {"joinSide": "left"}), StatePart(3, "right", {"joinSide": "right"})]
    assert parts_of(operator("symmetricHashJoin", "default")) == sides
    assert parts_of(operator(None, "left-keyToNumValues", "right-keyToNumValues")) == sides
    variables = [
        StatePart(3, "last", {"stateVarName": "last"}),
        StatePart(3, "seen", {"stateVarName": "seen"}),
    ]
    assert (
        parts_of(operator("transformWithStateInPandasExec", "default", variables=("last", "seen")))
        == variables
    )
    assert [part.options for part in parts_of(operator("other", "a", "b"))] == [
        {"storeName": "a"},
        {"storeName": "b"},
    ]


def test_the_names_of_state_variables_come_from_the_operator_s_own_metadata() -> None:
    (found,) = checkpoint("4.3.0/ids-changelog-transform").plan().operators
    assert found.variables == ("last", "seen")
    (found,) = checkpoint("4.3.0/ids-changelog-join3").plan().operators
    assert found.variables == ()
    path = "state/0/_metadata/v2/0"
    odd = checkpoint("4.3.0/ids-changelog-transform").having(
        {path: lambda data: data.replace(b'\\"stateName\\"', b'\\"another\\"')}
    )
    assert odd.files[path] != checkpoint("4.3.0/ids-changelog-transform").files[path]
    assert odd.plan().operators[0].variables == (), "no reason to refuse a savepoint"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--savepoint", "b7"], "A savepoint needs its repository."),
        (["--checkpoint", "c", "--against", "b7"], "A savepoint needs its repository."),
        (["--savepoint", "b7", "-r", "r", "--batch", "3"], "--batch is for checkpoints."),
        (["--checkpoint", "c", "--top", "0"], "--top must be at least 1."),
        (["--checkpoint", "c", "--record"], "--jobs and --job go together."),
        (["--jobs", "f", "--job", "j", "--record", "--operator", "0"], "--record needs all of the state."),
        ([], "Say what to inspect."),
    ],
)
def test_arguments_that_do_not_go_together(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match=says):
        parse(arguments)
    assert main(arguments) == 2
    assert f"streambank: {says}" in capsys.readouterr().err


def options(*arguments: str | Path) -> Namespace:
    return parse([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with savepoints of several recorded checkpoints, each its own job."""
    return save_jobs(
        tmp_path_factory.mktemp("saved"),
        "hdfs-join",
        "ids-changelog-transform",
        "ids-changelog-join3",
        "rocksdb-window",
    )


def held(saved: Path) -> list[str]:
    """Marks of those who read a savepoint."""
    return [info.path for info in open_store(saved).list() if "/hold-" in info.path]


def test_a_savepoint_is_laid_out_for_as_long_as_it_is_read(saved: Path, tmp_path: Path) -> None:
    request = options(*_ref(saved, "ids-changelog-transform"), "--work", tmp_path / "work")
    with laid_out("spark://elsewhere:7077", request, request.savepoint) as (name, folder):
        assert name == f"ids-changelog-transform/{request.savepoint}"
        metadata = (Path(folder) / "state/0/_metadata/v2/0").read_text()
        assert f"{folder}/state/0/_stateSchema" in metadata, "Spark is led to this copy"
    assert not list((tmp_path / "work").rglob("*"))
    assert not held(saved)
    with laid_out("local[2]", options(*_ref(saved, "hdfs-join")), "b") as (_, folder):
        assert (Path(folder) / "metadata").is_file()
    assert not Path(folder).parent.exists()


def test_where_it_cannot_be_laid_out_is_said(saved: Path, tmp_path: Path) -> None:
    request = options(*_ref(saved, "hdfs-join"))
    with pytest.raises(InputError, match="all machines must see the staging directory"):
        laid_out("spark://elsewhere:7077", request, request.savepoint).__enter__()
    within = options(*_ref(saved, "hdfs-join"), "--work", saved)
    before = sorted(saved.rglob("*.json"))
    with refuses(InputError, "inside-repository"):
        laid_out("local", within, request.savepoint).__enter__()
    assert sorted(saved.rglob("*.json")) == before


@pytest.mark.spark
def test_rows_of_each_partition_are_those_that_the_snapshots_count(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = unpack("4.3.0/rocksdb-window", tmp_path) / "checkpoint"
    report = inspect_state(spark, options("--checkpoint", folder))
    assert (report["batch"], report["by"], report["against"]) == (7, "key", None)
    (found,) = report["operators"]
    assert [(each["partition"], each["rows"], each["keys"]) for each in found["partitions"]] == [
        (0, 5, 5),
        (1, 8, 8),
    ]
    assert (found["keys"], found["rows"]) == (13, 13)
    assert found["bytes"] == sum(each["bytes"] for each in found["top"])
    assert not any(each["hot"] for each in found["top"])
    assert found["top"][0]["key"].keys() == {"window", "k"}
    assert found["top"][0]["key"]["window"]["start"].endswith("00.000000Z")
    assert "operator 0 stateStoreSave (default): 13 keys, 13 rows" in "\n".join(lines(report))


@pytest.mark.storm
@pytest.mark.spark
def test_what_counts_as_a_key_may_be_said(spark: SparkSession, tmp_path: Path) -> None:
    folder = unpack("4.3.0/rocksdb-window", tmp_path) / "checkpoint"
    by = ("--checkpoint", folder, "--by")
    (found,) = inspect_state(spark, options(*by, "key.k", "--top", "2"))["operators"]
    assert found["keys"] == 7
    assert len(found["top"]) == 2
    assert isinstance(found["top"][0]["key"], str)
    with pytest.raises(InputError, match=r"State cannot be grouped by 'key\.nonsense'"):
        inspect_state(spark, options(*by, "key.nonsense"))
    with pytest.raises(InputError, match="no stateful operator 4"):
        inspect_state(spark, options("--checkpoint", folder, "--operator", "4"))
    with pytest.raises(InputError, match="no state called left"):
        inspect_state(spark, options("--checkpoint", folder, "--part", "left"))


@pytest.mark.spark
def test_a_missing_partition_is_an_error_and_not_fewer_keys(spark: SparkSession, tmp_path: Path) -> None:
    """The reader by itself would answer with the rows of the other partition."""
    folder = unpack("4.3.0/rocksdb-window", tmp_path) / "checkpoint"
    (folder / "state/0/1").rename(tmp_path / "gone")
    assert spark.read.format("statestore").load(str(folder)).count() == 5
    with refuses(NotFoundError, "missing-state-file"):
        inspect_state(spark, options("--checkpoint", folder))


@pytest.mark.storm
@pytest.mark.spark
@pytest.mark.parametrize("job", ["hdfs-join", "ids-changelog-join3"])
def test_both_sides_of_a_join_come_together(spark: SparkSession, saved: Path, job: str) -> None:
    (found,) = inspect_state(spark, options(*_ref(saved, job)))["operators"]
    assert found["parts"] == ["left", "right"]
    sides = [
        inspect_state(spark, options(*_ref(saved, job), "--part", side))["operators"][0]
        for side in ("left", "right")
    ]
    assert found["rows"] == sum(side["rows"] for side in sides) > 20
    assert found["bytes"] == sum(side["bytes"] for side in sides)
    assert found["keys"] == 7 == len(found["top"])


def _ref(saved: Path, job: str, batch: int | None = None) -> tuple[str | Path, ...]:
    """Arguments that name a savepoint."""
    return ("--savepoint", name_of(saved, job, batch), "--job", job, "-r", saved)


@pytest.mark.storm
@pytest.mark.spark
def test_all_variables_of_a_transform_with_state_make_a_key(spark: SparkSession, saved: Path) -> None:
    (found,) = inspect_state(spark, options(*_ref(saved, "ids-changelog-transform")))["operators"]
    assert found["parts"] == ["last", "seen"]
    assert (found["keys"], found["rows"]) == (7, 14), "a value and one map entry for each key"
    assert {key["rows"] for key in found["top"]} == {2}


@pytest.mark.storm
@pytest.mark.spark
def test_changes_between_two_savepoints(spark: SparkSession, saved: Path, tmp_path: Path) -> None:
    newest = _ref(saved, "rocksdb-window", 7)
    _, earlier, *_ = _ref(saved, "rocksdb-window", 3)
    report = inspect_state(spark, options(*newest, "--against", earlier, "--work", tmp_path / "work"))
    assert report["against"] == {"of": f"rocksdb-window/{earlier}", "batch": 3}
    (now,) = report["operators"]
    (then,) = inspect_state(spark, options("--savepoint", earlier, "--job", "rocksdb-window", "-r", saved))[
        "operators"
    ]
    found = now["changes"]
    before = {json.dumps(key["key"]): key["bytes"] for key in then["top"]}
    after = {json.dumps(key["key"]): key["bytes"] for key in now["top"]}
    assert (found["added"], found["removed"]) == (len(after.keys() - before), len(before.keys() - after))
    assert found["changed"] + found["same"] == len(after.keys() & before)
    assert found["added"] and found["removed"]
    steps = [abs(key["bytes"] - key["bytes_before"]) for key in found["top"]]
    assert steps == sorted(steps, reverse=True)
    assert f"since rocksdb-window/{earlier}, batch 3: {found['added']} keys added" in "\n".join(lines(report))
    # Nothing that was laid out is left, and nobody holds the savepoints any more.
    assert not list((tmp_path / "work").rglob("*"))
    assert not held(saved)


@pytest.mark.storm
@pytest.mark.spark
def test_the_largest_key_of_a_declared_job_is_judged_by_its_sla(
    spark: SparkSession, saved: Path, tmp_path: Path
) -> None:
    job = declare(
        tmp_path, more=f'[jobs.rocksdb-window]\napplication = "app.py"\ncheckpoint = "{tmp_path}/ck"\n'
    )
    jobs = load_jobs(job.source)
    control = f"{jobs.repository}.control"
    job = replace(jobs.job("rocksdb-window"), repository=saved.as_uri(), control=control)
    named = ("--jobs", job.source, "--job", job.name, "-r", saved, "--record")
    request = options(*named)
    assert request.savepoint == str(_ref(saved, "rocksdb-window", 7)[1]), "the newest good one"

    assert read_hot_keys(job.records()) is None
    report = inspect_state(spark, request)
    keep(request, report)

    recorded = read_hot_keys(job.records())
    assert recorded is not None and len(recorded) == 1
    fact = recorded[0]
    (found,) = report["operators"]
    assert fact.value == found["top"][0]["times_mean"] >= 1
    policy = SlaPolicy({"hot_key": Declared(warn=0.5)})
    verdicts = {one.objective: one for one in assess_job(replace(job, sla=policy)).verdicts}
    assert verdicts["hot_key"].level == "warn" and verdicts["hot_key"].value == fact.value
    said = json.dumps([one.to_dict() for one in verdicts.values()])
    assert found["top"][0]["key"]["k"] not in said, "nobody is told the key itself"
    with pytest.raises(InputError, match="is not a declared query"):
        options(*named[:2], "--job", "rocksdb-window/left")


@pytest.mark.spark
def test_a_key_is_hot_by_its_rows_or_by_its_bytes(spark: SparkSession) -> None:
    rows: list[tuple[Any, str, int]] = [((f"k{number}",), "x", number % 4) for number in range(100)]
    rows += [(("many",), "x", 1) for _ in range(60)] + [(("huge",), "x" * 9000, 2)]
    frame = spark.createDataFrame(rows, "key struct<k string>, value string, partition_id int")
    found = sizes(by_key([frame]), 3)
    assert (found.keys, found.rows) == (102, 161)
    assert [(key["key"]["k"], key["hot"]) for key in found.top] == [
        ("huge", True),
        ("many", True),
        ("k0", False),
    ]
    assert found.top[1]["rows"] == 60
    assert Counter(each["partition"] for each in found.partitions) == Counter(range(4))
    nothing = sizes(by_key([frame.where("false")]), 3)
    assert (nothing.keys, nothing.rows, nothing.bytes, nothing.top) == (0, 0, 0, [])


@pytest.mark.spark
def test_each_kind_of_change_is_told(spark: SparkSession) -> None:
    schema = "key string, value string, partition_id int"
    before = spark.createDataFrame(
        [("same", "x", 0), ("went", "xy", 0), ("other", "ab", 1), ("grew", "a", 1)], schema
    )
    after = spark.createDataFrame(
        [("same", "x", 0), ("came", "xyz", 0), ("other", "ba", 1), ("grew", "a", 1), ("grew", "a", 1)], schema
    )
    found = changes(by_key([before]), by_key([after]), 9)
    assert (found.added, found.removed, found.changed, found.same) == (1, 1, 2, 1)
    told = {each["key"]: (each["change"], each["rows_before"], each["rows"]) for each in found.top}
    assert told == {
        "came": ("added", 0, 1),
        "went": ("removed", 1, 0),
        "other": ("changed", 1, 1),
        "grew": ("changed", 1, 2),
    }
    assert found.top[-1]["key"] == "other", "its size is the same"
