"""What a job declares about its state: by which Spark it is worked on, what expires, and its hot keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from streambank.core.choices import ExistingRows, Expressions, TableFormat
from streambank.core.shape import JsonObject
from streambank.declaration.credentials import refuse_credentials
from streambank.declaration.fields import Fields
from streambank.declaration.policy import (
    File,
    Interpreter,
    Location,
    Locations,
    Schedule,
    at_least,
    read_policy,
)

MIN_SAMPLE = 0.0001
MOST_KEYS = 50
_COLUMN = re.compile(r"[^\W\d][\w \-]*(\.[^\W\d][\w \-]*)*")


Operator = Annotated[int, at_least(0)]


def _share_of_rows(fields: Fields, name: str) -> float | None:
    share = fields.number(name, minimum=MIN_SAMPLE)
    if share is not None and share > 1:
        raise fields.mistake(name, f"it is a share, and {share:g} is more than 1", "Write 0.1.")
    return share


def _up_to_most_keys(fields: Fields, name: str) -> int | None:
    count = fields.whole(name, minimum=1)
    if count is not None and count > MOST_KEYS:
        raise fields.mistake(name, f"it must be at most {MOST_KEYS}, not {count}")
    return count


def _columns(fields: Fields, name: str) -> tuple[str, ...] | None:
    columns = fields.texts(name)
    for column in columns or ():
        if not _COLUMN.fullmatch(column):
            raise fields.mistake(
                name,
                f"{column!r} is not the name of a column",
                "Name columns, or fields of structs such as payload.user: an expression could fail.",
            )
    return columns


@dataclass(frozen=True, slots=True)
class StatePolicy:
    """`[jobs.NAME.state]`: the Spark that works on the job's state; the job's own where nothing is said.

    Attributes:
        spark: Spark's settings, added to the job's or in their place.
        python: An interpreter whose PySpark does it; None for this one's.
        work: Under which location state is laid out meanwhile, seen by all machines of that Spark; None for
            beside the checkpoint.
    """

    master: str | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    spark_home: File | None = None
    python: Interpreter | None = None
    work: Location | None = None


@dataclass(frozen=True, slots=True)
class CompactPolicy:
    """`[jobs.NAME.compact]`: what of the job's state expires, and when it is made to go.

    Attributes:
        where: Keys go for all of whose rows this SQL expression holds.
        idle_for: Keys go that have not changed for so long, such as `30d`, by the savepoints that there are.
        part: Judged by these rows alone.
        max_rows: So many rows go at most in one run, of each operator.
        approve: Whether a scheduled run asks a person, too; one by hand always does.
        expressions: Which conditions the form of `<job>.compact` takes: only the `declared` one, or `any`
            that somebody types there.
    """

    schedule: Schedule | None = None
    query: str | None = None
    where: str | None = None
    idle_for: str | None = None
    operator: Operator | None = None
    part: str | None = None
    max_rows: int | None = None
    approve: bool = False
    expressions: Expressions = "declared"


@dataclass(frozen=True, slots=True)
class TransformPolicy:
    """`[jobs.NAME.transform]`: what `<job>.transform` changes in state; without it there is no such DAG.

    Attributes:
        sets: What columns of rows get: `value.total = value.total * 100`.
        where: Which rows get it; None for all.
        delete_where: Keys go for all of whose rows this SQL expression holds.
        samples: How many changed rows of each part the plan shows.
    """

    query: str | None = None
    sets: tuple[str, ...] = ()
    where: str | None = None
    delete_where: str | None = None
    operator: Operator | None = None
    part: str | None = None
    samples: Annotated[int, at_least(0)] = 0
    rehearse: bool = False
    expressions: Expressions = "declared"


@dataclass(frozen=True, slots=True)
class BootstrapPolicy:
    """`[jobs.NAME.bootstrap]`: of which table `<job>.bootstrap` makes state; without it there is no such DAG.

    Attributes:
        tables: Locations of tables; the form takes one of them, or what lies below one.
        format: The format of the table; by its name for None.
        sql: A SELECT over the table, which is called `source` there; None for the table as it is.
        keys: Fields of the key, each `FIELD = EXPRESSION` over the columns of the table.
        values: Columns of the value, likewise.
        existing: What becomes of rows that are there; refused for None.
        samples: How many rows of state the plan shows.
        rehearse: Whether the form's rehearsal is on by default.
        expressions: Which expressions the form takes: only the `declared` ones, or `any`; and whether DAGs
            may use other SQL than is declared.
    """

    tables: Locations
    query: str | None = None
    format: TableFormat | None = None
    sql: str | None = None
    keys: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    existing: ExistingRows | None = None
    operator: Operator | None = None
    part: str | None = None
    samples: Annotated[int, at_least(0)] = 0
    rehearse: bool = False
    expressions: Expressions = "declared"


@dataclass(frozen=True, slots=True)
class ChangePolicies:
    """What of a job's state is made or changed by a form."""

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

    sample: Annotated[float, _share_of_rows] = 0.1
    keys: Annotated[tuple[str, ...], _columns] = ()
    window_s: float = 600.0
    max_keys: Annotated[int, _up_to_most_keys] = 5
    hashes: bool = False


def read_hot_keys(fields: Fields) -> HotKeysPolicy | None:
    """Of `[jobs.NAME.hot_keys]`; None where it is not declared, or `false`."""
    table = fields.table_or_false("hot_keys") if "hot_keys" in fields.data else None
    return None if table is None else read_policy(table, HotKeysPolicy)


def read_state(fields: Fields) -> StatePolicy:
    """Of `[jobs.NAME.state]`."""
    policy = read_policy(fields, StatePolicy)
    if "spark.master" in policy.spark:
        raise fields.mistake("spark", "the master is a separate field", "Use master.")
    refuse_credentials(policy.spark, fields)
    return policy


def read_compact(fields: Fields, queries: Mapping[str, str]) -> CompactPolicy:
    """Of `[jobs.NAME.compact]`."""
    fields.duration_s("idle_for")  # is kept as it is written, if it is one
    policy = read_policy(fields, CompactPolicy)
    if policy.idle_for is not None and policy.where is not None:
        raise fields.mistake("idle_for", "it cannot be combined with where", "Leave one of them out.")
    if policy.schedule is not None and policy.where is None and policy.idle_for is None:
        raise fields.mistake("schedule", "nothing says what expires", 'Add where, or idle_for = "30d".')
    _check_query(fields, policy.query, queries)
    if policy.schedule is not None and policy.query is None and len(queries) > 1:
        raise fields.mistake("schedule", "the job has several queries", "Add query.")
    return policy


def read_changes(fields: Fields, queries: Mapping[str, str]) -> ChangePolicies:
    """Of `[jobs.NAME.transform]` and `[jobs.NAME.bootstrap]`."""
    return ChangePolicies(
        _read_transform(fields.table("transform"), queries) if "transform" in fields.data else None,
        _read_bootstrap(fields.table("bootstrap"), queries) if "bootstrap" in fields.data else None,
    )


def _read_transform(fields: Fields, queries: Mapping[str, str]) -> TransformPolicy:
    policy = read_policy(fields, TransformPolicy)
    _check_query(fields, policy.query, queries)
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
    return policy


def _read_bootstrap(fields: Fields, queries: Mapping[str, str]) -> BootstrapPolicy:
    policy = read_policy(fields, BootstrapPolicy)
    _check_query(fields, policy.query, queries)
    if not policy.tables:
        raise fields.mistake("tables", "it names no table", "Name at least one location.")
    return policy


def _check_query(fields: Fields, query: str | None, queries: Mapping[str, str]) -> None:
    if query is not None and query not in queries:
        raise fields.mistake("query", f"the job has no query {query!r}", f"It has: {', '.join(queries)}.")
