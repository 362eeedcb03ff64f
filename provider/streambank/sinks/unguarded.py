"""Sinks that a savepoint names but cannot guard: what was written after its batch stays written.

Spark says what a query writes to as text (`FileSink[/data/out]`, `ForeachBatchSink`, ...); only the file
sink can be rolled back so far. A query that goes back to batch N counts from N+1 again, with other rows in
those batches. What that does to a sink depends on what the sink remembers: see `Harm`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from streambank.savepoint.sinks import Captured, SinkCapture
from streambank.sinks.file.capture import FileSinkCapture

_FILE_SINK = re.compile(r"FileSink\[(?P<path>.+)\]\Z", re.DOTALL)
_SPARK_PACKAGE = re.compile(r"\Aorg\.apache\.spark\.(?:[a-z0-9_]+\.)*")
_MOST_SHOWN = 100

Harm = Literal["none", "overwritten", "repeated", "skipped", "unknown"]
"""What a sink makes of batches whose numbers it was sent before: `none`: it keeps nothing; `overwritten`:
what comes again takes the place of what is there; `repeated`: it writes their rows again; `skipped`: it
remembers batch ids, takes them for done, and loses their rows for good; `unknown`: either, as the application
decides (foreachBatch), or the sink is not known here."""

# Whole names: a sink of the second version may call itself by the name of its table, which may be anything.
_KEEPS_NOTHING = ("ConsoleTable", "ConsoleSink", "MemorySink", "ContinuousMemorySink", "NoopTable")
_REMEMBERS = ("DeltaSink", "HoodieStreamingSink", "FileSink")
_REPEATS = ("kafka", "KafkaSink", "KafkaTable", "KafkaSourceProvider$KafkaTable")


def harm_of(kind: str) -> Harm:
    """What going back does to a sink that Spark calls by this word.

    Delta, Hudi, Iceberg and the file sink compare batch ids with what they have committed. Iceberg calls
    itself by the name of its table, so it is `unknown` here.
    """
    word = _SPARK_PACKAGE.sub("", kind).rstrip("$")
    if word in _KEEPS_NOTHING:
        return "none"
    if word in _REMEMBERS:
        return "skipped"
    if word == "idempotent-by-key":  # as it is declared: streambank.sinks.declared
        return "overwritten"
    return "repeated" if word in (*_REPEATS, "append") else "unknown"


def guard_of(sink: Mapping[str, Any]) -> str:
    """What a restore to a batch before the newest one does to a sink as a savepoint keeps it, in words."""
    if sink.get("guarded"):
        return "guarded"
    return {
        "none": "not guarded: keeps nothing",
        "overwritten": "not guarded: what comes again overwrites what is there",
        "repeated": "not guarded: a restore repeats its later rows",
        "skipped": "not guarded: after a restore it skips batches that it knows, so their new rows are lost",
        "unknown": "not guarded: a restore repeats later rows, or loses new ones if it remembers batch ids",
    }[harm_of(str(sink.get("kind")))]


def sink_name(kind: str, path: str) -> str:
    """A sink as messages name it: Spark's description without packages and what differs from run to run."""
    name = _SPARK_PACKAGE.sub("", path).rstrip("$")
    return name if len(name) <= _MOST_SHOWN and "$" not in name else _SPARK_PACKAGE.sub("", kind).rstrip("$")


class UnguardedSink:
    """A sink of a kind that a restore cannot roll back; its path is Spark's whole description."""

    keeps_files = False

    def __init__(self, kind: str, path: str) -> None:
        self.kind = kind
        self.path = path

    def capture(self, batch: int) -> Captured:
        record = {"kind": self.kind, "path": self.path, "guarded": False, "batch": batch}
        return Captured(record, warning=self._warning())

    def _warning(self) -> str:
        harm = harm_of(self.kind)
        if harm in ("none", "overwritten"):
            return ""
        what = {
            "repeated": "its later rows are repeated",
            "skipped": "it skips the batches whose ids it remembers, and their new rows are lost for good",
            "unknown": "its later rows are repeated, or skipped for good if it remembers batch ids",
        }[harm]
        return (
            f"The sink {sink_name(self.kind, self.path)} is not guarded: a restore cannot roll it back. If "
            f"the query has gone on since, {what}; such a restore needs --sink accept."
        )


def sink_from_description(description: str) -> SinkCapture:
    """The sink that Spark describes, such as `FileSink[file:/data/out]`, guarded where that is possible."""
    text = description.strip()
    if found := _FILE_SINK.match(text):
        return FileSinkCapture(found["path"])
    return UnguardedSink(re.split(r"[\[({\s@]", text, maxsplit=1)[0] or "unknown", text)


def sinks_from_descriptions(descriptions: Iterable[str]) -> list[SinkCapture]:
    """One capture for each different description."""
    return [sink_from_description(text) for text in dict.fromkeys(descriptions)]
