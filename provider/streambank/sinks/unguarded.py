"""Sinks that a savepoint names but cannot guard: what was written after its batch stays written.

Spark says what a query writes to as text (`FileSink[/data/out]`, `ForeachBatchSink`, ...); only the file
sink can be taken back so far.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from streambank.savepoint.capture import Captured, SinkCapture
from streambank.sinks.file_sink import FileSinkCapture

_FILE_SINK = re.compile(r"FileSink\[(?P<path>.+)\]\Z", re.DOTALL)


class UnguardedSink:
    """A sink of a kind that a restore cannot take back.

    Args:
        kind: Spark's word for it.
        path: Spark's whole description.
    """

    guarded = False

    def __init__(self, kind: str, path: str) -> None:
        self.kind = kind
        self.path = path

    def capture(self, batch: int) -> Captured:
        """Only that it is there."""
        return Captured({"kind": self.kind, "path": self.path, "guarded": False, "batch": batch})


def sink_from_description(description: str) -> SinkCapture:
    """The sink that Spark describes, such as `FileSink[file:/data/out]`, guarded where that is possible."""
    text = description.strip()
    if found := _FILE_SINK.match(text):
        return FileSinkCapture(found["path"])
    return UnguardedSink(re.split(r"[\[({\s@]", text, maxsplit=1)[0] or "unknown", text)


def sinks_from_descriptions(descriptions: Iterable[str]) -> list[SinkCapture]:
    """One capture for each different description."""
    return [sink_from_description(text) for text in dict.fromkeys(descriptions)]
