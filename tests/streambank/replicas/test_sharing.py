"""Which bytes a savepoint and a job hold alone, against the plainest count."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from streambank.replicas.sharing import Sharers, Shares

savepoints = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.sets(st.integers(0, 11), max_size=8)), max_size=8
)


@settings(max_examples=150, deadline=None)
@given(savepoints)
def test_sharing_is_what_the_plainest_count_says(given_: list[tuple[str, set[int]]]) -> None:
    taken = sorted(enumerate(given_), key=lambda each: each[1][0])
    sharers = Sharers()
    for number, (job, objects) in taken:
        sharers.add(job, str(number), [(f"blake3:{each:064x}", 1 << each) for each in sorted(objects)])
    found = sharers.result()

    def total(objects: set[int]) -> int:
        return sum(1 << each for each in objects)

    assert found.named_bytes == total(set().union(*(objects for _, objects in given_)))
    for number, (job, objects) in taken:
        others: set[int] = set().union(*(each for other, (_, each) in taken if other != number))
        assert found.savepoints[job, str(number)] == Shares(total(objects - others), total(objects & others))
    for job in {job for job, _ in given_}:
        mine: set[int] = set().union(*(objects for of, objects in given_ if of == job))
        others = set().union(*(objects for of, objects in given_ if of != job))
        assert found.jobs[job] == Shares(total(mine - others), total(mine & others))
