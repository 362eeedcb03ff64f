from __future__ import annotations

import base64
import random
import time
import zlib
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import pytest

from streambank_airflow.page import store as store_module
from streambank_airflow.page.store import (
    LEFT_S,
    LINE,
    MOST_BYTES,
    DamagedPartError,
    PageStore,
    TooLargeError,
    as_json,
    part_key,
    read_part,
)
from tests.support.airflow_face.page_values import KilledError, MemoryValues


def small(number: int = 0) -> dict[str, Any]:
    return {"at": "2026-11-27T22:00:00.000Z", "error": None, "number": number, "text": "<b>Zürich</b> \u2028"}


def large(seed: int) -> dict[str, Any]:
    """What does not get smaller by compression."""
    return {"at": None, "noise": random.Random(seed).randbytes(90_000).hex()}


def read(values: MemoryValues, name: str = "charts") -> str | None:
    return read_part(name, values.read)


def line(**digests: str) -> dict[str, Any]:
    return {"format": 1, "job": "flights", "parts": {name: {"digest": one} for name, one in digests.items()}}


def test_what_is_kept_is_read_as_it_was() -> None:
    values = MemoryValues()
    pages = PageStore(values)

    pages.keep_part("charts", small())
    pages.keep_part("log", large(1))

    assert read(values) == as_json(small())
    assert read(values, "log") == as_json(large(1))
    assert read(values, "events") is None


def test_no_value_has_more_than_airflow_takes() -> None:
    values = MemoryValues()

    PageStore(values).keep_part("charts", large(1))

    assert len(values.texts) == 4
    assert max(len(text) for text in values.texts.values()) < MOST_BYTES


def test_pieces_of_before_are_deleted() -> None:
    values = MemoryValues()
    pages = PageStore(values)

    pages.keep_part("charts", large(1))
    pages.keep_part("charts", large(2))
    assert len(values.texts) == 4
    pages.keep_part("charts", small())

    assert list(values.texts) == [part_key("charts")]


@pytest.mark.parametrize("before", [small(), large(1)], ids=["small", "large"])
def test_a_writer_that_dies_leaves_the_old_or_the_new_and_in_the_end_nothing_else(
    before: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    after, texts = large(2), set()
    for writes in range(20):
        values = MemoryValues()
        PageStore(values).keep_part("charts", before)
        values.writes_left = writes
        try:
            PageStore(values).keep_part("charts", after)
            done = True
        except KilledError:
            done = False
        texts.add(read(values))
        assert texts <= {as_json(before), as_json(after)}

        values.writes_left = None
        later = time.time() + 2 * LEFT_S
        monkeypatch.setattr(time, "time", lambda moment=later: moment)
        PageStore(values).keep_part("charts", small(3))
        monkeypatch.undo()
        assert read(values) == as_json(small(3))
        assert list(values.texts) == [part_key("charts")]
        if done:
            break
    else:
        raise AssertionError("it never came to its end")
    assert texts == {as_json(before), as_json(after)}


def test_the_first_writer_of_a_part_that_dies_leaves_no_part() -> None:
    values = MemoryValues(writes_left=2)

    with pytest.raises(KilledError):
        PageStore(values).keep_part("charts", large(1))

    assert read(values) is None


def test_pieces_that_another_writer_is_writing_are_left_alone() -> None:
    values = MemoryValues()
    other: list[str] = []

    def write_meanwhile(key: str) -> None:
        # The second piece of the first one: another task keeps the same part from begin to end.
        if key.endswith("/1") and not other:
            other.append(key)
            PageStore(values).keep_part("charts", large(2))

    values.before_write = write_meanwhile
    PageStore(values).keep_part("charts", large(1))

    assert other and read(values) == as_json(large(1))
    assert len(values.texts) == 4


def test_a_reader_that_comes_between_reads_the_head_again() -> None:
    values = MemoryValues()
    PageStore(values).keep_part("charts", large(1))
    reads: list[Sequence[str]] = []

    def read_slowly(keys: Sequence[str]) -> Mapping[str, Any]:
        reads.append(keys)
        if len(reads) == 2:
            PageStore(values).keep_part("charts", large(2))
        return values.read(keys)

    assert read_part("charts", read_slowly) == as_json(large(2))
    assert len(reads) == 4


def test_damage_is_found_wherever_it_is() -> None:
    whole = MemoryValues()
    PageStore(whole).keep_part("charts", large(1))
    for key, text in whole.texts.items():
        middle = len(text) // 2
        spoiled = [text[:middle] + "!" + text[middle + 1 :], text[: middle // 4 * 4] + '"', "7", "[]", "{}"]
        if key == part_key("charts"):
            spoiled = ["7", "[]", "{}", '{"format": 1}', text.replace('"pieces": 3', '"pieces": 2')]
        for one in spoiled:
            values = MemoryValues({**whole.texts, key: one})
            with pytest.raises(DamagedPartError):
                read(values)
        with_less = {name: one for name, one in whole.texts.items() if name != key}
        if key != part_key("charts"):
            with pytest.raises(DamagedPartError, match="whole"):
                read(MemoryValues(with_less))


@pytest.mark.parametrize(
    "head",
    [
        {"format": 1, "digest": "0" * 32, "data": "eJw="},
        {"format": 1, "digest": "0" * 32, "data": 7},
        {"format": 1, "digest": "../../other", "pieces": 1},
        {"format": 1, "digest": "0" * 32, "pieces": 10**9},
        {"format": 1, "digest": "0" * 32, "pieces": True},
        {"format": 2, "digest": "0" * 32, "data": ""},
    ],
)
def test_a_head_of_somebody_else_is_damage(head: dict[str, Any]) -> None:
    values = MemoryValues()
    values.set(part_key("charts"), head)

    with pytest.raises(DamagedPartError):
        read(values)


def test_a_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    values = MemoryValues()
    monkeypatch.setattr(store_module, "MOST_PART_BYTES", 1 << 20)
    PageStore(values).keep_part("charts", ["0" * 1000] * 900)
    assert read(values) is not None

    monkeypatch.setattr(store_module, "MOST_PART_BYTES", 1 << 16)
    with pytest.raises(DamagedPartError):
        read(values)


def test_what_is_too_large_or_no_json_is_refused() -> None:
    pages = PageStore(MemoryValues())

    with pytest.raises(TooLargeError):
        pages.keep_part("charts", ["0" * 1000] * 9000)
    with pytest.raises(TooLargeError):
        pages.keep({**line(), "spark": ["0" * 1000] * 60}, {}, None)
    with pytest.raises(ValueError):
        pages.keep_part("charts", {"v": float("nan")})


def test_only_parts_that_have_changed_are_written_and_the_line_comes_last() -> None:
    values = MemoryValues()
    pages = PageStore(values)
    first = line(charts="a", events="b")
    assert pages.keep(first, {"charts": small(1), "events": small(2)}, None) == 2
    assert pages.line() == first

    written: list[str] = []
    values.before_write = written.append
    second = line(charts="a", events="c")
    assert pages.keep(second, {"charts": small(1), "events": small(3)}, first) == 1

    assert written == [part_key("events"), LINE]
    assert read(values, "events") == as_json(small(3))


def test_a_line_that_is_damaged_counts_as_none() -> None:
    values = MemoryValues({LINE: "[]"})

    assert PageStore(values).line() is None


@pytest.mark.parametrize("damage", [None, {}, {"format": 1, "of": "0"}], ids=["gone", "empty", "older"])
def test_a_part_that_is_not_what_the_line_says_is_written_again(damage: dict[str, Any] | None) -> None:
    values = MemoryValues()
    pages = PageStore(values)
    known = line(charts="1")
    assert pages.keep(known, {"charts": small()}, None) == 1
    assert pages.keep(known, {"charts": small()}, known) == 0
    if damage is None:
        values.delete(part_key("charts"))
    else:
        values.set(part_key("charts"), damage)

    assert pages.keep(known, {"charts": small()}, known) == 1
    assert read(values) == as_json(small())


def test_a_part_that_no_line_names_any_more_is_deleted() -> None:
    values = MemoryValues()
    pages = PageStore(values)
    pages.keep(line(log="1", charts="1"), {"log": large(1), "charts": small()}, None)

    pages.keep(line(charts="1"), {}, line(log="1", charts="1"))

    assert sorted(values.texts) == [LINE, part_key("charts")]


def test_what_a_browser_could_not_read_is_damage() -> None:
    values = MemoryValues()
    for text in ('{"at": NaN}', "no json", '"\ud800"'):
        compressed = base64.b64encode(zlib.compress(text.encode("utf-8", "surrogatepass"))).decode()
        digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        values.set(part_key("charts"), {"format": 1, "digest": digest, "data": compressed})
        with pytest.raises(DamagedPartError):
            read(values)
    values.set(part_key("charts"), {"format": 1, "digest": "0" * 32, "data": "Zürich"})
    with pytest.raises(DamagedPartError):
        read(values)
