"""The part `savepoints`: what can be restored, with the manifests of the newest ones in words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from streambank.control.processes import person
from streambank.core.json_text import loads
from streambank.core.units import from_epoch_ms, say_bytes, say_count
from streambank.overview.saved import Saved, SavedOne
from streambank.repository.manifest import Manifest
from streambank.retention.policy import Policy
from streambank.sinks.file.capture import KIND as FILES
from streambank.sinks.unguarded import guard_of
from streambank.storage import same_place

_EACH = 8
"""So many partitions of a topic are named, each with its offset."""
MANIFESTS = 20
"""So many of the newest savepoints have their manifest in words."""


def savepoints_part(
    saved: Saved,
    retention: Policy | None,
    drilled: Mapping[tuple[str, str], Mapping[str, Any]],
    repository: str,
) -> dict[str, Any]:
    """The content of the part.

    Args:
        drilled: The newest drill of each, by query and id (`control.drills.last_drills`).
        repository: The location of the job's repository: a drill from another place names it.
    """
    return {
        "savepoints": [
            {
                **_row(one, retention),
                "drilled": _drilled(drilled.get((one.query, one.summary.savepoint)), repository),
            }
            for one in saved.newest
        ],
        "manifests": {
            one.summary.savepoint: in_words(one.head)
            for one in saved.newest[:MANIFESTS]
            if one.head is not None
        },
        "more": max(0, saved.count - len(saved.newest)),
    }


def _row(one: SavedOne, retention: Policy | None) -> dict[str, Any]:
    summary, head, decision = one.summary, one.head, one.decision
    by = head.taken_by if head is not None else {}
    watermark = None if summary.watermark_ms is None else from_epoch_ms(summary.watermark_ms)
    return {
        "id": summary.savepoint,
        "name": ", ".join(summary.names) or None,
        "query": one.query,
        "batch": summary.batch,
        "taken_at": summary.taken_at,
        "why": str(by.get("reason") or ""),
        "note": summary.note,
        "by": person(by) if by else None,
        "kind": "taken" if summary.derived_from is None else "derived",
        "bytes": summary.bytes,
        "new_bytes": summary.new_bytes,
        "files": summary.file_count,
        "verified": [
            {"at": each.at, "level": each.level, "passed": each.ok, "problems": each.findings}
            for each in one.verifications
        ],
        "damage": one.damage,
        "rejected": summary.rejected,
        "pinned": summary.pinned,
        "held": one.is_held,
        "derived_from": summary.derived_from,
        "watermark": watermark,
        "spark_version": head.spark_version if head is not None else None,
        "kept": "; ".join(each.why for each in decision.reasons) if decision and decision.keep else "",
        "expires": _expires(one, retention),
    }


def _drilled(drill: Mapping[str, Any] | None, repository: str) -> dict[str, Any] | None:
    if drill is None:
        return None
    place = drill["repository"]
    kept = {name: drill[name] for name in ("at", "passed", "not_run")}
    return {
        **kept,
        "replica": place if isinstance(place, str) and not same_place(place, repository) else None,
    }


def _expires(one: SavedOne, retention: Policy | None) -> dict[str, Any] | None:
    """When retention ends it; None where nothing that is known now does."""
    if one.decision is None or retention is None:
        return None
    if not one.decision.keep:
        return {"at": None, "why": "; ".join(reason.why for reason in one.decision.reasons)}
    at = too_old_at(one, retention)
    return None if at is None else {"at": at, "why": "it is then older than anything may be"}


def too_old_at(one: SavedOne, retention: Policy) -> datetime | None:
    """When a savepoint is older than anything may be; None where nothing is ever too old."""
    if not retention.max_age_s or one.summary.taken_at is None:
        return None
    return one.summary.taken_at + timedelta(seconds=retention.max_age_s)


def in_words(head: Manifest) -> dict[str, Any]:
    """A manifest for people: what it holds, and what a restore of it does to each sink."""
    return {
        "query_id": head.query_id,
        "checkpoint": head.checkpoint,
        "closure": head.closure,
        "parent": head.parent,
        "operators": [_operator(one) for one in head.operators],
        "sources": [_source(one) for one in head.sources if isinstance(one, dict)],
        "sinks": [f"{_sink(one)} ({guard_of(one)})" for one in head.sinks],
        "files": head.file_count,
        "bytes": head.bytes,
        "seconds": head.stats.get("seconds"),
    }


def _source(source: Mapping[str, Any]) -> str:
    """How far a source was read: `source 0, kafka: orders partition 0 up to 88,121`."""
    named = f"source {source.get('source')}, {source.get('format') or source.get('kind')}"
    text = source.get("offset")
    if text is None:
        return f"{named}: nothing read yet"
    try:
        offset = loads(text) if isinstance(text, str) else text
    except ValueError:
        offset = text
    return f"{named}: {_offset(offset) or 'nothing read yet'}"


def _offset(offset: Any) -> str:
    """An offset of Spark in words, whatever its source: topics with partitions, or fields; empty for none."""
    if not isinstance(offset, dict):
        return f"up to {_value(offset)}"
    parts = [(name, one) for name, one in offset.items() if isinstance(one, dict)]
    topics = [
        f"{name} {_partitions(one) if all(map(str.isdigit, one)) else _offset(one)}" for name, one in parts
    ]
    fields = [f"{_words(name)} {_value(one)}" for name, one in offset.items() if not isinstance(one, dict)]
    return "; ".join([*topics, *([", ".join(fields)] if fields else [])])


def _partitions(offsets: Mapping[str, Any]) -> str:
    """Offsets of a topic: each of a few partitions, else the smallest and the largest."""
    values = [*offsets.values()]
    numbers = [one for one in values if isinstance(one, int)]
    if len(values) > _EACH and len(numbers) == len(values):
        return f"up to offsets {min(numbers):,} to {max(numbers):,} of {say_count(len(values), 'partition')}"
    each = ", ".join(f"partition {name} up to {_value(one)}" for name, one in offsets.items())
    return each or "no partition"


def _value(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _words(name: str) -> str:
    """`logOffset` -> `log offset`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).lower()


def _sink(sink: Mapping[str, Any]) -> str:
    kind, path = sink.get("kind"), sink.get("path")
    if not path:
        return str(kind)
    return f"files in {path}" if kind == FILES else f"{kind} {path}"


def _operator(operator: Any) -> str:
    named = f", {operator['name']}" if operator.get("name") else ""
    stores = [_store(one) for one in operator.get("stores") or ()]
    return f"operator {operator.get('operator')}{named}: {'; '.join(stores) or 'no stores'}"


def _store(store: Any) -> str:
    parts, rows, size = store.get("partitions"), store.get("rows"), store.get("bytes")
    said = [f"store {store.get('store')}"]
    if isinstance(parts, int):
        said.append(say_count(parts, "partition"))
    if isinstance(rows, int):
        said.append(say_count(rows, "row"))
    if isinstance(size, int):
        said.append(say_bytes(size))
    return ", ".join(said)


def newest_verified(saved: Saved) -> SavedOne | None:
    """The newest savepoint whose last verification found nothing; None if there is none among the newest.

    Neither a rejected one nor one of another line counts: `latest-good` does not mean it either.
    """
    each = ((one, one.summary) for one in saved.newest if not one.is_other)
    return next((one for one, it in each if it.verified_ok and it.error is None and not it.rejected), None)
