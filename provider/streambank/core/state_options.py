"""What a person may ask of each verb that makes a savepoint with other state, as in `verb_options`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from streambank.core.options import Option

LIMITED_TO = "OPERATOR: or OPERATOR/PART: before it limits it to these."
"""How the help of an option ends whose text may begin with an operator and a part."""
SQL_OF_ROWS = "SQL over key and value, with {now}, {watermark}."
"""How the help of an option ends that takes a condition."""
_OPERATOR = Option("Only this stateful operator.", title="Operator", metavar="N", least=0, section="More")


@dataclass(kw_only=True)
class PartOptions:
    """Of which part of the state; may be left out where there is one."""

    operator: Annotated[int | None, _OPERATOR] = None
    part: Annotated[
        str | None,
        Option(
            "Only this part: left or right of a join, a state variable, timers, a store.",
            title="Part",
            flag="--part --store",
            metavar="NAME",
            section="More",
        ),
    ] = None


@dataclass(kw_only=True)
class SampleOptions:
    """How much of the state is shown."""

    samples: Annotated[
        int, Option("How many to show for each part (and each rule).", metavar="N", least=0)
    ] = 10


@dataclass(kw_only=True)
class ExpireKeysOptions:
    """Which keys have expired: one of the first three says it."""

    where: Annotated[
        str | None,
        Option(
            f"Expire keys if this is true of all their rows: {SQL_OF_ROWS}",
            metavar="SQL",
        ),
    ] = None
    idle_for_s: Annotated[
        float | None,
        Option(
            "Expire keys unchanged since the newest savepoint that is at least this old, for example 30d.",
            title="Remove keys idle for",
            metavar="TIME",
            needs_unit=True,
        ),
    ] = None
    idle_since: Annotated[
        str | None,
        Option(
            "Expire keys unchanged since this savepoint.",
            title="Remove keys idle since",
            metavar="SAVEPOINT",
            section="More",
        ),
    ] = None
    operator: Annotated[int | None, _OPERATOR] = None
    part: Annotated[
        str | None,
        Option(
            "Decide by these rows alone: left or right of a join, a state variable.",
            title="Part",
            metavar="NAME",
            section="More",
        ),
    ] = None
    max_rows: Annotated[
        int | None,
        Option(
            "Remove at most this many rows of each operator.",
            title="Maximum rows",
            metavar="N",
            least=1,
            section="More",
        ),
    ] = None


@dataclass(kw_only=True)
class EraseOptions:
    """The operator whose key is erased, and the replicas to search for it."""

    operator: Annotated[int | None, _OPERATOR] = None
    replicas: Annotated[
        tuple[str, ...],
        Option("Also look for the key in this replica.", flag="--replica", metavar="LOCATION"),
    ] = ()


@dataclass(kw_only=True)
class MigrateOptions:
    """In what, and in how many partitions, state is kept."""

    provider: Annotated[str, Option("The new state store: rocksdb.", metavar="NAME")] = "rocksdb"
    partitions: Annotated[
        int | None, Option("Also change the number of state partitions.", metavar="N", least=1)
    ] = None


@dataclass(kw_only=True)
class RepairOptions:
    """What becomes of rows that break a rule."""

    repairs: Annotated[
        tuple[str, ...],
        Option(
            f"Make a savepoint in which broken rows are set to this: value.COLUMN = EXPRESSION. {LIMITED_TO}",
            flag="--repair",
            metavar="SQL",
        ),
    ] = ()


@dataclass(kw_only=True)
class TransformOptions:
    """Which columns of state get which values, and which keys go."""

    sets: Annotated[
        tuple[str, ...],
        Option(
            f"What a column becomes: value.COLUMN = EXPRESSION over the row before. {LIMITED_TO}",
            flag="--set",
            metavar="SQL",
        ),
    ] = ()
    where: Annotated[
        str | None,
        Option(f"Set only rows for which this is true: {SQL_OF_ROWS}", metavar="SQL"),
    ] = None
    delete_where: Annotated[
        str | None,
        Option(
            f"Delete keys if this is true of all their rows: {SQL_OF_ROWS}",
            metavar="SQL",
        ),
    ] = None


@dataclass(kw_only=True)
class BootstrapOptions:
    """How state is made of a table."""

    table_format: Annotated[
        str | None,
        Option(
            "parquet, json, csv, orc, avro or delta. Default: by the name, else parquet.",
            flag="--format",
            metavar="NAME",
        ),
    ] = None
    sql: Annotated[
        str | None, Option("A SELECT over the table, which is called source there.", metavar="SQL")
    ] = None
    keys: Annotated[
        tuple[str, ...],
        Option(
            "A field of the key: FIELD = EXPRESSION. Default: the column of its name.",
            flag="--key",
            metavar="SQL",
        ),
    ] = ()
    values: Annotated[
        tuple[str, ...],
        Option(
            "A column of the value: COLUMN = EXPRESSION. Default: the column of its name.",
            flag="--value",
            metavar="SQL",
        ),
    ] = ()
    existing: Annotated[
        str | None,
        Option(
            "What becomes of rows that are there: replace (all go), keep (they win), or overwrite (the table "
            "wins). Default: refuse.",
            metavar="WHAT",
        ),
    ] = None


@dataclass(kw_only=True)
class RehearseOptions:
    """Whether the new savepoint is rehearsed."""

    rehearse: Annotated[
        bool,
        Option(
            "Then run the job's own application on a copy of the new savepoint for some batches, as a drill "
            "does. It needs the jobs file."
        ),
    ] = False
    batches: Annotated[
        int | None, Option("How many batches of the live query a rehearsal executes.", metavar="N", least=0)
    ] = None
