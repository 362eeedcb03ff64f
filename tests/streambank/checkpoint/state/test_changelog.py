from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambank.checkpoint.grammar import Kind, classify
from streambank.checkpoint.logs import parse_commit
from streambank.checkpoint.state import changelog as lineage
from streambank.checkpoint.state.changelog import (
    HEAD_BYTES,
    LineageItem,
    LZ4Error,
    UnreadableLineageError,
    decompress_prefix,
    parse_lineage,
)
from streambank.core.errors import FormatError
from tests.support.checkpoint.recorded import NAMES, checkpoint

WITH_LINEAGE = [name for name in NAMES if "/ids-changelog" in name]


def stored(*chunks: bytes) -> bytes:
    """LZ4Block framing with stored blocks."""
    blocks = [struct.pack("<8sBiii", b"LZ4Block", 0x15, len(part), len(part), 0) + part for part in chunks]
    return b"".join(blocks) + struct.pack("<8sBiii", b"LZ4Block", 0x15, 0, 0, 0)


def changelog(version: str, text: str) -> bytes:
    strings = [part.encode() for part in (version, text)]
    return b"".join(struct.pack(">H", len(part)) + part for part in strings) + b"\0\0\0\1kvvv"


@pytest.mark.parametrize("name", WITH_LINEAGE)
def test_a_real_lineage_names_what_the_commits_name(name: str) -> None:
    found = checkpoint(name)
    committed = {
        (number + 1, operator, partition, unique_id)
        for number in found.batches()
        for operator, partitions in (parse_commit(found.files[f"commits/{number}"]).unique_ids or {}).items()
        for partition, stores in enumerate(partitions)
        for unique_id in stores
    }
    read = 0
    for path, data in found.files.items():
        part = classify(path)
        if part.kind is not Kind.CHANGELOG or part.version is None:
            continue
        items = parse_lineage(data[:HEAD_BYTES], path)
        assert [item.version for item in items] == list(range(part.version - len(items), part.version))
        assert {(item.version, part.operator, part.partition, item.unique_id) for item in items} <= committed
        read += 1
    assert read > 10


def test_both_versions_with_a_lineage_are_read_and_longer_ones_too() -> None:
    items = [LineageItem(number, f"{number:036}") for number in range(3, 800)]
    text = (
        "[" + ",".join(f'{{"version":{i.version},"checkpointUniqueId":"{i.unique_id}"}}' for i in items) + "]"
    )
    for version in ("v3", "v4"):
        data = changelog(version, text)
        blocks = [data[start : start + 32768] for start in range(0, len(data), 32768)]
        assert parse_lineage(stored(*blocks)[:HEAD_BYTES], "x") == items
    assert parse_lineage(stored(changelog("v3", "[]")), "1.changelog") == []


@pytest.mark.parametrize("version", ["v1", "v2", "v5", "hello"])
def test_a_changelog_without_a_known_lineage_is_refused_by_name(version: str) -> None:
    with pytest.raises(FormatError, match=r"7_a\.changelog") as refused:
        parse_lineage(stored(changelog(version, "[]")), "7_a.changelog")
    assert refused.value.code == "unknown-version"


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"version":"x","checkpointUniqueId":"a"}]', "[{}]", "["])
def test_a_lineage_that_is_none_is_one_clear_error(text: str) -> None:
    with pytest.raises(FormatError, match=r"7_a\.changelog"):
        parse_lineage(stored(changelog("v3", text)), "7_a.changelog")


def test_other_codecs_are_told_apart_from_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnreadableLineageError):
        parse_lineage(b"\x82SNAPPY\0" + b"x" * 40, "7_a.changelog")
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    with pytest.raises(UnreadableLineageError, match="zstd"):
        parse_lineage(b"\x28\xb5\x2f\xfd" + b"x" * 40, "7_a.changelog")


@given(st.binary())
def test_no_head_raises_anything_else(data: bytes) -> None:
    heads = [data, b"LZ4Block" + data, b"\x28\xb5\x2f\xfd" + data, stored(data)]
    for head in [*heads, stored(changelog("v3", "[]") + data)]:
        try:
            parse_lineage(head, "x")
        except (FormatError, lineage.UnreadableLineageError):
            continue


@pytest.mark.parametrize("name", ["4.3.0/ids-changelog-window", "4.0.5/ids-changelog-transform"])
def test_a_changelog_cut_off_in_its_head_is_damage(name: str) -> None:
    found = checkpoint(name)
    path = next(path for path in sorted(found.files) if path.endswith(".changelog") and "/3_" in path)
    for length in range(60):
        with pytest.raises((FormatError, UnreadableLineageError)):
            parse_lineage(found.files[path][:length], path)


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=5), st.integers(0, 2000))
def test_stored_blocks_come_back(chunks: list[bytes], wanted: int) -> None:
    assert decompress_prefix(stored(*chunks), wanted) == b"".join(chunks)[:wanted]


def test_compressed_blocks_with_overlapping_copies_come_back() -> None:
    # Two literals "ab", then a copy of 4 + 15 + 3 bytes from 2 back, then the last literals "xyz".
    block = bytes([0x2F]) + b"ab" + b"\x02\x00" + bytes([3]) + bytes([0x30]) + b"xyz"
    plain = b"ab" + b"ab" * 11 + b"xyz"
    head = struct.pack("<8sBiii", b"LZ4Block", 0x25, len(block), len(plain), 0)
    for wanted in range(len(plain) + 1):
        assert decompress_prefix(head + block + stored(), wanted) == plain[:wanted]
    assert decompress_prefix(head + block + stored(), 1000) == plain


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\x10",
        b"\xf0",
        b"\x00\x01",
        b"\x10a\x00\x00\x00",
        b"\x10a\x05\x00\x00",
        b"\x10a\x01",
        b"\xf0\xff\xff",
    ],
)
def test_a_damaged_block_is_one_clear_error(block: bytes) -> None:
    head = struct.pack("<8sBiii", b"LZ4Block", 0x25, len(block), 50, 0)
    with pytest.raises(LZ4Error):
        decompress_prefix(head + block, 50)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"LZ4Block",
        b"x" * 40,
        struct.pack("<8sBiii", b"LZ4Block", 0x35, 1, 1, 0) + b"x",
        struct.pack("<8sBiii", b"LZ4Block", 0x15, -1, 1, 0),
        struct.pack("<8sBiii", b"LZ4Block", 0x15, 1, 2**30, 0),
    ],
)
def test_what_is_no_stream_is_one_clear_error(data: bytes) -> None:
    with pytest.raises(LZ4Error):
        decompress_prefix(data, 10)
