"""SQL over state: each part is a view, and a query may only read."""

from __future__ import annotations

import re
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from streambank.core.errors import InputError
from streambank.core.json_text import loads
from streambank_spark.failures import first_line
from streambank_spark.state.columns import as_json, storable
from streambank_spark.state.read import apart
from streambank_spark.state.state import QueryState

STATE = "state"
_NOT_A_NAME = re.compile(r"\W+")


def make_views(state: QueryState) -> list[str]:
    """Make a view of each part, in the session of this state alone.

    `op<operator>_<part>` always; `<part>` where no other operator has one of that name; `state` where the
    query has but one part.
    """
    every = [part for operator in state.operators() for part in state.parts(operator)]
    plain = [_NOT_A_NAME.sub("_", part.name) for part in every]
    names: list[str] = []
    for part, name in zip(every, plain, strict=True):
        frame = storable(apart(state.frame(part)))
        mine = [f"op{part.operator}_{name}"]
        mine += [name] if plain.count(name) == 1 else []
        mine += [STATE] if len(every) == 1 and name != STATE else []
        for each in mine:
            frame.createOrReplaceTempView(f"`{each}`")
        names += mine
    return names


def run_query(state: QueryState, text: str) -> DataFrame:
    """The answer to an SQL query over the views of `make_views`.

    Raises:
        InputError: It cannot be run, or is none that only reads (code `bad-query`).
    """
    names = make_views(state)
    # In brackets only a query can stand: neither what creates, inserts or drops, nor several of them.
    inner = text.strip().rstrip(";")
    try:
        return state.session.sql(f"SELECT * FROM (\n{inner}\n)")
    except AnalysisException as error:
        raise InputError(
            f"The query cannot be run: {first_line(error)}",
            code="bad-query",
            hint=f"Use one SELECT over these views: {', '.join(names) or 'none, the query keeps no state'}.",
        ) from error


def read_query(state: QueryState, text: str, limit: int) -> tuple[list[str], list[dict[str, Any]], bool]:
    """Columns and rows of an answer, at most `limit` (0 for all), and whether there are more of them."""
    answer = storable(run_query(state, text))
    told = answer.select(as_json(answer, answer.columns).alias("row"))
    rows = (told.limit(limit + 1) if limit else told).collect()
    found = [loads(row["row"]) for row in rows]
    return answer.columns, found[:limit] if limit else found, bool(limit) and len(found) > limit
