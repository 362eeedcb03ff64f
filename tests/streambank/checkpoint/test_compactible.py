from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambank.checkpoint.compactible import (
    LogName,
    entries_up_to,
    format_log_entry,
    parse_log_entry,
    parse_log_name,
)
from streambank.core.errors import FormatError, NotFoundError
from streambank.core.lines import pieces
from tests.support.checkpoint.recorded import checkpoint
from tests.support.refuses import refuses


def parsed(data: bytes, path: str = "log entry") -> tuple[int, list[dict[str, Any]]]:
    version, entries = parse_log_entry(pieces(data), path)
    return version, list(entries)


def names(*texts: str) -> list[LogName]:
    found = [parse_log_name(text) for text in texts]
    assert None not in found
    return [name for name in found if name]


@pytest.mark.parametrize("text", ["", "x", "01", "-1", "9.compact.crc", ".9.crc", "9.tmp", "9.compac", "٣"])
def test_other_files_are_no_entries(text: str) -> None:
    assert parse_log_name(text) is None


@given(st.integers(0, 10**18), st.booleans())
def test_names_come_back(batch: int, compact: bool) -> None:
    name = LogName(batch, compact)
    assert parse_log_name(str(name)) == name


@given(st.lists(st.dictionaries(st.text(), st.one_of(st.integers(), st.text(), st.booleans()))))
def test_entries_come_back(entries: list[dict[str, object]]) -> None:
    assert parsed(b"".join(format_log_entry(1, entries))) == (1, entries)


def test_an_entry_may_add_nothing() -> None:
    assert parsed(b"v1") == (1, [])
    assert parsed(b"v1\n") == (1, [])


@pytest.mark.parametrize("data", [b"", b"v1\n{", b"v1\n[]", b'v1\n{"a":1}\n{"b"', b"\xff", b"{}"])
def test_half_an_entry_is_one_clear_error(data: bytes) -> None:
    with refuses(FormatError, "half-written", match="sources/0/3"):
        parsed(data, "sources/0/3")


def test_a_version_of_the_future_is_refused() -> None:
    with pytest.raises(FormatError, match="version 2"):
        parsed(b"v2\n{}")


def test_an_entry_needs_the_last_compaction_and_what_came_after() -> None:
    there = names("7", "8", "9.compact", "10", "11", "19.compact", "20", "3", "9")
    assert [str(name) for name in entries_up_to(there, 11, "log")] == ["9.compact", "10", "11"]
    assert [str(name) for name in entries_up_to(there, 9, "log")] == ["9.compact"]
    assert [str(name) for name in entries_up_to(there, 20, "log")] == ["19.compact", "20"]


def test_a_missing_entry_is_named() -> None:
    with refuses(NotFoundError, "missing-log-entry", match=r"log/10 is missing"):
        entries_up_to(names("9.compact", "11"), 11, "log")
    with pytest.raises(NotFoundError, match=r"log/0 is missing"):
        entries_up_to(names("1", "2"), 2, "log")
    with pytest.raises(NotFoundError, match=r"log/9 is missing, and so is 9\.compact"):
        entries_up_to(names("7", "8", "10"), 10, "log")
    with pytest.raises(NotFoundError, match=r"log/1000000000000000000 is missing"):
        entries_up_to([], 10**18, "log")


def test_a_log_may_begin_later() -> None:
    assert entries_up_to(names("4", "5"), 5, "log", start=4) == names("4", "5")


def test_a_real_compaction_holds_all_that_came_before() -> None:
    files = checkpoint("4.3.0/stateless").files
    _, compacted = parsed(files["sources/0/9.compact"])
    single = [entry for batch in range(9) for entry in parsed(files[f"sources/0/{batch}"])[1]]
    assert compacted[:9] == single
    assert [entry["batchId"] for entry in compacted] == list(range(10))
