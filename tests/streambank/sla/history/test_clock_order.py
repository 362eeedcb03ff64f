"""Times put in order, changed as little as can be."""

from __future__ import annotations

from itertools import combinations, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from streambank.sla.history.clock_order import in_order, next_trusted, trusted
from tests.support.sla.progress_records import BEGIN, at

SECONDS = st.lists(st.integers(0, 20), max_size=9)


def seconds(*times: float) -> list[float]:
    return [(moment - BEGIN).total_seconds() for moment in in_order([at(one) for one in times], None, None)]


def test_times_that_do_not_go_back_stay() -> None:
    assert seconds(1, 2, 2, 5) == [1, 2, 2, 5]
    assert in_order([], None, None) == []


def test_a_clock_that_was_ahead_or_behind_for_a_while_is_put_right() -> None:
    assert seconds(1, 2, 900, 901, 5, 6, 7) == [1, 2, 2, 2, 5, 6, 7]
    assert seconds(1, 2, 3, -900, -899, 6, 7) == [1, 2, 3, 3, 3, 6, 7]
    assert seconds(900, 1, 2, 3) == [1, 1, 2, 3]


def test_of_few_times_the_one_that_is_far_off_is_put_right() -> None:
    assert seconds(100, -9e6, 300) == [100, 100, 300]
    assert seconds(100, 9e6, 300) == [100, 100, 300]
    assert seconds(9e6, 100) in ([100, 100], [9e6, 9e6])


def test_what_comes_before_and_after_bounds_them() -> None:
    found = in_order([at(one) for one in (1, 50, 51, 99)], at(10), at(60))
    assert found == [at(10), at(50), at(51), at(51)]
    assert in_order([at(99)], None, at(60)) == [at(60)]
    assert in_order([at(1)], at(5), None) == [at(5)]


@settings(deadline=None)
@given(SECONDS)
def test_they_never_go_back_and_as_many_as_can_be_stay(stamps: list[int]) -> None:
    found = seconds(*stamps)
    assert len(found) == len(stamps)
    assert all(one <= two for one, two in pairwise(found))
    longest = next(
        length
        for length in range(len(stamps), -1, -1)
        if any(all(a <= b for a, b in pairwise(chosen)) for chosen in combinations(stamps, length))
    )
    assert sum(one == two for one, two in zip(found, stamps, strict=True)) >= longest
    assert len(trusted([at(one) for one in stamps])) == longest
    assert set(found) <= {float(one) for one in stamps}


def test_a_file_ends_where_the_next_one_begins_that_can_be_believed() -> None:
    begins = [at(1), None, at(20), at(9000), at(30), at(-5), at(40)]
    assert next_trusted(begins) == [at(20), at(20), at(30), at(30), at(40), at(40), None]
