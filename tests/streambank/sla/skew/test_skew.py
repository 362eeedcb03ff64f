"""Skew of one store: the largest partition against the mean, and when that says something."""

from __future__ import annotations

import random

import pytest

from streambank.checkpoint.shape import PartitionState
from streambank.sla.skew.skew import DEFAULT_LIMIT, FEW_BYTES, StoreSkew, chance_skew


def counted(partition: int, rows: int, size_bytes: int | None = None) -> PartitionState:
    """A partition whose newest snapshot is of the very version, and counts."""
    return PartitionState(partition, rows, 7, rows, rows * 100 if size_bytes is None else size_bytes, 0, 0, 0)


def uncounted(partition: int, size_bytes: int, change_bytes: int = 0) -> PartitionState:
    """A partition of the HDFS-backed provider."""
    changes = 1 if change_bytes else 0
    return PartitionState(partition, None, 7, None, size_bytes, changes, change_bytes, change_bytes)


def changed(partition: int, rows: int, size_bytes: int, change_bytes: int) -> PartitionState:
    """A partition of RocksDB with a change after its newest snapshot."""
    return PartitionState(partition, None, 6, rows, size_bytes, 1, change_bytes, change_bytes)


def store(*parts: PartitionState, limit: float = DEFAULT_LIMIT) -> StoreSkew:
    return StoreSkew(0, "stateStoreSave", "default", parts, "lz4", limit)


def test_it_is_the_largest_over_the_mean_of_all_partitions_empty_ones_too() -> None:
    hot = store(counted(0, 1000), counted(1, 7000), counted(2, 0), counted(3, 0))
    assert (hot.rows, hot.bytes) == (8000, 800_000)
    assert (hot.skew, hot.row_skew, hot.byte_skew) == (3.5, 3.5, 3.5)
    assert (hot.largest, hot.by, hot.mean) == (1, "rows", 2000.0)
    assert hot.empty == [2, 3]
    assert hot.uneven
    assert "Partition 1 has 3.5 times the mean by rows. 2 of 4 partitions hold no rows." in hot.advice
    assert hot.unknown == []
    even = store(*(counted(number, 2000) for number in range(4)))
    assert (even.skew, even.uneven, even.advice) == (1.0, False, "It is spread evenly enough.")


def test_the_limit_decides() -> None:
    parts = [counted(0, 1000), counted(1, 7000), counted(2, 0), counted(3, 0)]
    assert not store(*parts, limit=3.5).uneven
    assert store(*parts, limit=3.49).uneven


def test_one_huge_value_shows_in_bytes_where_rows_are_even() -> None:
    huge = store(*(counted(number, 5000, 10_000 if number else 9_000_000) for number in range(8)))
    assert huge.row_skew == 1.0
    assert (huge.by, huge.largest, huge.uneven) == ("bytes", 0, True)
    assert huge.skew == huge.byte_skew == pytest.approx(7.94, abs=0.01)


def test_few_rows_are_uneven_by_nature_and_not_by_a_hot_key() -> None:
    few = store(counted(0, 5), *(counted(number, 0) for number in range(1, 8)))
    assert few.skew == 8.0
    assert few.chance == 8.0
    assert not few.uneven
    assert few.advice == (
        "The skew of 8.0 by rows means nothing: so few rows are spread like that by chance (up to 8.0). "
        "7 of 8 partitions hold no rows."
    )


def test_rows_judge_where_bytes_are_too_few_to_say_anything() -> None:
    parts = [counted(0, 9000, 9000), *(counted(number, 300, 90) for number in range(1, 8))]
    small = store(*parts)
    assert small.byte_skew is not None and small.row_skew is not None and small.byte_skew > small.row_skew > 3
    assert (small.by, small.uneven) == ("rows", True)
    only_bytes = store(counted(0, 300, 9000), *parts[1:])
    assert (only_bytes.by, only_bytes.uneven) == ("bytes", False)
    assert "by bytes means nothing: there is so little" in only_bytes.advice


def test_where_rows_are_not_known_bytes_judge_but_not_those_of_tiny_files() -> None:
    tiny = store(uncounted(0, 900), *(uncounted(number, 46) for number in range(1, 8)))
    assert (tiny.rows, tiny.row_skew, tiny.by, tiny.chance) == (None, None, "bytes", None)
    assert tiny.skew is not None and tiny.skew > 5
    assert not tiny.uneven
    assert "mostly overhead" in tiny.advice
    large = store(uncounted(0, FEW_BYTES), *(uncounted(number, 46) for number in range(1, 8)))
    assert large.uneven
    assert large.unknown == ["The files of 8 of 8 partitions do not count rows."]


def test_rows_of_some_partitions_alone_are_no_rows_of_the_store() -> None:
    mixed = store(counted(0, 10, 1000), changed(1, 30, 3000, 500))
    assert (mixed.rows, mixed.by) == (None, "bytes")
    (said,) = mixed.unknown
    assert said.startswith("1 of 2 partitions have changed since their newest snapshots.")
    document = mixed.to_dict()["partitions"][1]
    assert (document["rows"], document["snapshot_rows"], document["snapshot_version"]) == (None, 30, 6)
    assert (document["bytes"], document["snapshot_bytes"], document["change_bytes"]) == (3500, 3000, 500)
    assert document["times_mean"] == pytest.approx(3500 / 2250, abs=0.001)


def test_what_is_empty_is_known_or_said_not_to_be() -> None:
    judge = store(counted(0, 0))
    assert judge.is_empty(counted(0, 0)) is True
    assert judge.is_empty(counted(0, 1)) is False
    assert judge.is_empty(uncounted(0, 46)) is True
    assert judge.is_empty(uncounted(0, 46, 46)) is True
    assert judge.is_empty(uncounted(0, 200)) is False
    assert judge.is_empty(uncounted(0, 200, 46)) is None, "46 bytes of no change, and one that removed all?"
    assert judge.is_empty(uncounted(0, 46, 200)) is None, "added and removed again?"
    assert judge.is_empty(changed(0, 5, 1000, 90)) is None
    assert StoreSkew(0, None, "default", (), "snappy").is_empty(uncounted(0, 46)) is None


def test_nothing_and_one_partition() -> None:
    nothing = store(counted(0, 0), counted(1, 0))
    assert (nothing.skew, nothing.largest, nothing.mean, nothing.uneven) == (None, None, None, False)
    assert nothing.advice == "It is empty."
    assert nothing.to_dict()["partitions"][0]["times_mean"] is None
    removed = store(counted(0, 0, 9_000_000), *(counted(number, 0, 10) for number in range(1, 8)))
    assert (removed.uneven, removed.advice) == (False, "It is empty."), "what RocksDB has not compacted yet"
    alone = store(counted(0, 1_000_000))
    assert (alone.skew, alone.uneven) == (1.0, False)
    assert "nothing to spread" in alone.advice


@pytest.mark.parametrize(("keys", "partitions"), [(10, 8), (200, 8), (5000, 8), (3000, 200), (100_000, 200)])
def test_chance_is_hardly_ever_exceeded_by_keys_that_are_hashed_evenly(keys: int, partitions: int) -> None:
    dice = random.Random(7)
    beyond, largest = 0, 0.0
    rounds = max(20, 200_000 // keys) if keys < 100_000 else 5
    for _ in range(min(rounds, 300)):
        sizes = [0] * partitions
        for place in dice.choices(range(partitions), k=keys):
            sizes[place] += 1
        found = max(sizes) * partitions / keys
        largest = max(largest, found)
        beyond += found > chance_skew(keys, partitions)
    assert beyond <= 3
    assert largest > 1 + (chance_skew(keys, partitions) - 1) / 3, "the bound is of the right size"


def test_chance_has_its_limits() -> None:
    assert chance_skew(0, 8) == chance_skew(100, 1) == 1.0
    assert chance_skew(1, 200) == pytest.approx(200)
    assert chance_skew(10**9, 200) < 1.01
