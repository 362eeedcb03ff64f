"""Shares of keys from quantiles of their hashes: seen within the bounds, and an even spread is never hot."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from streambank.control.progress import ProgressRecord
from streambank.core.units import to_json_time, utc_now
from streambank.sla.skew.traffic import (
    FRESH,
    HASH_BITS,
    QUANTILE_ERROR,
    QUANTILES,
    SALTED_BITS,
    BatchSample,
    Traffic,
    TrafficWindow,
    as_of,
    facts_of,
    interval,
    measured_lines,
    partition_of,
)

HOT = 7 << 40


def batch(chance: random.Random, rows: int, hot: float, keys: int, sample: float) -> BatchSample:
    """A batch as Spark would describe it, with exact quantiles."""
    hashes = [chance.randrange(keys) * 104729 if chance.random() >= hot else HOT for _ in range(rows)]
    taken = sorted(one for one in hashes if chance.random() < sample)
    quantiles = [taken[int((2 * n + 1) * len(taken) / (2 * QUANTILES))] for n in range(QUANTILES) if taken]
    return BatchSample(rows, len(taken), len(set(taken)), quantiles)


@pytest.mark.parametrize("sample", [1.0, 0.2, 0.02])
@pytest.mark.parametrize("hot", [0.4, 0.05])
def test_a_hot_key_is_within_the_bounds(hot: float, sample: float) -> None:
    chance, window = random.Random(f"{hot} {sample}"), TrafficWindow(600, sample, 5)
    for second in range(20):
        window.add(second, batch(chance, 2000, hot, 300, sample))
    found = window.describe(8)
    assert (found["batches"], found["rows"]) == (20, 40_000)
    top = found["top"][0]
    assert int(top["hash"], 16) == HOT
    assert top["low"] < hot < top["high"]
    assert top["low"] > 0
    assert top["times_mean"] == pytest.approx(top["low"] * found["keys"], rel=0.03)
    assert top["partition"] == partition_of(HOT, 8)


@pytest.mark.parametrize("sample", [1.0, 0.2, 0.02])
@pytest.mark.parametrize("keys", [10, 1000, 100_000])
def test_an_even_spread_is_never_hot(keys: int, sample: float) -> None:
    chance, window = random.Random(keys), TrafficWindow(600, sample, 5, salted=8)
    for second in range(20):
        window.add(second, batch(chance, 2000, 0.0, keys, sample))
    found = window.describe()
    assert all(one["times_mean"] < 1.5 for one in found["top"]), found
    assert all("hash" not in one and one["partition"] is None for one in found["top"])


def test_batches_of_one_row_add_up_to_what_they_are() -> None:
    """Each has one key with all rows, and no key is hot."""
    window = TrafficWindow(600, 1.0, 5)
    for n in range(400):
        window.add(n, BatchSample(1, 1, 1, [HOT if n % 4 == 0 else n] * QUANTILES))
    assert window.describe()["top"][0]["share"] == pytest.approx(0.25)


def test_one_sampled_row_proves_nothing() -> None:
    low, high = interval(1.0, 1, 0.1)
    assert low < 0.07
    assert high == 1.0
    assert interval(0.5, 10, 1.0) == (0.5 - QUANTILE_ERROR, 0.5 + QUANTILE_ERROR), "nothing left to chance"


def test_the_window_moves_on_and_its_memory_is_bounded() -> None:
    window = TrafficWindow(100, 1.0, 50)
    chance = random.Random(1)
    for second in range(1000):
        hashes = sorted(chance.randrange(1 << HASH_BITS) for _ in range(QUANTILES))
        window.add(second, BatchSample(QUANTILES, QUANTILES, QUANTILES, hashes))
    assert len(window._slots) <= 12
    assert all(len(slot.by_hash) <= 2000 for slot in window._slots)
    assert window.describe()["batches"] <= 120
    window.add(2000, BatchSample(10, 10, 1, [HOT] * QUANTILES))
    assert (window.describe()["batches"], len(window.describe()["top"])) == (1, 1)


def test_a_batch_of_which_no_row_was_sampled_says_nothing_of_shares() -> None:
    window = TrafficWindow(600, 0.01, 5)
    window.add(0, BatchSample(20, 0, 0, []))
    assert window.describe() == {
        "batches": 0, "rows": 20, "sampled": 0, "keys": 0, "smallest_share": None, "top": [],
    }  # fmt: skip
    traffic = measured([{"operator": 0, "name": "Aggregate", "by": ["user"]}])
    traffic.add({0: BatchSample(20, 0, 0, [])})
    assert measured_lines(traffic.describe({})) == ["operator 0 (Aggregate): no row was sampled"]


def test_the_partition_is_that_of_sparks_hash() -> None:
    """Murmur3 of `hot` with seed 42 is -1462302423 (`SELECT hash('hot')`)."""
    upper = -1462302423 & ((1 << 32) - 1)
    assert partition_of(upper << 20 | 12345, 7) == -1462302423 % 7


def test_a_salted_hash_has_its_partition_and_is_not_reported() -> None:
    window = TrafficWindow(600, 1.0, 5, salted=8)
    window.add(0, BatchSample(1000, 1000, 1, [6 << SALTED_BITS | 99] * QUANTILES))
    (top,) = window.describe(8)["top"]
    assert (top["partition"], "hash" in top) == (6, False)
    assert window.describe(9)["top"][0]["partition"] is None, "the checkpoint has another number of them"
    assert window.describe(None)["top"][0]["partition"] is None


def test_a_measurement_of_an_earlier_driver_is_no_fact_of_the_newest() -> None:
    traffic = measured([{"operator": 0, "name": "Aggregate", "by": ["user"]}])
    traffic.add({0: BatchSample(1000, 1000, 100, [HOT] * 200 + list(range(300)))})
    old = record(traffic.describe({0: 8}))
    assert len(facts_of(old, utc_now(), old.epoch)[0]) == 1
    assert facts_of(old, utc_now(), old.epoch + 1) == (
        [],
        f"The newest measurement of traffic is of {to_json_time(AT)}, "
        "before the job was last started or restored",
    )
    for epoch, said in (
        (old.epoch, "ago"),
        (old.epoch + 1, "ago, before the job was last started or restored"),
    ):
        found = old.traffic(epoch)
        assert found is not None and found["current"] is (epoch == old.epoch)
        moment = AT + timedelta(seconds=90)
        assert as_of(found, moment) == f"as of {to_json_time(AT)} (batch 3), 1 min 30 s {said}"
    assert record(None).traffic(1) is None


def test_what_is_fresh_becomes_facts() -> None:
    traffic = measured(
        [
            {"operator": 0, "name": "Aggregate", "by": ["user"]},
            {"operator": 1, "name": "Join", "by": [], "why": "a join has keys on both sides"},
        ]
    )
    traffic.add({0: BatchSample(1000, 1000, 100, [HOT] * 200 + list(range(300)))})
    described = traffic.describe({0: 8})
    facts, why = facts_of(record(described), utc_now())
    assert [(one.subject, round(one.value)) for one in facts] == [("operator 0 (Aggregate), traffic", 40)]
    assert "The largest key has 40 % (39.8 % to 40.2 %) of 1,000 rows within 10 min" in facts[0].what
    assert why == "operator 1 (Join): a join has keys on both sides"
    assert facts_of(record(described), utc_now() + FRESH * 2) == (
        [],
        f"The newest measurement of traffic is of {to_json_time(AT)}, which is too old",
    )
    assert facts_of(record(None), utc_now()) == ([], "")
    assert facts_of(None, utc_now()) == ([], "")
    assert facts_of(record({"window_s": 1}), utc_now()) == (
        [],
        "The newest measurement of traffic cannot be read",
    )


def test_no_key_above_the_bound_is_at_least_once_the_mean() -> None:
    traffic = measured([{"operator": 0, "name": "Aggregate", "by": ["user"]}])
    traffic.add({0: BatchSample(3000, 3000, 1000, list(range(QUANTILES)))})
    (fact,), _ = facts_of(record(traffic.describe({})), utc_now())
    assert fact.value == 1.0
    assert "No key has more than 0.24 % of 3,000 rows" in fact.what


@pytest.mark.parametrize(("rows", "keys"), [(30, 3), (1000, 900)])
def test_a_sample_that_cannot_show_that_no_key_is_hot_is_no_measurement(rows: int, keys: int) -> None:
    traffic = measured([{"operator": 0, "name": "Aggregate", "by": ["user"]}])
    traffic.add({0: BatchSample(rows, rows, keys, list(range(QUANTILES)))})
    facts, why = facts_of(record(traffic.describe({})), utc_now())
    assert facts == [] and "too few rows of a batch are sampled" in why


def test_a_measurement_that_is_given_up_says_why_of_each_operator() -> None:
    traffic = measured(
        [
            {"operator": 0, "name": "Aggregate", "by": ["user"]},
            {"operator": 1, "name": "Join", "by": [], "why": "two sides"},
        ]
    )
    traffic.not_measured("it failed")
    assert [one["why"] for one in traffic.describe({})["operators"]] == ["it failed", "two sides"]


def measured(points: list[dict[str, Any]]) -> Traffic:
    """A measurement with every row sampled."""
    return Traffic(points, sample=1.0, window_s=600.0, max_keys=5, salted=None, clock_s=lambda: 0.0)


AT = utc_now().replace(microsecond=0)


def record(hot_keys: Mapping[str, Any] | None) -> ProgressRecord:
    return ProgressRecord(AT, 1, "main", "run", 3, {}, hot_keys)


def test_pruning_keeps_the_largest() -> None:
    window = TrafficWindow(600, 1.0, 1)
    chance = random.Random(2)
    for second in range(50):
        quantiles = [HOT] * 100 + sorted(chance.randrange(1 << 30) for _ in range(400))
        window.add(second, BatchSample(1000, 1000, 900, quantiles))
    assert window.describe()["top"][0]["share"] == pytest.approx(0.2)
    assert Counter(one["hash"] for one in window.describe()["top"]) == {f"{HOT:013x}": 1}
