from __future__ import annotations

import json
from typing import Any

import pytest

from streambank.core.units import utc_now
from streambank.overview.savepoints import in_words
from streambank.repository.manifest import Manifest


def manifest(**more: Any) -> Manifest:
    return Manifest(
        savepoint="b000001-aaaaaaaaaaaa", job="j", query_id="q", batch=1, taken_at=utc_now(), **more
    )


@pytest.mark.parametrize(
    ("offset", "words"),
    [
        (None, "source 0, kafka: nothing read yet"),
        ({"orders": {"0": 88121, "1": 7}}, "orders partition 0 up to 88,121, partition 1 up to 7"),
        (
            {"orders": {str(n): 1000 + n for n in range(64)}, "late": {}},
            "orders up to offsets 1,000 to 1,063 of 64 partitions; late no partition",
        ),
        ({"logOffset": 1234}, "log offset 1,234"),
        ({}, "nothing read yet"),
        ({"shardId-0": {"iteratorType": "AFTER", "at": 7}}, "shardId-0 iterator type AFTER, at 7"),
        (
            {"reservoirVersion": 4, "isStartingVersion": False, "id": None},
            "reservoir version 4, is starting version false, id none",
        ),
        (41, "up to 41"),
        ("at-least-this", "up to at-least-this"),
    ],
)  # fmt: skip
def test_how_far_a_source_was_read_is_said_in_words(offset: Any, words: str) -> None:
    text = offset if offset is None or isinstance(offset, str) else json.dumps(offset)
    (said,) = in_words(manifest(sources=({"source": "0", "format": "kafka", "offset": text},)))["sources"]
    assert said.removeprefix("source 0, kafka: ") == words.removeprefix("source 0, kafka: ")
    assert "{" not in said


def test_a_sink_is_named_once() -> None:
    sinks = (
        {"kind": "file", "path": "file:///data/out", "guarded": True},
        {"kind": "DeltaSink", "path": "s3://lake/orders", "guarded": True},
        {"kind": "ForeachBatchSink", "path": None, "guarded": True},
    )
    assert in_words(manifest(sinks=sinks))["sinks"] == [
        "files in file:///data/out (guarded)",
        "DeltaSink s3://lake/orders (guarded)",
        "ForeachBatchSink (guarded)",
    ]
