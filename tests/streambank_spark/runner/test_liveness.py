"""Signs of progress, without a JVM."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from streambank.job.health import AwakeClock
from streambank_spark.runner.liveness import SETTLE_S, Settling, Signs
from streambank_spark.runner.queries import Managed
from tests.support.waiting import FakeClock

ACTIVE = {"isTriggerActive": True, "message": "Processing new data"}
WAITS = {"isTriggerActive": False, "message": "Waiting for next trigger"}


class Query:
    """What Spark says of one."""

    def __init__(self) -> None:
        self.status: dict[str, Any] = ACTIVE
        self.asked = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "status":
            self.asked += 1
        return object.__getattribute__(self, name)


def signs_and_clock() -> tuple[Signs, FakeClock]:
    clock = FakeClock()
    return Signs(AwakeClock(1000.0, monotonic=clock.monotonic)), clock


def managed(trigger_s: float | None) -> Managed:
    one = Managed("main", cast(Any, None), Query(), "id", "run")
    one.trigger_s = trigger_s
    return one


def test_a_query_that_was_not_heard_of_counts_from_the_last_thing_that_any_did() -> None:
    signs, clock = signs_and_clock()
    clock.now += 10
    assert (signs.still_s(), signs.still_s("main")) == (10, 10)
    signs.made("other")
    clock.now += 5
    signs.made("main")
    clock.now += 1
    assert (signs.still_s(), signs.still_s("main"), signs.still_s("other")) == (1, 1, 6)


def test_an_idle_trigger_is_one_sign_however_often_spark_tells_of_it() -> None:
    signs, clock = signs_and_clock()
    one = managed(0.0)
    signs.told_idle("main", '{"timestamp": 1}')
    clock.now += 10
    signs.told_idle("main", '{"timestamp": 1}')
    signs.told_idle("main", None)
    assert signs.describe(one) == {"still_s": 10, "idle": True, "trigger_s": 0.0, "failed": False}
    signs.told_idle("main", '{"timestamp": 2}')
    assert signs.still_s("main") == 0
    signs.made("main")
    one.failure = "it fell"
    assert signs.describe(one) == {"still_s": 0, "idle": False, "trigger_s": 0.0, "failed": True}


def test_a_query_without_an_interval_that_waits_has_just_found_nothing() -> None:
    signs, clock = signs_and_clock()
    one = managed(0.0)
    one.query.status = WAITS
    clock.now += 1
    signs.look(one)
    assert (one.query.asked, signs.still_s("main")) == (0, 1), "it is quiet for a moment only"
    clock.now += 9
    signs.look(one)
    assert (one.query.asked, signs.still_s("main")) == (1, 0)


def test_a_query_that_hangs_in_its_trigger_gives_no_sign() -> None:
    signs, clock = signs_and_clock()
    one = managed(0.0)
    for _ in range(10):
        clock.now += 10
        signs.look(one)
    assert signs.still_s("main") == 100


def test_one_with_an_interval_gives_a_sign_when_it_begins_to_wait_and_none_while_it_waits() -> None:
    """After a clock went back, Spark waits until the old time comes again."""
    signs, clock = signs_and_clock()
    one = managed(60.0)
    clock.now += 10
    signs.look(one)
    one.query.status = WAITS
    clock.now += 10
    signs.look(one)
    assert signs.still_s("main") == 0
    for _ in range(10):
        clock.now += 60
        signs.look(one)
    assert signs.still_s("main") == 600


def test_a_frozen_driver_does_not_blame_its_queries() -> None:
    clock = FakeClock()
    signs = Signs(AwakeClock(30.0, monotonic=clock.monotonic))
    clock.now += 7200
    assert signs.still_s("main") == 30


def test_an_application_that_starts_a_failing_query_again_and_again_makes_no_progress() -> None:
    signs, clock = signs_and_clock()
    for _ in range(10):
        signs.begun("main")
        clock.now += 10
        signs.ended("main", failed=True)
    assert (signs.still_s("main"), signs.still_s()) == (100, 100)
    signs.made("main")
    signs.begun("main")
    clock.now += 1
    assert signs.still_s("main") == 1


def test_one_that_ends_well_and_is_started_again_the_next_day_begins_anew() -> None:
    signs, clock = signs_and_clock()
    signs.begun("main")
    clock.now += 10
    signs.ended("main", failed=False)
    assert signs.still_s() == 0
    clock.now += 900
    signs.begun("main")
    assert signs.still_s("main") == 0


def test_an_application_has_settled_where_it_waits_or_nothing_is_refused_for_a_while() -> None:
    clock = FakeClock()
    settling = Settling(["raw", "daily"], AwakeClock(1000.0, monotonic=clock.monotonic))
    assert settling.state() == "starting"
    with settling.waiting():
        assert settling.state() == "settled"
    assert settling.state() == "starting", "it goes on, and may start another query"
    settling.triggered("raw")
    clock.now += SETTLE_S
    assert settling.state() == "starting", "another one is still to come"
    settling.triggered("daily")
    assert settling.state() == "starting"
    clock.now += SETTLE_S
    settling.triggered("raw")
    assert settling.state() == "settled", "a query that begins again is nothing new"
    settling.over()
    assert settling.state() == "over"


def test_another_thread_that_waits_says_nothing_of_the_application() -> None:
    settling = Settling(["raw"], AwakeClock(1000.0, monotonic=FakeClock().monotonic))
    with ThreadPoolExecutor(1) as other:
        waits = settling.waiting()
        other.submit(waits.__enter__).result()
        assert settling.state() == "starting"
        with settling.waiting():
            other.submit(waits.__exit__, None, None, None).result()
            assert settling.state() == "settled"
