"""Rows that break a rule are repaired in a new savepoint; no other row is touched, and nothing is guessed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streambank.core.errors import InputError, IntegrityError, RefusedError, StreambankError
from streambank_spark.rewrite import repair, row_patch
from streambank_spark.rewrite.repair import StateRepair, repair_savepoint, repair_state
from streambank_spark.rewrite.validate_request import Assignment
from streambank_spark.state.rule import Rule
from tests.support.cli import streambank
from tests.support.declared_commands import install_commands
from tests.support.refuses import refuses
from tests.support.spark.saved_state import JOB, SavedState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


class Bench(SavedState):
    """What is asked of a savepoint's state."""

    def rows(self, savepoint: str | None) -> dict[str, list[tuple[str, Any]]]:
        """Of each part the rows: partition and key as text, and the value."""
        with self.state(savepoint) as state:
            return {
                part.name: sorted(
                    (str({name: value for name, value in row.items() if name != "value"}), row.get("value"))
                    for row in (one.asDict(recursive=True) for one in state.frame(part).collect())
                )
                for operator in state.operators()
                for part in state.parts(operator)
            }

    def repair(self, rule: str, *repairs: str, **more: Any) -> StateRepair:
        rules, assignments = [Rule.parse(rule)], [Assignment.parse(one) for one in repairs]
        given = {"limit": 2, **more}
        return repair_savepoint(self.source(), rules, assignments, **given)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    assert not list((tmp_path / "work").rglob("*")), "what was laid out is gone"


QUICK = [("hdfs-global", "value.sum", 0)]
STORM = [
    ("ids-changelog-transform", "value.n", 7),
    ("rocksdb-window", "value.sum", 90),
    ("hdfs-window", "value.sum", 120),
    ("ids-changelog-window", "value.sum", 120),
    ("ids-global", "value.sum", 0),
    ("hdfs-session", "value.sum", 90),
    ("hdfs-pandas-state", "value.groupState.n", 4),
    ("rocksdb-changelog-within", "value.expiresAtMicros", 0),
]
CASES = [*QUICK, *(pytest.param(*each, marks=pytest.mark.storm) for each in STORM)]


def number(value: Any, path: list[str]) -> int:
    for name in path:
        value = value[name]
    return int(value)


def with_number(value: Any, path: list[str], new: int) -> Any:
    first, *rest = path
    return {**value, first: with_number(value[first], rest, new) if rest else new}


@pytest.mark.parametrize(("name", "column", "limit"), CASES)
@pytest.mark.storm
def test_broken_rows_get_what_the_expression_says_and_all_others_stay(
    spark: SparkSession, name: str, column: str, limit: int, folder: Path
) -> None:
    """The model: the sign of the number is turned where it is not below the limit, and nowhere else."""
    bench = Bench(spark, name, folder)
    before = bench.rows(bench.savepoint)
    part, path = ("seen" if "seen" in before else "default"), column.split(".")[1:]
    expected = {each: list(rows) for each, rows in before.items()}
    expected[part] = [
        (key, with_number(value, path, -number(value, path)) if number(value, path) >= limit else value)
        for key, value in before[part]
    ]
    broken = sum(number(value, path) >= limit for _, value in before[part])
    found = bench.repair(f"0/{part}: {column} < {limit}", f"0/{part}: {column} = -{column}", note="turned")
    assert [(each.part, each.rows) for each in found.repairs] == [(part, broken)] and broken
    assert bench.rows(found.derived.savepoint) == expected
    assert bench.rows(bench.savepoint) == before
    new = bench.repository.load(JOB, found.derived.savepoint or "")
    assert (new.derived_from, new.taken_by["reason"], new.note) == (bench.savepoint, "repair", "turned")


@pytest.mark.storm
def test_the_command_shows_rows_before_and_after_and_a_dry_run_writes_nothing(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_commands(monkeypatch)
    bench = Bench(spark, "rocksdb-window", folder)
    place = (bench.savepoint, "-r", folder / "repository", "--work", folder / "work")
    asked = (
        "state",
        "validate",
        *place,
        "--rule",
        "value.sum <= 90",
        "--repair",
        "value.sum = least(value.sum, 90)",
    )
    dry = streambank(*asked, "--dry-run", "--samples", 3, "--json")
    (told,) = dry.document["repairs"]
    assert dry.code == 1 and dry.document["savepoint"] is None and told["rows"] > 3
    assert len(told["samples"]) == 3
    assert all(each["before"]["sum"] > 90 and each["after"] == {"sum": 90} for each in told["samples"])
    assert len(list(bench.repository.manifests(JOB))) == 1
    done = streambank(*asked)
    assert (
        done.code == 0
        and "Restore b" in done.out
        and '- {"sum": 9' in done.out
        and '+ {"sum": 90}' in done.out
    )
    (new,) = (one.savepoint for one in bench.repository.manifests(JOB) if one.savepoint != bench.savepoint)
    again = streambank("state", "validate", new, *place[1:], "--rule", "value.sum <= 90", "--repair",
                       "value.sum = 1", "--json")  # fmt: skip
    assert (again.code, again.document["ok"], again.document["savepoint"]) == (0, True, None)
    for more in (("--batch", 3), ("--dry-run",)):
        wrong = streambank("state", "validate", folder / "checkpoint", "--rule", "true", *more, "--json",
                           *(("--repair", "value.sum = 1") if "--batch" in more else ()))  # fmt: skip
        assert (wrong.code, wrong.document["error"]) == (2, "usage")


@pytest.mark.parametrize(
    ("name", "rule", "assigned", "kind", "code"),
    [
        ("hdfs-window", "value.sum < 0", "value.colour = 3", InputError, "bad-expression"),
        pytest.param(
            "hdfs-window",
            "value.sum < 0",
            "value.sum = colour",
            InputError,
            "bad-expression",
            marks=pytest.mark.storm,
        ),
        pytest.param(
            "hdfs-window",
            "value.sum < 0",
            "value.sum = int(rand() * -1000000)",
            InputError,
            "bad-expression",
            marks=pytest.mark.storm,
        ),
        ("hdfs-window", "value.sum < 0", "value.sum = raise_error('no')", InputError, "bad-expression"),
        ("hdfs-window", "value.sum < 0", "value.sum = 7", InputError, "not-repaired"),
        pytest.param(
            "hdfs-window",
            "value.sum < 0",
            "5: value.sum = -7",
            InputError,
            "not-repaired",
            marks=pytest.mark.storm,
        ),
        ("hdfs-session", "value.sum < 0", "value.session_window.start = null", RefusedError, "repair-key"),
        pytest.param(
            "hdfs-session",
            "value.sum < 0",
            "value.k = 'x'",
            RefusedError,
            "repair-key",
            marks=pytest.mark.storm,
        ),
        ("hdfs-join", "0/left: false", "0/left: value.lv = 1", RefusedError, "repair-part"),
        ("ids-changelog-transform", "0/last: false", "0/last: value.v = 1", RefusedError, "repair-part"),
    ],
)
def test_what_cannot_be_repaired_is_refused_by_name(
    spark: SparkSession,
    name: str,
    rule: str,
    assigned: str,
    kind: type[StreambankError],
    code: str,
    folder: Path,
) -> None:
    bench = Bench(spark, name, folder)
    with refuses(kind, code) as caught:
        bench.repair(rule, assigned)
    assert caught.value.hint
    assert len(list(bench.repository.manifests(JOB))) == 1


@pytest.mark.parametrize(
    ("text", "kind", "code"),
    [
        ("key.k = 'x'", RefusedError, "repair-key"),
        ("value = 3", InputError, "bad-expression"),
        ("value.sum == 3", InputError, "bad-expression"),
        ("value.sum", InputError, "bad-expression"),
    ],
)
def test_what_is_no_assignment(text: str, kind: type[StreambankError], code: str) -> None:
    with refuses(kind, code):
        Assignment.parse(text)


def test_an_assignment_says_of_what_it_is() -> None:
    assert Assignment.parse("2/seen: value.a.b = 1 + value.a.b") == Assignment(
        "a.b", "1 + value.a.b", 2, "seen"
    )
    assert Assignment.parse("value.n = if(value.n = 3, 1, 2)", 1) == Assignment(
        "n", "if(value.n = 3, 1, 2)", 1, None
    )


@pytest.mark.storm
def test_state_in_another_encoding_is_never_changed_by_guess(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its settings, and where these say nothing, by its bytes: RocksDB and HDFS-backed."""
    for name in ("rocksdb-window", "hdfs-window"):
        bench = Bench(spark, name, folder / name)
        with bench.state(bench.savepoint) as state:
            whole = state.closure
            for conf, code in (({repair._ENCODING: "avro"}, "repair-encoding"),
                               ({repair._ROW_CHECKSUM: "true"}, "row-checksum")):  # fmt: skip
                state.closure = replace(whole, offset_conf={**whole.offset_conf, **conf})
                with refuses(RefusedError, code):
                    repair_state(state, [Rule("false")], [Assignment("sum", "1")])
        monkeypatch.setattr(repair, "changes", _otherwise)
        with refuses(RefusedError, "repair-encoding") as caught:
            bench.repair("value.sum < 0", "value.sum = -1")
        assert "stored in another format" in str(caught.value)
        assert len(list(bench.repository.manifests(JOB))) == 1
        monkeypatch.undo()


def _otherwise(*given: Any, honest: Callable[..., DataFrame] = repair.changes) -> DataFrame:
    """As if the rows were encoded in another way than the store's."""
    changes = honest(*given)
    return changes.selectExpr("partition", "key_was", "value_was || X'00' AS value_was", "value_new")


def patch_another_row(monkeypatch: pytest.MonkeyPatch) -> list[DataFrame]:
    """Give every row the largest value that a patch has; the frames where that was done."""
    honest = row_patch.ChangedRows.in_raw
    fired = []

    def careless(one: row_patch.ChangedRows, frame: DataFrame) -> DataFrame:
        fired.append(frame)
        changed = honest(one, frame)
        some = bytes(changed.agg({"value_bytes": "max"}).collect()[0][0]).hex()
        other = f"if(length(value_bytes) > 0, X'{some}', value_bytes) AS value_bytes"
        return changed.selectExpr(*(other if name == "value_bytes" else name for name in frame.columns))

    monkeypatch.setattr(row_patch.ChangedRows, "in_raw", careless)
    return fired


@pytest.mark.storm
def test_a_repair_that_touches_another_row_makes_no_savepoint(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes are compared with the very function that made them, so the second proof has to find it."""
    bench = Bench(spark, "rocksdb-window", folder)
    fired = patch_another_row(monkeypatch)
    with refuses(IntegrityError, "rewrite-differs") as caught:
        bench.repair("value.sum < 90", "value.sum = 1")
    assert fired
    assert "changed state" in str(caught.value)
    assert len(list(bench.repository.manifests(JOB))) == 1
