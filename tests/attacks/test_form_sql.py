"""The expression of a form, a declaration or a request is SQL, and SQL reads files and calls Java.

The attacker may trigger a DAG. What they write must be refused before anything of it runs, and what people
write who only want keys to expire must work.
"""

from __future__ import annotations

import json
import logging
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException

from streambank.core.errors import FormatError, InputError
from streambank_spark.private.expressions import ALLOWED, class_of_function, computed
from streambank_spark.programs.rewrite_state import main
from streambank_spark.rewrite.expiry import Where, expired
from streambank_spark.rewrite.repair import repair_state
from streambank_spark.rewrite.validate_request import Assignment
from streambank_spark.state.rule import Rule
from streambank_spark.state.state import QueryState
from streambank_spark.state.validate import validate_state
from tests.support.checkpoint.recorded import unpack
from tests.support.paths import ROOT
from tests.support.spark.saved_state import JOB, SavedState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

COLUMNS = (
    "partition_id int, key struct<id:bigint,name:string>, value struct<count:bigint,text:string,"
    "seen:timestamp,day:date,tags:array<string>,ns:array<int>,m:map<string,int>,b:binary,d:double,"
    "price:decimal(10,2),ok:boolean>"
)
ROW = (
    "0 as partition_id, named_struct('id', 17L, 'name', 'ann-7') as key, named_struct('count', 3L, "
    "'text', '{\"a\": 5}', 'seen', timestamp '2026-01-02 03:04:05', 'day', date '2026-01-02', 'tags', "
    "array('x', 'y'), 'ns', array(3, 1), 'm', map('a', 1), 'b', cast('bytes' as binary), 'd', 1.5D, "
    "'price', 9.99BD, 'ok', true) as value"
)
HARMLESS = (Path(__file__).parent / "harmless.sql").read_text(encoding="utf-8").splitlines()
"""Expressions that people write, one a line: all functions that are allowed are in them."""
ATTACKS = {
    # The finding's own.
    "raise_error((select max(value) from text.`{secret}`)) is null": "raise_error",
    "java_method('org.apache.hadoop.fs.FileUtil', 'chmod', '{victim}', '777') is null": "java_method",
    "java_method('org.apache.hadoop.fs.FileUtil', 'symLink', '{secret}', '{link}') is null": "java_method",
    "raise_error(java_method('java.lang.System', 'getenv', 'HOME')) is null": "raise_error",
    # Reflection by its other names, and hidden in what is fine.
    "reflect('java.lang.System', 'getProperty', 'user.home') is null": "reflect",
    "try_reflect('java.lang.System', 'getProperty', 'user.home') is null": "try_reflect",
    "coalesce(Java_Method('java.lang.System', 'load', '{secret}'), 'x') = 'x'": "Java_Method",
    "exists(value.tags, t -> reflect('java.lang.System', 'getenv', t) is null)": "reflect",
    "case when value.ok then true else `reflect`('java.lang.System', 'gc') is null end": "reflect",
    "system.builtin.java_method('java.lang.System', 'gc') is null": "system.builtin.java_method",
    # Other relations.
    "(select max(value) from text.`{secret}`) is null": "a subquery",
    "exists (select * from parquet.`s3a://other/state`)": "a subquery",
    "key.id in (select 1)": "a subquery",
    "not exists (with t as (select 1) select * from t)": "a subquery",
    "array(1, (select 2))[1] = 2": "a subquery",
    "key.id in (table range)": "",
    # What makes rows, and what looks at several.
    "explode(value.tags) = 'x'": "explode",
    "inline(array(struct(1))) = 1": "inline",
    "stack(1, 2) = 2": "stack",
    "range(3) = 1": "range",
    "sum(value.count) > 1": "sum",
    "count(*) > 1": "count",
    "row_number() over (order by key.id) > 1": "a window",
    "any_value(value.ok)": "an aggregate",
    # What tells of other things than the row, or never the same.
    "current_user() = 'root'": "current_user",
    "current_user = 'root'": "the current user",
    "user() = 'root'": "user",
    "session_user = 'root'": "the current user",
    "current_catalog() = 'x'": "current_catalog",
    "current_database() = 'x'": "current_database",
    "current_timezone() = 'x'": "current_timezone",
    "version() = 'x'": "version",
    "input_file_name() = 'x'": "input_file_name",
    "rand() > 0.5": "rand",
    "uuid() = 'x'": "uuid",
    "shuffle(value.tags)[0] = 'x'": "shuffle",
    "monotonically_increasing_id() > 3": "monotonically_increasing_id",
    "spark_partition_id() = 0": "spark_partition_id",
    "stolen = 'x'": "a session variable",
    "session.stolen = 'x'": "a session variable",
    # What fails on purpose, and reads what it is given as code, a class, a schema or XML.
    "assert_true(value.ok) is null": "assert_true",
    "raise_error('x') is null": "raise_error",
    "from_json(value.text, 'a int').a = 1": "from_json",
    "schema_of_json('{{}}') = 'x'": "schema_of_json",
    "from_avro(value.b, '{{}}') is null": "from_avro",
    "from_protobuf(value.b, 'm', '{secret}') is null": "from_protobuf",
    "xpath_string('<!DOCTYPE a [<!ENTITY e SYSTEM \"{secret}\">]><a>&e;</a>', 'a') = ''": "xpath_string",
    "identifier('key').id = 1": "IDENTIFIER",
    "identifier(java_method('java.lang.System', 'getenv', 'HOME')) is null": "IDENTIFIER",
    "identifier('java_' || 'method')('java.lang.System', 'gc') is null": "",
    "key.id = :id": "a parameter",
    "key.id = ?": "a parameter",
    # Functions that somebody registered, also under the name of a harmless one.
    "stealing(1) = 1": "stealing",
    "factored(1) = 1": "factored",
    "soundex('x') = 'x'": "soundex",
    # What takes for ever, or fills the memory.
    "key.name rlike '(a+)+$'": "take too long",
    "key.name rlike '(a|a)*b'": "take too long",
    "key.name rlike 'a?a?a?a?a?a?a?a?a?a?aaaaaaaaaa'": "take too long",
    "key.name rlike '(a|a)(a|a)(a|a)(a|a)b'": "take too long",
    "key.name rlike '.*.*.*x'": "take too long",
    "key.name rlike '\\\\c[?a*a*a*a*b|]'": "take too long",
    "replace(replace(replace(replace(key.name, 'a', 'aa'), 'a', 'b'), 'a', 'c'), 'a', 'd') = 'x'": "longer",
    "concat(upper(concat(upper(concat(upper(concat(key.name, 'b')), 'c')), 'd')), 'e') = 'x'": "longer",
    "key.name rlike '(?=a+)b'": "take too long",
    "key.name rlike '\\\\Q[\\\\E(a+)+[]'": "take too long",
    "regexp_replace(key.name, '(.*)*x', '') = ''": "take too long",
    "split(key.name, '(a+)+b')[0] = ''": "take too long",
    "key.name like '%a%a%a%a%a%a%b'": "take too long",
    "key.name rlike value.text": "is computed",
    "key.name rlike concat('(a', '+)+')": "is computed",
    "repeat('x', 2000000000) = 'x'": "repeat",
    "size(sequence(1, 2000000000)) = 1": "sequence",
    "aggregate(value.ns, 'x', (a, n) -> a || a) = 'x'": "aggregate",
    "lpad('x', 2000000000, 'y') = 'x'": "lpad",
    "1 = 1" + " and 1 = 1" * 1_000: "characters",
}


class Planted:
    """What an attacker is after, in a folder: a secret file, another one whose mode they want to change."""

    def __init__(self, folder: Path) -> None:
        self.secret, self.victim, self.link = (folder / name for name in ("secret", "victim", "link"))
        self.secret.write_text("planted-secret-77")
        self.victim.write_text("")
        self.victim.chmod(0o600)

    def fill_in(self, attack: str) -> str:
        return attack.format(secret=self.secret, victim=self.victim, link=self.link)

    def check_untouched(self) -> None:
        assert stat.S_IMODE(self.victim.stat().st_mode) == 0o600
        assert not self.link.is_symlink()


def rows_in(session: SparkSession) -> DataFrame:
    return session.createDataFrame([], COLUMNS).unionByName(session.sql(f"select {ROW}"))


@pytest.fixture(scope="module")
def theirs(spark: SparkSession) -> DataFrame:
    """Rows in a session with functions and a variable of somebody's own."""
    own = spark.newSession()
    own.udf.register("stealing", lambda one: one)
    own.udf.register("soundex", lambda one: one)
    own.sql("create or replace temporary function factored(x int) returns int return x")
    own.sql("declare or replace variable stolen string default 'x'")
    return rows_in(own)


@pytest.fixture
def planted(tmp_path: Path) -> Iterator[Planted]:
    found = Planted(tmp_path)
    yield found
    found.check_untouched()


@pytest.mark.parametrize("attack", ATTACKS, ids=range(len(ATTACKS)))
def test_what_does_more_than_compute_is_refused_by_name(
    theirs: DataFrame, planted: Planted, attack: str
) -> None:
    try:
        computed(theirs, planted.fill_in(attack))
    except InputError as error:
        assert error.code == "bad-expression"
        assert ATTACKS[attack] in error.message, error.message
        assert "planted-secret-77" not in f"{error.message} {error.hint}"
    except AnalysisException:
        assert not ATTACKS[attack], "Spark cannot parse it, and says so"
    else:
        pytest.fail("it was let through")


@pytest.mark.parametrize(
    "written", [HARMLESS[::12], pytest.param(HARMLESS, marks=pytest.mark.storm)], ids=["some", "all"]
)
def test_what_people_write_is_computed(spark: SparkSession, written: list[str]) -> None:
    rows = rows_in(spark.newSession())
    columns = [computed(rows, one).alias(str(number)) for number, one in enumerate(written)]
    (row,) = rows.select(columns).collect()
    assert [text for text, value in zip(written, row, strict=True) if value not in (True, False)] == []


def test_another_spark_is_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_in(spark.newSession())
    monkeypatch.setattr("pyspark.__version__", "5.0.0")
    with pytest.raises(FormatError, match=r"5\.0\.0") as caught:
        computed(rows, "true")
    assert caught.value.code == "spark-not-supported"


def test_every_way_to_state_is_guarded(spark: SparkSession, planted: Planted, tmp_path: Path) -> None:
    state = QueryState(spark, str(unpack("4.3.0/hdfs-session", tmp_path) / "checkpoint"))
    attack = planted.fill_in("java_method('org.apache.hadoop.fs.FileUtil', 'chmod', '{victim}', '777')")
    keeps = Rule("value.sum > 1000000")
    asks: list[Callable[[], object]] = [
        lambda: expired(state, Where(f"{attack} is null", 0)),
        lambda: validate_state(state, [Rule(f"{attack} is null")], 3),
        lambda: repair_state(state, [Rule(f"{attack} is null")], []),
        lambda: repair_state(state, [keeps], [Assignment("sum", f"length({attack})")]),
    ]
    for ask in asks:
        with pytest.raises(InputError, match="java_method") as caught:
            ask()
        assert caught.value.code == "bad-expression"


def refusal(saved: SavedState, order: dict[str, Any], from_form: bool) -> dict[str, str]:
    """What the application that rewrites state answers to a dry run."""
    plan = {
        "repository": saved.repository.store.uri,
        "job": JOB,
        "savepoint": saved.savepoint,
        "order": {**order, "dry_run": True, "from_form": from_form},
    }
    source, report = saved.folder / "plan.json", saved.folder / "report.json"
    source.write_text(json.dumps(plan))
    assert main(["--plan", str(source), "--report", str(report)])
    found: dict[str, str] = json.loads(report.read_text())["error"]
    return found


@pytest.mark.parametrize(
    ("where", "quoted", "condition"),
    [("cast(key.k as int) = 1", "'k", "CAST_INVALID_INPUT"), ("value.summ = 1", "`sum`", "FIELD_NOT_FOUND")],
)
def test_spark_quotes_nothing_of_the_state_to_a_form(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    quoted: str,
    condition: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        monkeypatch.delitem(logging.Logger.manager.loggerDict, name, raising=False)  # as in another process
    saved = SavedState(spark, "hdfs-session", tmp_path)
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    levels: list[str] = []
    monkeypatch.setattr(type(spark.sparkContext), "setLogLevel", lambda self, level: levels.append(level))

    def asked(*, from_form: bool) -> str:
        return refusal(saved, {"operation": "compact", "where": where}, from_form)["message"]

    assert quoted in asked(from_form=False) and not levels
    assert quoted in capfd.readouterr().err, "the negative control: PySpark writes it there"
    told = asked(from_form=True)
    assert condition in told and quoted not in told
    assert quoted not in capfd.readouterr().err
    assert levels == ["OFF"]


@pytest.mark.parametrize(
    ("order", "words"),
    [
        (
            {"operation": "compact", "where": "key.k = 's3cret' 7"},
            "it is not one SQL expression (PARSE_SYNTAX_ERROR)",
        ),
        ({"operation": "compact", "where": "key.s3cret = 1"}, "a column that is not there (FIELD_NOT_FOUND)"),
        ({"operation": "compact", "where": "'s3cret'"}, "gives a string instead of true or false"),
        ({"operation": "transform", "sets": ["value.sum = 's3cret' 7"]}, "PARSE_SYNTAX_ERROR"),
        ({"operation": "transform", "sets": ["value.sum = key.s3cret"]}, "expression for value.sum cannot"),
        (
            {"operation": "transform", "sets": ["value.sum = 1"], "where": "key.k = 's3cret' 7"},
            "condition cannot",
        ),
        ({"operation": "transform", "delete_where": "key.k = 's3cret' 7"}, "condition cannot be used"),
        ({"operation": "bootstrap", "values": ["sum = 's3cret' 7"]}, "expression for value.sum cannot"),
    ],
)
def test_neither_an_expression_from_a_form_nor_sparks_sentence_about_it_is_repeated(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    order: dict[str, Any],
    words: str,
) -> None:
    saved = SavedState(spark, "hdfs-window", tmp_path)
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    monkeypatch.setattr(type(spark.sparkContext), "setLogLevel", lambda self, level: None)
    (tmp_path / "table.json").write_text('{"n": 1}\n')
    if order["operation"] == "bootstrap":
        keys = ["window.start = now()", "window.end = now()", "k = 'a'"]
        order = {**order, "table": str(tmp_path / "table.json"), "existing": "replace", "keys": keys}

    assert "s3cret" in refusal(saved, order, from_form=False)["message"], "the negative control"
    refused = refusal(saved, order, from_form=True)
    assert refused["error"] == "bad-expression" and words in refused["message"]
    assert "s3cret" not in json.dumps(refused)


def allowed_functions(session: SparkSession) -> set[str]:
    registry: Any = session._jsparkSession.sessionState().functionRegistry()
    every = registry.listFunction()
    names = {str(every.apply(place).funcName()) for place in range(every.size())}
    return {name for name in names if class_of_function(name, registry) in ALLOWED}


def test_every_function_that_is_allowed_is_tried_here_and_listed_for_people(spark: SparkSession) -> None:
    words = {name for name in allowed_functions(spark) if name.isidentifier()}
    written = set(re.findall(r"\b(\w+)\(", " ".join(HARMLESS)))
    operators = {"and", "or", "not", "in", "like", "between", "when", "rlike", "regexp", "ilike", "div"}
    assert words - written - operators == {"time"}
    page = (ROOT / "docs/howto/rewrite-state.md").read_text(encoding="utf-8")
    section = page.partition("## What an expression may use")[2].partition("\nSo there are no")[0]
    listed = set(re.findall(r"`(\w+)`", section.partition("| conditions |")[2]))
    assert words - operators - {"time"} == listed - operators - {"try_cast"}
