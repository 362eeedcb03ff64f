"""Sinks of a job (`[[jobs.NAME.sinks]]`): what its queries write to besides what Spark itself names."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from streambank.core.environment import check_variables, is_variable
from streambank.core.names import LEDGER
from streambank.declaration.credentials import is_credential
from streambank.declaration.fields import Fields
from streambank.declaration.policy import read_policy
from streambank.sinks.declared import SINK_KINDS, DeclaredSink, SinkKind
from streambank.storage import same_place

_FOR_KIND = {
    "delta": ("table", "writer", "options"),
    "iceberg": ("table", "catalog", "tag"),
    "ledger": ("table", "url", "rows", "overwrites"),
    "append": ("table",),
    "idempotent-by-key": ("table",),
}
"""Which fields a kind has, besides `kind` and `query`."""


def read_sinks(fields: Fields, queries: Mapping[str, str]) -> tuple[DeclaredSink, ...]:
    """Of `[[jobs.NAME.sinks]]`.

    Raises:
        InputError: An entry is wrong, or there twice (code `bad-declaration`); no secret is repeated.
    """
    found: list[DeclaredSink] = []
    for entry in fields.tables("sinks"):
        sink = _read(entry, queries)
        if any((one.query, one.kind, one.path) == (sink.query, sink.kind, sink.path) for one in found):
            raise fields.mistake("sinks", f"{sink.kind} {sink.path} is listed twice")
        for one in found:
            if sink.writer is None or one.writer != sink.writer or not same_place(one.path, sink.path):
                continue
            raise fields.mistake(
                "sinks",
                f"queries {one.query} and {sink.query} write to {sink.path} as one writer, {sink.writer!r}",
                "Each would skip the other's batches: give each query its own writer.",
            )
        found.append(sink)
    return tuple(found)


def _read(entry: Fields, queries: Mapping[str, str]) -> DeclaredSink:
    kind: SinkKind = entry.required("kind", entry.choice("kind", SINK_KINDS))
    for name in entry.data:
        if name not in ("kind", "query", *_FOR_KIND[kind]) and name in _ANY:
            raise entry.mistake(name, f"a sink of kind {kind} has no such field")
    table = entry.location("table") if kind == "delta" else entry.text("table")
    if table is None:
        table = {"ledger": LEDGER, "append": "foreachBatch", "idempotent-by-key": "foreachBatch"}.get(kind)
    sink = read_policy(
        entry,
        DeclaredSink,
        kind=kind,
        table=entry.required("table", table),
        query=_query(entry, queries),
        url=_url(entry) if kind == "ledger" else None,
        catalog=_settings(entry, "catalog"),
        options=_settings(entry, "options"),
    )
    if kind == "iceberg" and not sink.catalog:
        raise entry.mistake("catalog", "it is missing", 'Such as catalog = {type = "rest", uri = "..."}.')
    return sink


_ANY = {name for names in _FOR_KIND.values() for name in names}


def _query(entry: Fields, queries: Mapping[str, str]) -> str | None:
    query = entry.text("query")
    if query is None and len(queries) > 1:
        raise entry.mistake("query", "the job has several queries", f"Name one: {', '.join(queries)}.")
    if query is not None and query not in queries:
        raise entry.mistake("query", f"the job has no query {query!r}", f"It has: {', '.join(queries)}.")
    return query


def _url(entry: Fields) -> str:
    value = entry.required("url", entry.text("url"))
    mistake = partial(entry.source.mistake, (*entry.path, "url"))
    check_variables(value, mistake)
    if not is_variable(value) and is_credential("url", value):
        raise mistake(
            "it holds a password, and secrets must not be in this file",
            'Take the whole value from the environment: url = "${ORDERS_DATABASE_URL}".',
        )
    return value


def _settings(entry: Fields, name: str) -> dict[str, str]:
    settings = entry.settings(name)
    for key, value in settings.items():
        mistake = partial(entry.source.mistake, (*entry.path, name, key))
        if is_credential(key, value) and not is_variable(value):
            raise mistake(
                "it is a secret, and secrets must not be in this file",
                'Take the whole value from the environment, without a default: "${NAME}".',
            )
        check_variables(value, mistake)
    return settings
