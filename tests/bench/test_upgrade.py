"""The benchmark of upgrades: its figures, its page, its input, and Flink's side for real."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bench.upgrade import flink_side
from bench.upgrade.__main__ import arguments
from bench.upgrade.feed import Feed
from bench.upgrade.flink_side import WAYS, FlinkSide
from bench.upgrade.page import page, ratios
from bench.upgrade.swaps import COLD, UPGRADE, Swap, figures

CLIENT = next(way for way in WAYS if way.client)
ROUNDS = [
    [
        Swap(UPGRADE, 2.0, {"stop": 0.5, "first-batch": 1.5}),
        Swap(CLIENT.name, 4.0, {"savepoint": 3.0, "first output": 1.0}, commit_s=5.0),
        Swap(COLD, 8.0, {"stop": 0.5, "first-batch": 7.5}),
    ],
    [Swap(UPGRADE, 6.0, {"stop": 1.5}), Swap(CLIENT.name, 2.0, {"savepoint": 1.0}, commit_s=3.0)],
    [Swap(UPGRADE, 3.0), Swap(CLIENT.name, 6.0, commit_s=7.0)],
]


def test_figures_are_medians_with_their_spread() -> None:
    ours, theirs, cold = figures([swap for swaps in ROUNDS for swap in swaps])
    assert (ours.what, ours.median_s, ours.low_s, ours.high_s, ours.rounds) == (UPGRADE, 3.0, 2.0, 6.0, 3)
    assert (ours.commit_s, theirs.commit_s) == (None, 5.0)
    assert (ours.steps, cold.rounds) == ({"stop": 1.0, "first-batch": 1.5}, 1)


def test_ratios_are_of_one_round_each() -> None:
    assert ratios(ROUNDS, CLIENT.name) == [0.5, 0.5, 3.0]
    assert ratios(ROUNDS, COLD) == [0.25]


def test_the_page_says_where_ours_is_longer() -> None:
    text = page("Made.", "2.3.0", 1_000, {5_000: ROUNDS, 9_000: ROUNDS[1:2]})
    first, second = text.split("## 9,000 keys")
    assert f"not longer than {CLIENT.name} (0.50 times)" in " ".join(first.split())
    assert f"LONGER than {CLIENT.name} (3.00 times)" in " ".join(second.split())
    assert f"| {CLIENT.name} | 4.0 | 2.0, 6.0 | 5.0 | 0.50 | 0.50, 3.00 |" in first
    assert f"- {UPGRADE}: stop 1.0, first-batch 1.5" in first
    assert max(len(line) for line in text.splitlines() if not line.startswith(("|", "-"))) <= 110


def test_the_command_on_the_page_is_what_was_asked() -> None:
    assert arguments([]).given == ""
    asked = arguments(["--keys", "10", "20", "--rounds", "1", "--output", "elsewhere"])
    assert asked.given == " --keys 10 20 --rounds 1"


def test_the_input_has_each_key_once_and_then_keys_that_are_known(tmp_path: Path) -> None:
    feed = Feed(tmp_path / "in", 50)
    with feed.flowing(1_000, 0.01):
        time.sleep(0.1)
    first, *more = sorted(feed.folder.glob("*.txt"))
    keys = first.read_text().splitlines()
    assert len(keys) == len(set(keys)) == 50
    assert more and all(len(path.read_text().splitlines()) == 10 for path in more)
    assert {line for path in more for line in path.read_text().splitlines()} <= set(keys)


@pytest.mark.storm
def test_flink_goes_on_with_its_state(tmp_path: Path) -> None:
    if absent := flink_side.missing():
        pytest.skip(absent)
    feed = Feed(tmp_path / "in", 1_000)
    flink = FlinkSide(tmp_path / "flink", feed.folder)
    try:
        flink.start()
        with feed.flowing(1_000, 0.1):
            swap = flink.swap(CLIENT)  # raises where the count of a key begins again
    finally:
        flink.end()
    assert swap.commit_s is not None and 0 < swap.without_s <= swap.commit_s
    assert list(swap.steps) == ["savepoint", "submit", "first output"]
