"""What each kind of table does that can be rolled back: Delta, Iceberg, and a ledger of batches.

The logs of Delta and Iceberg tell also what others wrote, and of which line of the query's life a batch is.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import pytest

from streambank.core.errors import ConflictError, RefusedError
from streambank.sinks.table import TableStanding
from tests.support.refuses import refuses
from tests.support.sinks.books import Books
from tests.support.sinks.guarded import batch_rows, captured, guard_of, with_batches
from tests.support.sinks.iceberg import IceTable
from tests.support.sinks.lake import Lake

REST = pytest.param("rest", marks=pytest.mark.storm)
POSTGRES = pytest.param("postgres_books", marks=pytest.mark.storm)
LATER = (5, 6, 7)


@pytest.fixture(params=["lake", "sql", REST])
def logged(request: pytest.FixtureRequest) -> Lake | IceTable:
    found: Lake | IceTable = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=["lake", "sql", REST, "sqlite_books", POSTGRES])
def table(request: pytest.FixtureRequest) -> Lake | IceTable | Books:
    found: Lake | IceTable | Books = request.getfixturevalue(request.param)
    return found


def stand(table: Lake | IceTable | Books, record: object, batch: int = 4) -> TableStanding:
    assert record is None or isinstance(record, dict)
    return guard_of(table).stand(batch, record)


def roll_back(table: Lake | IceTable | Books, record: object, batch: int = 4) -> None:
    guard_of(table).roll_back(stand(table, record, batch))


class TestEachTable:
    def test_even(self, table: Lake | IceTable | Books) -> None:
        record = captured(table)
        standing = stand(table, record)
        assert standing.safe and not standing.sentence() and standing.sink_batch == record["sink_batch"] == 4
        assert record["guarded"]

    def test_later_batches_do_not_count(self, table: Lake | IceTable | Books) -> None:
        record = captured(table, 2)
        standing = stand(table, record, 2)
        assert (record["sink_batch"], standing.position, standing.later_batches) == (2, "ahead", 2)

    def test_ahead_says_batches_and_rows(self, table: Lake | IceTable | Books) -> None:
        record = captured(table)
        standing = stand(with_batches(table, *LATER), record)
        rows = 18 if isinstance(table, Books) else 9  # in both of its tables
        assert (standing.position, standing.later_batches, standing.later_rows) == ("ahead", 3, rows)
        assert standing.can_roll_back and not standing.skips_computing
        said = standing.sentence()
        assert "is at batch 7" in said and f"batches 5 to 7 ({rows} rows)" in said

    def test_a_savepoint_that_knows_nothing_of_it(self, table: Lake | IceTable | Books) -> None:
        assert stand(table, None).safe
        target = stand(table, captured(table)).target
        standing = stand(with_batches(table, 5), None)
        assert (standing.position, standing.target) == ("ahead", target)

    def test_each_row_once(self, table: Lake | IceTable | Books) -> None:
        """The query goes on after the savepoint with other batches of the same numbers."""
        record, before = captured(table), table.rows()
        with_batches(table, *LATER)
        report = guard_of(table).roll_back(stand(table, record))
        assert table.rows() == before and report.rows == (18 if isinstance(table, Books) else 9)
        assert stand(table, record).safe
        backlog = [row for batch in LATER for row in batch_rows(batch)]
        assert table.write(5, backlog) is not False and table.write(6, ["new"]) is not False
        assert table.rows() == before + Counter([*backlog, "new"])

    def test_a_second_time_finds_nothing_to_do(self, table: Lake | IceTable | Books) -> None:
        record = captured(table)
        with_batches(table, 5)
        roll_back(table, record)
        before = table.state()
        assert not guard_of(table).roll_back(stand(table, record)).changed
        assert table.state() == before

    @pytest.mark.parametrize("later", [True, False])
    def test_what_was_written_since_the_plan_is_not_undone(
        self, table: Lake | IceTable | Books, later: bool
    ) -> None:
        record = captured(table)
        if later:
            with_batches(table, 5)
        standing = stand(table, record)
        table.write(8, ["new"])
        with refuses(ConflictError, "sink-moved"):
            guard_of(table).roll_back(standing)
        assert table.rows()["new"] == 1

    def test_a_savepoint_after_a_rollback(self, table: Lake | IceTable | Books) -> None:
        record = captured(table)
        with_batches(table, 5)
        roll_back(table, record)
        table.write(5, ["new"])
        again, before = captured(table, 5), table.rows()
        table.write(6, ["newer"])
        roll_back(table, again, 5)
        assert table.rows() == before


class TestOthers:
    def test_what_they_wrote_before_the_next_batch_belongs_to_it(self, logged: Lake | IceTable) -> None:
        record = captured(logged)
        logged.write_other(["x"])
        assert stand(logged, record).safe, "no matter before the first later batch"
        seen = captured(logged)
        standing = stand(with_batches(logged, 5), record)
        assert standing.can_roll_back and standing.target == stand(logged, seen).target
        assert captured(logged) == seen

    def test_what_they_wrote_after_it_is_never_undone(self, logged: Lake | IceTable) -> None:
        record = captured(logged)
        with_batches(logged, 5)
        logged.write_other(["x"])
        standing = stand(logged, record)
        assert not standing.can_roll_back and "others have written" in standing.why_not()
        assert [one.partition(" (")[2] for one in standing.others] in (["WRITE)"], ["append)"])
        with refuses(RefusedError, "sink-cannot-roll-back"):
            guard_of(logged).roll_back(standing)
        assert logged.rows()["x"] == 1

    def test_what_they_wrote_since_the_plan_is_not_undone(self, logged: Lake | IceTable) -> None:
        record = captured(logged)
        standing = stand(with_batches(logged, 5), record)
        logged.write_other(["x"])
        with refuses(ConflictError, "sink-moved"):
            guard_of(logged).roll_back(standing)
        assert logged.rows()["x"] == 1

    def test_two_queries_in_one_table_are_told_apart(self, logged: Lake | IceTable) -> None:
        record = captured(logged)
        with_batches(logged, 5)
        logged.of("other query").write(7, ["x"])
        standing = stand(logged, record)
        assert standing.sink_batch == 5 and not standing.can_roll_back, "it would lose the other's rows"

    def test_compaction_changes_nothing(self, logged: Lake | IceTable) -> None:
        record = captured(logged)
        logged.compact()
        assert stand(logged, record).safe
        with_batches(logged, 5)
        logged.compact()
        standing = stand(logged, record)
        assert standing.can_roll_back and standing.position == "ahead"

    def test_a_table_that_was_made_again(self, logged: Lake | IceTable) -> None:
        record = captured(logged)
        logged.make_again()
        said = stand(with_batches(logged, *range(9)), record).sentence()
        assert "created again" in said or "made again" in said


class TestLines:
    """Batches of one number may be of two lines of the query's life."""

    def test_further_back_and_forth(self, logged: Lake | IceTable) -> None:
        """Back to batch 2, on from there, and then to the savepoint of batch 4 of the first timeline."""
        early, late, before = captured(logged, 2), captured(logged), logged.rows()
        roll_back(logged, early, 2)
        assert stand(logged, late).position == "diverged"
        logged.write(3, ["another"])
        standing = stand(logged, late)
        assert standing.position == "diverged" and "rolled back further since" in standing.sentence()
        guard_of(logged).roll_back(standing)
        assert logged.rows() == before and stand(logged, late).safe
        assert not logged.write(4, ["new"]) and logged.write(5, ["new"])

    def test_a_batch_is_the_one_of_a_moment_or_another_one(self, logged: Lake | IceTable) -> None:
        at, first, early = datetime.now(UTC), captured(logged), captured(logged, 2)
        same_batch = guard_of(logged).same_batch
        assert same_batch(4, at) and same_batch(2, at)
        roll_back(logged, early, 2)
        assert same_batch(4, at) is None, "it holds none now"
        logged.write(3, ["3 again"])
        logged.write(4, ["4 again"])
        between = datetime.now(UTC)
        assert same_batch(4, at) is False and same_batch(2, at) and same_batch(4, between)
        roll_back(logged, first)
        assert same_batch(4, at) and same_batch(4, between) is False
