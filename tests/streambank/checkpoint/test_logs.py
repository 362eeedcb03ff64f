from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambank.checkpoint.logs import (
    Commit,
    format_metadata,
    parse_commit,
    parse_metadata,
    parse_offsets,
)
from streambank.core.errors import FormatError
from tests.support.checkpoint.recorded import PLANNED, checkpoint
from tests.support.refuses import refuses

OFFSETS = b'v1\n{"batchWatermarkMs":5,"batchTimestampMs":7,"conf":{"a":"b"}}\n{"logOffset":3}\n-'
OFFSETS_V2 = (
    b'v2\n{"batchWatermarkMs":0,"batchTimestampMs":7,"conf":{},"sourceMetadataInfo":{"left":{"x":1}}}\n'
    b'left:{"logOffset":3}\nright:-'
)


def test_query_id_comes_back() -> None:
    assert parse_metadata(format_metadata("0b1e")) == "0b1e"
    assert parse_metadata(b'{"id":"0b1e","new":1}\n') == "0b1e"


def test_offsets_of_version_1_are_by_position() -> None:
    offsets = parse_offsets(OFFSETS)
    assert (offsets.version, offsets.watermark_ms, offsets.timestamp_ms) == (1, 5, 7)
    assert offsets.conf == {"a": "b"}
    assert offsets.sources == {"0": '{"logOffset":3}', "1": None}


def test_offsets_of_version_2_are_by_name() -> None:
    offsets = parse_offsets(OFFSETS_V2)
    assert offsets.version == 2
    assert offsets.sources == {"left": '{"logOffset":3}', "right": None}
    assert offsets.source_metadata == {"left": {"x": 1}}


def test_commits_of_every_version() -> None:
    assert parse_commit(b'v1\n{"nextBatchWatermarkMs":9}') == Commit(1, 9, None)
    assert parse_commit(b"v1\n{}") == Commit(1, 0, None)
    ids = b'{"nextBatchWatermarkMs":9,"stateUniqueIds":{"0":[["a","b"],["c","d"]],"1":[["e"]]}'
    second = parse_commit(b"v2\n" + ids + b"}")
    assert second.unique_ids == {0: (("a", "b"), ("c", "d")), 1: (("e",),)}
    third = parse_commit(b"v3\n" + ids + b',"sinkMetadataMap":{"s":{"sinkId":"s"}}}')
    assert third.version == 3
    assert third.unique_ids == second.unique_ids
    assert parse_commit(b'v2\n{"nextBatchWatermarkMs":9}').unique_ids is None


@pytest.mark.parametrize(
    ("parse", "data", "version"),
    [
        (parse_offsets, b"v3" + OFFSETS[2:], 3),
        (parse_commit, b'v4\n{"nextBatchWatermarkMs":9}', 4),
        (parse_commit, b'v99\n{"nextBatchWatermarkMs":9}', 99),
    ],
)
def test_a_version_of_the_future_is_refused_by_name(parse: object, data: bytes, version: int) -> None:
    with refuses(FormatError, "unknown-version", match=f"commits/8 has version {version}"):
        parse(data, "commits/8")  # type: ignore[operator]  # one of two parsers


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"v",
        b"v0\n{}",
        b"v1",
        b"v1\n",
        b"v1\n[]",
        b"v1\n{",
        b"v1\nnull",
        b"\xff\xfe",
        b'v1\n{"nextBatchWatermarkMs":"x"}',
        b'v1\n{"nextBatchWatermarkMs":true}',
        b'v2\n{"stateUniqueIds":[]}',
        b'v2\n{"stateUniqueIds":{"x":[["a"]]}}',
        b'v2\n{"stateUniqueIds":{"0":"a"}}',
        b'v2\n{"stateUniqueIds":{"0":[["a",1]]}}',
        b"v1\n" + b"[" * 100_000,
        b"v1\n" + b"1" * 10_000,
    ],
)
def test_half_a_commit_is_one_clear_error(data: bytes) -> None:
    with refuses(FormatError, "half-written", match="commits/8"):
        parse_commit(data, "commits/8")


@pytest.mark.parametrize("data", [OFFSETS, OFFSETS_V2])
def test_offsets_cut_off_anywhere_are_an_error_or_name_fewer_sources(data: bytes) -> None:
    whole = parse_offsets(data)
    for length in range(len(data)):
        try:
            cut = parse_offsets(data[:length], "offsets/3")
        except FormatError as error:
            assert error.code == "half-written"
        else:
            assert set(cut.sources) < set(whole.sources)


@given(st.binary())
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    for parse in (parse_metadata, parse_offsets, parse_commit):
        for bytes_ in (data, b"v1\n" + data, b"v2\n" + data):
            try:
                parse(bytes_)
            except FormatError:
                continue


@pytest.mark.parametrize("name", PLANNED)
def test_real_logs_say_what_their_text_says(name: str) -> None:
    found = checkpoint(name)
    for batch in found.batches():
        lines = found.files[f"offsets/{batch}"].decode().split("\n")
        offsets = parse_offsets(found.files[f"offsets/{batch}"])
        assert offsets.conf == json.loads(lines[1])["conf"]
        assert list(offsets.sources.values()) == [line.removeprefix("0:") for line in lines[2:]]
        commit = parse_commit(found.files[f"commits/{batch}"])
        assert commit.next_watermark_ms >= offsets.watermark_ms
        assert (commit.version == 2) == ("/ids-" in name)
