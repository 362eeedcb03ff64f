"""The note of an unfinished layout, as whoever comes later finds it."""

from __future__ import annotations

import json

import pytest

from streambank.storage.memory import MemoryStore
from streambank.work.target import METADATA, NOTE, read_note

GOOD = {"owner": {"token": "t"}, "files": []}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"id":"q"}',
        json.dumps({NOTE: None}).encode(),
        json.dumps({NOTE: GOOD | {"owner": "ann"}}).encode(),
        json.dumps({NOTE: GOOD | {"files": {}}}).encode(),
        json.dumps({NOTE: {"files": []}}).encode(),
    ],
)
def test_metadata_that_is_no_note_is_not_taken_for_one(data: bytes) -> None:
    target = MemoryStore()
    assert read_note(target) is None
    target.write(METADATA, json.dumps({NOTE: GOOD}).encode())
    assert read_note(target) == GOOD
    target.write(METADATA, data)
    assert read_note(target) is None
    assert target.read(METADATA) == data
