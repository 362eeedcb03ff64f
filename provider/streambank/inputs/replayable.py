"""How long from now the input after a savepoint can be read again, of each source of its query.

Kafka keeps records by age, which its brokers say. Files stay until something takes them away: a person, or
Spark itself where the application sets `cleanSource`. Of other sources only some are known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from streambank.core.units import say_count, say_duration, to_json_time
from streambank.inputs.sources import Sources, look_at_sources
from streambank.kafka.recording import FORMAT
from streambank.kafka.retention import KafkaReplay
from streambank.kafka.settings import ASK_TIMEOUT_S, Brokers
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository

_NUMBER = re.compile(r"-?[0-9]+")


@dataclass(frozen=True, slots=True)
class Replayable:
    """How long the input after a savepoint (empty: there is none) can be read again."""

    savepoint: str = ""
    sources: tuple[KafkaReplay, ...] = ()


def look_at_replayable(
    repository: Repository, savepoint: Manifest, brokers: Brokers, live: str, application: str
) -> Replayable:
    """Ask each source of a savepoint how long it keeps what comes next. Reads only, in bounded time.

    The query has gone on in the checkpoint at `live`; its PySpark application may set `cleanSource`.
    """
    found = look_at_sources(
        repository, savepoint, brokers, live, application=application, patience_s=ASK_TIMEOUT_S
    )
    return Replayable(savepoint.savepoint, tuple(replays_of(found, savepoint)))


def source_effect(sources: Sequence[Mapping[str, Any]], *, accepted: bool) -> str:
    """What is still there of the input, for people; empty where no source can be judged."""
    if not sources:
        return ""
    says = [str(one["says"]) for one in sources if one["says"]]
    if says:
        return " ".join(says) + (" This is accepted." if accepted else "")
    files = [one for one in sources if one.get("kind") == "file"]
    unknown = next((one["replay"]["why"] for one in files if one["safe"] is None), "")
    again = sum(one["files_to_read_again"] or 0 for one in files)
    there = f"The files that were read after the savepoint are there: {again:,} to read." if again else ""
    if len(files) == len(sources):
        return unknown or there
    waiting = sum(one["records_to_read_again"] or 0 for one in sources)
    compacted = any(one.get("compacted") for one in sources)
    whole = "the newest record of each key" if compacted else "everything"
    kafka = f"Kafka has {whole} after the savepoint: {say_count(waiting, 'record')} to read."
    return " ".join(filter(None, (kafka, unknown or there)))


def replayable_effect(replays: tuple[KafkaReplay, ...], now: datetime, before: str = "") -> str:
    """How long all of the input can be read again, for people; empty of no source."""
    by_state = {one.state: one for one in reversed(replays)}
    if gone := by_state.get("gone"):
        some = f"Source {gone.source} no longer has all of the input after the savepoint."
        return "" if gone.why in before else some
    said = []
    ends = [one.until for one in replays if one.until is not None]
    if ends:
        end = min(ends)
        said.append(
            "The input may be deleted at any moment."
            if end <= now
            else f"The input can be read again until {to_json_time(end)}, for {_left(end, now)}."
        )
    if unknown := by_state.get("not-known"):
        why = "" if unknown.why in before else f": {unknown.why.rstrip('.')}"
        said.append(f"It is not known how long source {unknown.source} keeps its input{why}.")
    if not said and replays:
        said.append("Nothing limits how long the input can be read again.")
    return " ".join(said)


def _left(end: datetime, now: datetime) -> str:
    return say_duration((end - now).total_seconds())


def replays_of(found: Sources, savepoint: Manifest) -> Iterator[KafkaReplay]:
    """How long each source of a savepoint can be read again, those included that cannot be asked."""
    known = {one.source: one for one in found.all_replays()}
    for record in savepoint.sources:
        if isinstance(record, Mapping):
            name = str(record.get("source"))
            yield known.get(name) or _other(name, record)


def _other(name: str, record: Mapping[str, Any]) -> KafkaReplay:
    """A source that is neither Kafka nor files, and may give its rows twice."""
    word, offset = record.get(FORMAT), record.get("offset")
    counts = isinstance(offset, str) and _NUMBER.fullmatch(offset.strip())
    rate = word.lower().startswith("rate") if isinstance(word, str) else record.get("kind") == "initial"
    if rate and (word or counts):
        return KafkaReplay(name, (), "for-ever", None, "a rate source makes the same rows again")
    kind = f" ({word})" if isinstance(word, str) and word else ""
    return KafkaReplay(name, (), "not-known", None, f"source {name}{kind} cannot be asked")
