"""What event triggers tell, and how they remember it: pure, and with its own clock."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambank.core.errors import FormatError, InputError
from streambank_airflow.notify.cursor import SETTLE_S, EventCursor, EventSpan, PositionMemory, next_news
from tests.support.airflow_face.releases import needs_3_3


def told_of(positions: list[int | None], step: int = 1) -> list[EventSpan]:
    """What is told while a stream is at these positions, one after the other."""
    told: EventCursor | None = None
    found = []
    for reached in positions:
        news, told = next_news(reached, told, step)
        found += [news] if news is not None else []
    return found


def test_each_event_begins_where_the_one_before_ended() -> None:
    assert told_of([None, 3, 3, 4, 9]) == [
        EventSpan(None, 3, False),
        EventSpan(3, 4, False),
        EventSpan(4, 9, False),
    ]


def test_a_step_is_told_as_a_whole() -> None:
    assert told_of([0, 4, 5, 6, 12], step=5) == [
        EventSpan(None, 0, False),
        EventSpan(0, 5, False),
        EventSpan(5, 12, False),
    ]


def test_what_passes_again_after_a_restore_is_told_again_and_said_to_be_so() -> None:
    assert told_of([5, 9, 6, 8, 10, 11]) == [
        EventSpan(None, 5, False),
        EventSpan(5, 9, False),
        EventSpan(None, 6, True),
        EventSpan(6, 8, True),
        EventSpan(8, 10, True),
        EventSpan(10, 11, False),
    ]


def test_a_checkpoint_that_is_gone_for_a_while_changes_nothing() -> None:
    assert told_of([5, None, 6]) == [EventSpan(None, 5, False), EventSpan(5, 6, False)]


@given(st.lists(st.integers(0, 40) | st.none()), st.integers(1, 7))
def test_nothing_is_left_out_and_nothing_is_told_twice_unless_it_says_so(
    positions: list[int | None], step: int
) -> None:
    known = 0
    end = None
    for news in told_of(positions, step):
        assert news.after in (None, end)
        assert news.after is None or news.upto >= news.after + step
        assert news.again == ((news.after if news.after is not None else news.upto) < known)
        known, end = max(known, news.upto), news.upto
    seen = [each for each in positions if each is not None]
    if seen:
        assert end is not None
        assert 0 <= seen[-1] - end < step


class Store:
    """The state store of one asset, as triggers are given it."""

    def __init__(self, **values: Any) -> None:
        self.values = values

    async def aget(self, key: str) -> Any:
        return self.values.get(key)

    async def aset(self, key: str, value: Any) -> None:
        self.values[key] = value


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_position_is_remembered_when_its_event_is_surely_in_the_database() -> None:
    async def story() -> None:
        store, clock = Store(), Clock()
        memory = PositionMemory(store, "key", clock)  # type: ignore[arg-type]  # what is used of Airflow's
        assert await memory.recall() is None
        memory.note(EventCursor(3, 3))
        await memory.keep()
        assert store.values == {}
        clock.now += 1
        memory.note(EventCursor(4, 4))
        clock.now += SETTLE_S - 1
        await memory.keep()
        assert store.values == {"key": {"upto": 3, "highest": 3}}
        clock.now += 1
        memory.note(EventCursor(4, 4))
        await memory.keep()
        again = PositionMemory(store, "key", clock)  # type: ignore[arg-type]  # what is used of Airflow's
        assert await again.recall() == EventCursor(4, 4)

    asyncio.run(story())


def test_a_trigger_without_an_asset_remembers_nothing() -> None:
    async def story() -> None:
        memory = PositionMemory(None, "key", clock := Clock())
        assert await memory.recall() is None
        memory.note(EventCursor(3, 3))
        clock.now += 2 * SETTLE_S
        await memory.keep()

    asyncio.run(story())


@pytest.mark.parametrize("value", ["nothing", {"upto": 3}, {"upto": None, "highest": 1}, [1]])
def test_what_somebody_has_changed_by_hand_is_named(value: Any) -> None:
    memory = PositionMemory(Store(key=value), "key")  # type: ignore[arg-type]  # what is used of Airflow's

    with pytest.raises(FormatError, match="'key'") as caught:
        asyncio.run(memory.recall())

    assert "Delete that key" in caught.value.hint


@needs_3_3
def test_airflows_own_store_refuses_where_it_cannot_tell_which_asset() -> None:
    from airflow.sdk import Asset
    from airflow.sdk.execution_time.context import AssetStateStoreAccessors

    memory = PositionMemory(AssetStateStoreAccessors([Asset("one"), Asset("other")]), "key")

    with pytest.raises(InputError, match="Several assets") as caught:
        asyncio.run(memory.recall())

    assert "watermark_asset" in caught.value.hint
