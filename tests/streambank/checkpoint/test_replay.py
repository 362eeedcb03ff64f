"""Bringing the plans of a live query's batches to its copy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streambank.checkpoint.replay import Replay, lay_plan, stage_replay
from streambank.core.shape import decode, encode
from streambank.driver.spec import QuerySpec
from streambank.storage import open_store
from streambank.storage.store import Store
from tests.support.storage.contents import contents, keys


def offsets(source: int | None) -> bytes:
    """An entry of the offset log: of a file source, which is at an entry of its log, and of Kafka."""
    head = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}})
    file = "-" if source is None else json.dumps({"logOffset": source})
    return f'v1\n{head}\n{file}\n{{"topic":{{"0":7}}}}'.encode()


@pytest.fixture
def live(tmp_path: Path) -> Store:
    """A live query at batch 5 that keeps the plans from batch 2 on; its source has compacted entry 3."""
    store = open_store(str(tmp_path / "live"))
    for batch in range(2, 7):
        store.write(f"offsets/{batch}", offsets(batch))
    for batch in range(2, 6):
        store.write(f"commits/{batch}", b"v1\n{}")
    for name in ("3.compact", "3", "4", "5", "6"):
        store.write(f"sources/0/{name}", b"v1\n" + name.encode())
    return store


@pytest.fixture
def copy(tmp_path: Path) -> Store:
    store = open_store(str(tmp_path / "copy"))
    store.write("offsets/2", offsets(2))
    store.write("sources/0/2", b"v1\n2")
    return store


def test_each_batch_brings_what_it_needs_and_no_more(live: Store, copy: Store, tmp_path: Path) -> None:
    before = contents(live), contents(copy)
    plans = open_store(str(tmp_path / "plans"))
    staged = stage_replay(live, copy, plans, after=2, most=2)
    assert (staged.batches, staged.why) == ((3, 4), None)
    assert keys(plans) == [
        "3/offsets",
        "3/sources/0/3",
        "3/sources/0/3.compact",
        "4/offsets",
        "4/sources/0/4",
    ]
    assert (contents(live), contents(copy)) == before

    lay_plan(plans, copy, 3)
    assert keys(copy) == ["offsets/2", "offsets/3", "sources/0/2", "sources/0/3", "sources/0/3.compact"]
    lay_plan(plans, copy, 4)
    assert copy.read("offsets/4") == live.read("offsets/4")
    assert copy.read("sources/0/4") == b"v1\n4"


def test_a_planned_batch_that_the_live_query_has_not_committed_is_left_out(
    live: Store, copy: Store, tmp_path: Path
) -> None:
    staged = stage_replay(live, copy, open_store(str(tmp_path / "plans")), after=2, most=9)
    assert staged.batches == (3, 4, 5)
    assert staged.why == "the live query has committed batches up to 5"


def test_plans_that_are_gone_are_said(live: Store, copy: Store, tmp_path: Path) -> None:
    staged = stage_replay(live, copy, open_store(str(tmp_path / "plans")), after=0, most=3)
    assert staged.batches == ()
    assert staged.why is not None
    assert "from batch 2 on, and not of batch 1" in staged.why
    empty = open_store(str(tmp_path / "empty"))
    assert stage_replay(empty, copy, live, after=0, most=3).why == "the live checkpoint has no batches"


def test_a_compacted_entry_stands_for_those_that_spark_has_deleted(
    live: Store, copy: Store, tmp_path: Path
) -> None:
    live.delete("sources/0/3")
    live.delete("sources/0/3.compact")
    live.write("sources/0/7.compact", b"v1\n7.compact")
    plans = open_store(str(tmp_path / "plans"))
    assert stage_replay(live, copy, plans, after=2, most=2).batches == (3, 4)
    assert keys(plans) == ["3/offsets", "3/sources/0/7.compact", "4/offsets"]


def test_an_entry_that_is_gone_ends_the_batches_before_it(live: Store, copy: Store, tmp_path: Path) -> None:
    live.delete("sources/0/5")
    staged = stage_replay(live, copy, open_store(str(tmp_path / "plans")), after=2, most=9)
    assert staged.batches == (3, 4)
    assert staged.why is not None
    assert "lacks entry 5" in staged.why


def test_a_source_without_a_log_of_files_brings_nothing(copy: Store, tmp_path: Path) -> None:
    live = open_store(str(tmp_path / "live"))
    live.write("offsets/3", offsets(None))
    live.write("commits/3", b"v1\n{}")
    plans = open_store(str(tmp_path / "plans"))
    assert stage_replay(live, copy, plans, after=2, most=1).batches == (3,)
    assert keys(plans) == ["3/offsets"]


def test_a_launch_spec_carries_it() -> None:
    replay = Replay((3, 4), "file:///plans", live="file:///live")
    spec = QuerySpec("file:///checkpoint", 1, replay=encode(replay))
    assert decode(Replay, decode(QuerySpec, encode(spec), "launch spec").replay, "launch spec") == replay
