"""Which queries a job has: what Streambank calls each, and what its application calls it.

Streambank's name of a query is part of paths, records and commands, so it is a strict one. Spark takes any
text in `queryName(...)`: where that is no strict name, one is made of it, or the declaration chooses one.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping

from streambank.core.names import MAIN, check_name
from streambank.declaration.fields import Fields

_OTHERS = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 100
_DIGITS = 8


def read_queries(fields: Fields) -> dict[str, str]:
    """Spark's name of each declared query, by Streambank's; empty for a job with one query of any name.

    Raises:
        InputError: A name cannot be used, or there twice (code `bad-declaration`).
    """
    if isinstance(fields.data.get("queries"), dict):
        table = fields.table("queries")
        chosen = [(name, table.required(name, table.text(name))) for name in table.data]
    else:
        chosen = [(query_name(spark_name), spark_name) for spark_name in fields.texts("queries") or ()]
    found: dict[str, str] = {}
    for name, spark_name in chosen:
        _check(fields, name, spark_name, found)
        found[name] = spark_name
    return found


def _check(fields: Fields, name: str, spark_name: str, found: Mapping[str, str]) -> None:
    if not spark_name.strip():
        raise fields.mistake("queries", "a name is empty")
    fields.checked("queries", lambda: check_name(name, "query"))
    if name == MAIN:
        raise fields.mistake(
            "queries",
            f"{MAIN!r} is the name of a job's only query",
            f"Choose another: queries = {{ other = {_quoted(spark_name)} }}.",
        )
    if spark_name in found.values():
        raise fields.mistake("queries", f"the name {spark_name!r} is listed twice")
    if name in found:
        both = ", ".join(_quoted(one) for one in (found[name], spark_name))
        raise fields.mistake(
            "queries",
            f"both {both} would be called {name}",
            f"Choose names: queries = {{ {name} = {_quoted(found[name])}, other = {_quoted(spark_name)} }}.",
        )


def query_name(spark_name: str) -> str:
    """What Streambank calls a query: its name in Spark, or what is left of it in letters without accents."""
    letters = unicodedata.normalize("NFKD", spark_name).encode("ascii", "ignore").decode()
    name = _OTHERS.sub("-", letters).lstrip("._-")
    name = name if name == spark_name else name.rstrip("-")
    digest = hashlib.sha256(spark_name.encode()).hexdigest()[:_DIGITS]
    if not name:
        return f"query-{digest}"
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - _DIGITS - 1]}-{digest}"


def _quoted(text: str) -> str:
    return f'"{text}"'
