"""Rows of deltas and changelogs as real Sparks wrote them, and files that are cut off or damaged."""

from __future__ import annotations

import struct
from collections import Counter

import pytest

from streambank.checkpoint.state.changes import RowChange, elements, hdfs_rows, head_of_changes
from streambank.checkpoint.state.unsafe_row import leaves
from streambank.core.errors import FormatError
from tests.support.checkpoint.doctor_inputs import columns
from tests.support.checkpoint.lz4_streams import stored
from tests.support.checkpoint.recorded import checkpoint
from tests.support.refuses import refuses

ALL = 1 << 20


def changes(name: str, path: str) -> tuple[RowChange, ...]:
    return head_of_changes(checkpoint(name).files[path], path, ALL)


def test_a_delta_has_the_rows_of_its_batch() -> None:
    (kept,) = columns("4.3.0/hdfs-session")[0].columns
    first, *_ = changes("4.3.0/hdfs-session", "state/0/0/1.delta")
    assert (first.action, first.family) == ("put", None)
    assert leaves(first.key, kept.key) == (
        ("k", "string", "k0"),
        ("sessionStartTime", "timestamp", 1_704_067_200_000_000),
    )
    assert leaves(first.value, kept.value) == (
        ("session_window.start", "timestamp", 1_704_067_200_000_000),
        ("session_window.end", "timestamp", 1_704_067_500_000_000),
        ("k", "string", "k0"),
        ("sum", "long", 0),
    )


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("4.3.0/rocksdb-changelog-transform", "state/0/0/2.changelog"),
        ("4.3.0/ids-changelog-transform", "state/0/0/2_bd2aeefa-576b-4d6a-9348-64fecfe6c433.changelog"),
    ],
)
def test_changelogs_with_column_families_are_read_with_and_without_lineage(name: str, path: str) -> None:
    found = changes(name, path)
    assert Counter((one.action, one.family) for one in found).keys() == {("put", 2), ("put", 3)}
    seen = next(one for one in columns(name)[0].columns if one.family == "seen")
    first = next(one for one in found if one.family == 2)
    assert leaves(first.key[1:], seen.key) == (("k", "string", "k0"),)
    assert leaves(first.value[1:], seen.value) == (("n", "integer", 2),)


def test_a_changelog_without_column_families_is_read_and_says_what_is_gone() -> None:
    found = changes("4.3.0/rocksdb-changelog-window", "state/0/0/13.changelog")
    assert {one.family for one in found} == {None} and {one.action for one in found} >= {"put"}
    assert changes("4.3.0/rocksdb-changelog-window", "state/0/0/14.changelog") == ()
    plain = struct.pack(">i1si1si1sii", 1, b"a", 1, b"x", 1, b"b", -1, -1)
    assert [*hdfs_rows(plain, "p")] == [(b"a", b"x"), (b"b", None)]


def test_lists_are_merged_and_what_is_cleared_is_deleted() -> None:
    one = struct.pack(">Bi3s", 0x11, 3, b"\x02\x00k") + struct.pack(">i", 10) + b"\x01\0\0\0x\x01\0\0\0y"
    gone = struct.pack(">Bi3si", 0x10, 3, b"\x02\x00k", -1)
    found = head_of_changes(stored(b"\x00\x02v2" + one + gone + b"\x00"), "1.changelog", ALL)
    assert [(each.action, each.family, each.key) for each in found] == [
        ("merge", 2, b"k"),
        ("delete", 2, b"k"),
    ]
    assert elements(found[0].value) == (b"x", b"y")
    assert elements(b"\x05\0\0\0x") == ()


def test_what_is_read_of_a_long_file_are_its_first_whole_rows() -> None:
    plain = b"".join(struct.pack(">i4si4s", 4, b"key%d" % number, 4, b"val.") for number in range(9))
    data = stored(plain + struct.pack(">i", -1))
    assert len(head_of_changes(data, "1.delta", ALL)) == 9
    assert len(head_of_changes(data, "1.delta", 50)) == 3


@pytest.mark.parametrize(
    "plain", [b"\x00\x00\x00\x04ke", struct.pack(">i1s", 1, b"k"), struct.pack(">i", -7)]
)
def test_a_damaged_file_is_an_error(plain: bytes) -> None:
    for path in ("1.delta", "1.changelog"):
        with pytest.raises(FormatError):
            head_of_changes(stored(plain), path, ALL)
    typed = b"\x00\x02v2\x01" + plain
    with pytest.raises(FormatError):
        head_of_changes(stored(typed), "1.changelog", ALL)
    with refuses(FormatError, "unknown-version"):
        head_of_changes(stored(b"\x00\x02v2\x77\0\0\0\0"), "1.changelog", ALL)


def test_bytes_that_are_no_row_of_the_type_have_no_leaves() -> None:
    kind = {
        "type": "struct",
        "fields": [{"name": "a", "type": "string"}, {"name": "b", "type": "decimal(9,2)"}],
    }
    null = b"\x01" + bytes(7) + bytes(8) + b"\x05" + bytes(7)
    assert leaves(null, kind) == (("a", "string", None), ("b", "decimal(9,2)", b"\x05" + bytes(7)))
    assert leaves(b"", kind) is None
    assert leaves(null[:-1], kind) is None
    outside = bytes(8) + struct.pack("<II", 9, 24) + bytes(8)
    assert leaves(outside, kind) is None
