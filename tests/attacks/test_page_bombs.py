"""Who writes where parts of the page are kept: each value is read, or is damage; none fills the memory."""

from __future__ import annotations

import base64
import json
import random
import tracemalloc
import zlib
from hashlib import blake2b
from typing import Any

import pytest

from streambank_airflow.page import store
from streambank_airflow.page.store import (
    MOST_PART_BYTES,
    MOST_PIECES,
    DamagedPartError,
    PageStore,
    part_key,
    read_part,
)
from tests.fuzz.mutate import Mutator
from tests.support.airflow_face.page_values import MemoryValues

pytestmark = pytest.mark.airflow


class Raw(MemoryValues):
    """As the API server reads: what is no JSON is nothing that was written."""

    def get(self, key: str) -> Any:
        try:
            return super().get(key)
        except (ValueError, RecursionError):
            return {}


def head_of(packed: bytes, of: bytes, **more: Any) -> dict[str, Any]:
    """A head that is right but for what is packed in it."""
    data = base64.b64encode(packed).decode()
    return {"format": 1, "digest": blake2b(of, digest_size=16).hexdigest(), "data": data, **more}


def read(values: MemoryValues) -> str | None:
    return read_part("charts", values.read)


def bomb(megabytes: int) -> bytes:
    """So many megabytes of nothing, packed."""
    packer = zlib.compressobj(9)
    parts = [packer.compress(b'"'), *(packer.compress(b"0" * (1 << 20)) for _ in range(megabytes))]
    return b"".join([*parts, packer.compress(b'"'), packer.flush()])


@pytest.mark.parametrize("megabytes", [9, pytest.param(64, marks=pytest.mark.storm)])
def test_a_bomb_is_damage_and_is_not_unpacked(megabytes: int) -> None:
    values = Raw()
    packed = bomb(megabytes)
    assert len(packed) < 100_000 < MOST_PART_BYTES < megabytes << 20
    values.set(part_key("charts"), head_of(packed, b""))
    tracemalloc.start()
    try:
        with pytest.raises(DamagedPartError):
            read(values)
        assert tracemalloc.get_traced_memory()[1] < 3 * MOST_PART_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("packed", [b"", b"x", zlib.compress(b"{}")[:-3], zlib.compress(b"{}") * 2])
def test_what_is_packed_otherwise_is_damage(packed: bytes) -> None:
    values = Raw()
    values.set(part_key("charts"), head_of(packed, b"[]"))
    with pytest.raises(DamagedPartError):
        read(values)


NO_NUMBERS: tuple[Any, ...] = (
    0,
    -1,
    MOST_PIECES + 1,
    10**300,
    1.5,
    "3",
    True,
    None,
    [],
    {"a": 1},
    float("inf"),
)
NO_DIGESTS: tuple[Any, ...] = ("../../line", "0" * 31, "0" * 33, "g" * 32, "A" * 32, 7, None, [], "%" * 32)


@pytest.mark.parametrize(
    "head",
    [
        *({**head_of(b"", b""), "data": None, "pieces": pieces} for pieces in NO_NUMBERS),
        *({"format": 1, "digest": digest, "pieces": 2} for digest in NO_DIGESTS),
    ],
)
def test_a_head_names_no_pieces_but_its_own(head: dict[str, Any]) -> None:
    asked: list[str] = []
    values = Raw({part_key("charts"): json.dumps(head)})

    def count(keys: Any) -> Any:
        asked.extend(keys)
        return values.read(keys)

    with pytest.raises(DamagedPartError):
        read_part("charts", count)
    assert set(asked) == {part_key("charts")}


@pytest.mark.parametrize("rounds", [300, pytest.param(20_000, marks=pytest.mark.storm)])
def test_changed_values_are_read_or_are_damage_and_are_written_again(
    rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the mutations of the fuzzer: other bytes, numbers, types and names, in heads, pieces and lines."""
    monkeypatch.setattr(store, "_PIECE_BYTES", 300)  # so that a small part has pieces
    whole = MemoryValues()
    noise = {"at": None, "noise": random.Random(1).randbytes(500).hex()}
    PageStore(whole).keep({"format": 1, "job": "x", "parts": {}}, {"charts": noise}, None)
    PageStore(whole).keep_part("status", {"at": None, "text": "<b>Zürich</b>"})
    assert len(whole.texts) > 4
    seeds = [text.encode() for text in whole.texts.values()]
    mutate = Mutator(random.Random(20261129))
    damaged = 0
    for _ in range(rounds):
        key = mutate.chance.choice([*whole.texts])
        text = mutate(whole.texts[key].encode(), seeds).decode("utf-8", "replace")
        values = Raw({**whole.texts, key: text})
        for part in ("charts", "status"):
            try:
                found = read_part(part, values.read)
                assert found is None or json.loads(found)
            except DamagedPartError:
                damaged += 1
        PageStore(values).line()
        PageStore(values).keep_part("charts", {"at": None})
        assert read(values) == '{"at": null}', "whatever was there, the next one keeps it again"
    assert damaged > rounds / 10
