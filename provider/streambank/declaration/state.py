"""What a job declares about its state: by which Spark it is worked on, what expires, and its hot keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streambank.core.choices import (
    EXISTING_ROWS,
    EXPRESSIONS,
    TABLE_FORMATS,
    ExistingRows,
    Expressions,
    TableFormat,
)
from streambank.core.shape import JsonObject
from streambank.declaration.credentials import refuse_credentials
from streambank.declaration.fields import Fields

MIN_SAMPLE = 0.0001
MOST_KEYS = 50
_COLUMN = re.compile(r"[^\W\d][\w \-]*(\.[^\W\d][\w \-]*)*")


@dataclass(frozen=True, slots=True)
class StatePolicy:
    """`[jobs.NAME.state]`: the Spark that works on the job's state; the job's own where nothing is said.

    Attributes:
        master: Spark's master; None for the job's.
        spark: Spark's settings, added to the job's or in their place.
        spark_home: The distribution of Spark that does it; None for the installed one.
        python: An interpreter whose PySpark does it; None for this one's.
        work: Under which location state is laid out meanwhile, seen by all machines of that Spark; None for
            beside the checkpoint.
    """

    master: str | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    spark_home: str | None = None
    python: str | None = None
    work: str | None = None


@dataclass(frozen=True, slots=True)
class CompactPolicy:
    """`[jobs.NAME.compact]`: what of the job's state expires, and when it is made to go.

    Attributes:
        schedule: A cron expression or an Airflow preset; None for by hand only.
        query: Of which query; None for the only one.
        where: Keys go for all of whose rows this SQL expression holds.
        idle_for: Keys go that have not changed for so long, such as `30d`, by the savepoints that there are.
        operator: Of this stateful operator only.
        part: Judged by these rows alone.
        max_rows: So many rows go at most in one run, of each operator.
        approve: Whether a scheduled run asks a person, too; one by hand always does.
        expressions: Which conditions the form of `<job>.compact` takes: only the `declared` one, or `any`
            that somebody types there.
    """

    schedule: str | None = None
    query: str | None = None
    where: str | None = None
    idle_for: str | None = None
    operator: int | None = None
    part: str | None = None
    max_rows: int | None = None
    approve: bool = False
    expressions: Expressions = "declared"


@dataclass(frozen=True, slots=True)
class TransformPolicy:
    """`[jobs.NAME.transform]`: what `<job>.transform` changes in state; without it there is no such DAG.

    Attributes:
        query: Of which query; None for the only one.
        sets: What columns of rows get: `value.total = value.total * 100`.
        where: Which rows get it; None for all.
        delete_where: Keys go for all of whose rows this SQL expression holds.
        part: Of this part of it: a state variable.
        samples: How many changed rows of each part the plan shows.
        rehearse: Whether the form's rehearsal is on by default.
        expressions: Which expressions the form takes: only the `declared` ones, or `any`.
    """

    query: str | None = None
    sets: tuple[str, ...] = ()
    where: str | None = None
    delete_where: str | None = None
    operator: int | None = None
    part: str | None = None
    samples: int = 0
    rehearse: bool = False
    expressions: Expressions = "declared"


@dataclass(frozen=True, slots=True)
class BootstrapPolicy:
    """`[jobs.NAME.bootstrap]`: of which table `<job>.bootstrap` makes state; without it there is no such DAG.

    Attributes:
        tables: Locations of tables; the form takes one of them, or what lies below one.
        query: Of which query; None for the only one.
        format: The format of the table; by its name for None.
        sql: A SELECT over the table, which is called `source` there; None for the table as it is.
        keys: Fields of the key, each `FIELD = EXPRESSION` over the columns of the table.
        values: Columns of the value, likewise.
        existing: What becomes of rows that are there; refused for None.
        part: Of this part of it: a state variable.
        samples: How many rows of state the plan shows.
        rehearse: Whether the form's rehearsal is on by default.
        expressions: Which expressions the form takes: only the `declared` ones, or `any`; and whether DAGs
            may use other SQL than is declared.
    """

    tables: tuple[str, ...]
    query: str | None = None
    format: TableFormat | None = None
    sql: str | None = None
    keys: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    existing: ExistingRows | None = None
    operator: int | None = None
    part: str | None = None
    samples: int = 0
    rehearse: bool = False
    expressions: Expressions = "declared"


@dataclass(frozen=True, slots=True)
class ChangePolicies:
    """What of a job's state is made or changed by a form.

    Attributes:
        transform: `[jobs.NAME.transform]`; None where it is not declared.
        bootstrap: `[jobs.NAME.bootstrap]`; None where it is not declared.
    """

    transform: TransformPolicy | None = None
    bootstrap: BootstrapPolicy | None = None


@dataclass(frozen=True, slots=True)
class HotKeysPolicy(JsonObject):
    """`[jobs.NAME.hot_keys]`: how the keys with the most traffic are sampled; without the table they are not.

    Attributes:
        sample: The share of rows whose key is counted.
        keys: Columns that count as the key, at the input of each stateful operator; its own for none.
        window_s: Over how long batches are added up.
        max_keys: How many keys are reported of each operator.
        hashes: Whether the hashes of these keys are recorded, by which the keys can be found.
    """

    sample: float = 0.1
    keys: tuple[str, ...] = ()
    window_s: float = 600.0
    max_keys: int = 5
    hashes: bool = False


def read_hot_keys(fields: Fields) -> HotKeysPolicy | None:
    """Of `[jobs.NAME.hot_keys]`; None where it is not declared, or `false`."""
    if "hot_keys" not in fields.data or (table := fields.table_or_false("hot_keys")) is None:
        return None
    usual = HotKeysPolicy()
    sample, keys = table.number("sample", minimum=MIN_SAMPLE), table.texts("keys") or ()
    max_keys = table.whole("max_keys", minimum=1)
    policy = HotKeysPolicy(
        sample=usual.sample if sample is None else sample,
        keys=keys,
        window_s=table.duration_s("window") or usual.window_s,
        max_keys=usual.max_keys if max_keys is None else max_keys,
        hashes=table.boolean("hashes") or False,
    )
    if policy.sample > 1:
        raise table.mistake("sample", f"it is a share, and {policy.sample:g} is more than 1", "Write 0.1.")
    if policy.max_keys > MOST_KEYS:
        raise table.mistake("max_keys", f"it must be at most {MOST_KEYS}, not {policy.max_keys}")
    for key in keys:
        if not _COLUMN.fullmatch(key):
            raise table.mistake(
                "keys",
                f"{key!r} is not the name of a column",
                "Name columns, or fields of structs such as payload.user: an expression could fail.",
            )
    table.done()
    return policy


def read_state(fields: Fields) -> StatePolicy:
    """Of `[jobs.NAME.state]`."""
    spark = fields.settings("spark")
    if "spark.master" in spark:
        raise fields.mistake("spark", "the master is a separate field", "Use master.")
    refuse_credentials(spark, fields)
    policy = StatePolicy(
        master=fields.text("master"),
        spark=spark,
        spark_home=fields.file("spark_home"),
        python=fields.interpreter("python"),
        work=fields.location("work"),
    )
    fields.done()
    return policy


def read_compact(fields: Fields, queries: Mapping[str, str]) -> CompactPolicy:
    """Of `[jobs.NAME.compact]`.

    Args:
        queries: The job's queries.
    """
    if fields.duration_s("idle_for") is not None and fields.text("where") is not None:
        raise fields.mistake("idle_for", "it cannot be combined with where", "Leave one of them out.")
    policy = CompactPolicy(
        schedule=fields.schedule("schedule"),
        query=fields.text("query"),
        where=fields.text("where"),
        idle_for=fields.text("idle_for"),
        operator=fields.whole("operator", minimum=0),
        part=fields.text("part"),
        max_rows=fields.whole("max_rows", minimum=1),
        approve=fields.boolean("approve") or False,
        expressions=fields.choice("expressions", EXPRESSIONS) or CompactPolicy().expressions,
    )
    if policy.schedule is not None and policy.where is None and policy.idle_for is None:
        raise fields.mistake("schedule", "nothing says what expires", 'Add where, or idle_for = "30d".')
    _check_query(fields, policy.query, queries)
    if policy.schedule is not None and policy.query is None and len(queries) > 1:
        raise fields.mistake("schedule", "the job has several queries", "Add query.")
    fields.done()
    return policy


def read_changes(fields: Fields, queries: Mapping[str, str]) -> ChangePolicies:
    """Of `[jobs.NAME.transform]` and `[jobs.NAME.bootstrap]`.

    Args:
        fields: The job's table.
        queries: The job's queries.
    """
    return ChangePolicies(
        _read_transform(fields.table("transform"), queries) if "transform" in fields.data else None,
        _read_bootstrap(fields.table("bootstrap"), queries) if "bootstrap" in fields.data else None,
    )


def _read_transform(fields: Fields, queries: Mapping[str, str]) -> TransformPolicy:
    policy = TransformPolicy(
        sets=fields.texts("sets") or (),
        where=fields.text("where"),
        delete_where=fields.text("delete_where"),
        **_shared(fields, queries),
    )
    if policy.where is not None and not policy.sets:
        raise fields.mistake(
            "where", "it names the rows that get new values, and nothing is set", "Add sets."
        )
    if policy.expressions == "declared" and not policy.sets and policy.delete_where is None:
        raise fields.mistake(
            "expressions",
            "nothing says what is changed",
            'Add sets = ["value.total = value.total * 100"], delete_where, or expressions = "any".',
        )
    fields.done()
    return policy


def _read_bootstrap(fields: Fields, queries: Mapping[str, str]) -> BootstrapPolicy:
    policy = BootstrapPolicy(
        tables=fields.required("tables", fields.locations("tables")),
        format=fields.choice("format", TABLE_FORMATS),
        sql=fields.text("sql"),
        keys=fields.texts("keys") or (),
        values=fields.texts("values") or (),
        existing=fields.choice("existing", EXISTING_ROWS),
        **_shared(fields, queries),
    )
    if not policy.tables:
        raise fields.mistake("tables", "it names no table", "Name at least one location.")
    fields.done()
    return policy


def _shared(fields: Fields, queries: Mapping[str, str]) -> dict[str, Any]:
    """What both tables have."""
    _check_query(fields, query := fields.text("query"), queries)
    return {
        "query": query,
        "operator": fields.whole("operator", minimum=0),
        "part": fields.text("part"),
        "samples": fields.whole("samples", minimum=0) or 0,
        "rehearse": fields.boolean("rehearse") or False,
        "expressions": fields.choice("expressions", EXPRESSIONS) or CompactPolicy().expressions,
    }


def _check_query(fields: Fields, query: str | None, queries: Mapping[str, str]) -> None:
    if query is not None and query not in queries:
        raise fields.mistake("query", f"the job has no query {query!r}", f"It has: {', '.join(queries)}.")
