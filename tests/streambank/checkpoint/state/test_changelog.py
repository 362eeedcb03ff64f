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
    UnreadableLineageError,
    parse_lineage,
)
from streambank.core.errors import FormatError
from tests.support.checkpoint.lz4_streams import stored
from tests.support.checkpoint.recorded import NAMES, checkpoint
from tests.support.refuses import refuses

WITH_LINEAGE = [name for name in NAMES if "/ids-changelog" in name]


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
    with refuses(FormatError, "unknown-version", match=r"7_a\.changelog"):
        parse_lineage(stored(changelog(version, "[]")), "7_a.changelog")


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
