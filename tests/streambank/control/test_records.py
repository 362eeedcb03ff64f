from __future__ import annotations

from pathlib import Path

import pytest

from streambank.control.records import RecordStream
from streambank.core.errors import FormatError
from streambank.storage import open_store
from tests.support.processes import race
from tests.support.refuses import refuses

APPEND = """
import sys
from streambank.control.records import RecordStream
from streambank.storage import open_store
stream = RecordStream(open_store(sys.argv[1]), "events")
print("ready", flush=True)
sys.stdin.readline()
print(*[stream.append({"by": i}) for i in range(20)])
"""


@pytest.fixture
def stream(tmp_path: Path) -> RecordStream:
    return RecordStream(open_store(tmp_path), "events")


def test_an_empty_stream_has_no_latest_record(stream: RecordStream) -> None:
    assert stream.latest() is None
    assert stream.numbers() == []
    assert list(stream.all()) == []


def test_records_are_numbered_from_one_and_read_back(stream: RecordStream) -> None:
    assert [stream.append({"a": i}) for i in range(3)] == [1, 2, 3]
    assert [(record.number, record.data) for record in stream.all(after=1)] == [(2, {"a": 1}), (3, {"a": 2})]
    latest = stream.latest()
    assert latest is not None and latest.data == {"a": 2}


def test_a_number_is_taken_once(stream: RecordStream) -> None:
    assert stream.create(7, {"a": 1})
    assert not stream.create(7, {"a": 2})
    assert stream.read(7) == {"a": 1}
    assert stream.append({"a": 3}) == 8


def test_other_files_beside_the_records_are_left_alone(stream: RecordStream, tmp_path: Path) -> None:
    stream.append({"a": 1})
    for name in ("0000000009.beat.json", "9.json", "notes.txt", "0000000009.json.tmp"):
        (tmp_path / "events" / name).write_text("x")
    assert stream.numbers() == [1]


@pytest.mark.parametrize("damage", [b"", b'{"a": 1', b"[1]", b"\xff\xfe", b'"text"', b"\0" * 20])
def test_a_damaged_newest_record_is_an_error_and_never_the_one_before(
    stream: RecordStream, tmp_path: Path, damage: bytes
) -> None:
    stream.append({"a": 1})
    stream.append({"a": 2})
    (tmp_path / "events" / "0000000002.json").write_bytes(damage)
    with refuses(FormatError, "damaged-record") as caught:
        stream.latest()
    assert "0000000002.json" in caught.value.message
    shown = [record.data for record in stream.history()]
    assert shown[0] == {"a": 1}
    assert shown[1]["error"] == "damaged-record"


def test_many_processes_never_share_a_number(tmp_path: Path) -> None:
    said = race(APPEND, 4, tmp_path)
    numbers = sorted(int(number) for line in said for number in line.split())
    assert numbers == list(range(1, 81))
