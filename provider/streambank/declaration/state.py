"""What a job declares about work on its state: by which Spark it is done, and what expires."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streambank.core.choices import EXPRESSIONS, Expressions
from streambank.declaration.credentials import refuse_credentials
from streambank.declaration.fields import Fields


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


def read_state(fields: Fields) -> StatePolicy:
    """Of `[jobs.NAME.state]`."""
    spark = fields.settings("spark")
    if "spark.master" in spark:
        raise fields.mistake("spark", "the master is a field of its own", "Use master.")
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
        fields: The table.
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
    if policy.query is not None and policy.query not in queries:
        raise fields.mistake(
            "query", f"the job has no query {policy.query!r}", f"It has: {', '.join(queries)}."
        )
    if policy.schedule is not None and policy.query is None and len(queries) > 1:
        raise fields.mistake("schedule", "the job has several queries", "Add query.")
    fields.done()
    return policy
