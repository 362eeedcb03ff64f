"""A ledger of batches at a savepoint and at a restore, in SQLite and, in the storm, in Postgres."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from demo.ports import any_free
from streambank.core.errors import ConflictError, RefusedError, StorageError
from streambank.sinks.declared import DeclaredSink
from streambank.sinks.ledger import LedgerGuard
from streambank.sinks.table import TableStanding
from streambank_spark.ledger import _definition
from tests.support.refuses import refuses
from tests.support.sinks.books import ROWS, Books
from tests.support.sinks.guarded import LEDGER_PATH as PATH
from tests.support.sinks.guarded import QUERY, batch_rows, captured
from tests.support.sinks.postgres import PASSWORD


def guard(books: Books, **options: Any) -> LedgerGuard:
    return LedgerGuard(PATH, books.url, QUERY, **{"rows": ROWS, **options})


def ahead(books: Books) -> dict[str, Any]:
    """Three batches after the savepoint of batch 4; what that keeps."""
    record = captured(books)
    for batch in (5, 6, 7):
        books.write(batch, batch_rows(batch))
    return record


class TestCapture:
    def test_the_newest_line_up_to_the_batch(self, books: Books) -> None:
        books.write(5, ["later"], run="second")
        record = captured(books)
        assert (record["sink_batch"], record["run_id"], record["guarded"]) == (4, "first", True)

    def test_no_line_yet_is_warned_of(self, books: Books) -> None:
        found = LedgerGuard(PATH, books.url, "new query").capture(3)
        assert "has no line of the query new query up to batch 3" in found.warning
        assert found.record["sink_batch"] is None and found.record["not_asked"] is None

    def test_a_ledger_without_run_ids(self, books: Books) -> None:
        books.create(run=False).write(4, ["row"], run=None)
        record = captured(books)
        assert (record["sink_batch"], record["run_id"]) == (4, None)
        assert guard(books).stand(4, record).safe

    def test_no_table_stops_no_savepoint(self, books: Books) -> None:
        found = guard(books, table="nothing_here").capture(4)
        assert "nothing_here" in str(found.record["not_asked"]) and found.warning


class TestStanding:
    def test_behind(self, books: Books) -> None:
        standing = guard(books).stand(6, None)
        assert (standing.position, standing.sink_batch, standing.can_roll_back) == ("behind", 4, False)
        assert "rows of the batches between are missing" in standing.sentence()

    def test_an_application_that_writes_no_line_for_an_empty_batch(self, books: Books) -> None:
        record = captured(books, 6)
        assert record["sink_batch"] == 4
        assert guard(books).stand(6, record).safe
        books.write(8, ["row"])
        standing = guard(books).stand(6, record)
        assert (standing.position, standing.later_batches, standing.later_rows) == ("ahead", 1, 2)

    def test_a_savepoint_that_knows_of_no_line(self, books: Books) -> None:
        """The first batches had no rows, and the application wrote no line for them."""
        new = LedgerGuard(PATH, books.url, "new query", rows=ROWS)
        record = new.capture(2).record
        assert new.stand(2, record).safe
        books.write(3, ["later"], query="new query")
        standing = new.stand(2, record)
        assert standing.position == "ahead" and standing.can_roll_back

    def test_later_lines_do_not_hide_that_one_is_missing(self, books: Books) -> None:
        """Back to batch 3 by hand, and on from there: batch 4 is not the savepoint's, or not there."""
        record = captured(books)
        books.do("DELETE FROM streambank_batches WHERE batch_id = 4")
        books.write(6, ["later"])
        standing = guard(books).stand(4, record)
        assert standing.position == "ahead" and not standing.can_roll_back
        assert "its line of batch 4 is missing" in standing.why_not()

    def test_rows_that_do_not_say_of_which_batch_they_are(self, books: Books) -> None:
        standing = guard(books, rows=()).stand(4, ahead(books))
        assert not standing.can_roll_back and standing.later_rows is None
        assert "its rows do not say of which batch they are" in standing.why_not()

    def test_rows_that_are_overwritten_need_not_go(self, books: Books) -> None:
        standing = guard(books, rows=(), overwrites=True).stand(4, ahead(books))
        assert standing.can_roll_back and standing.later_batches == 3

    def test_a_table_without_the_columns(self, books: Books) -> None:
        books.do("DROP TABLE items")
        books.do("CREATE TABLE items (k VARCHAR(9))")
        record = captured(books)
        books.do(
            "INSERT INTO streambank_batches (query_id, batch_id, run_id) VALUES (:q, 5, 'first')", q=QUERY
        )
        standing = guard(books).stand(4, record)
        assert standing.position == "ahead" and not standing.can_roll_back
        assert "the rows of items cannot be counted by query_id and batch_id" in standing.why_not()

    def test_it_was_rolled_back_further_and_went_on(self, books: Books) -> None:
        """Back to batch 2, and on from there: its line of batch 4 is another one than the savepoint's."""
        record, early = captured(books), captured(books, 2)
        guard(books).roll_back(guard(books).stand(2, early))
        assert guard(books).stand(4, record).position == "behind"
        for batch in (3, 4, 5):
            books.write(batch, ["another"], run="second")
        standing = guard(books).stand(4, record)
        assert (standing.position, standing.safe, standing.can_roll_back) == ("diverged", False, False)
        assert "were deleted from it then" in standing.why_not()
        with refuses(RefusedError, "sink-cannot-roll-back"):
            guard(books).roll_back(standing)
        assert books.lines() == [0, 1, 2, 3, 4, 5]


class TestRollback:
    def test_rows_and_lines_of_later_batches_go_and_no_others(self, books: Books) -> None:
        before = books.state()
        report = guard(books).roll_back(guard(books).stand(4, ahead(books)))
        assert books.state() == before and books.rows()["theirs"] == 1
        assert books.lines("other query") == [9]
        assert (report.rows, report.batch, report.changed) == (18, 4, True)
        assert "3 lines of later batches are deleted and 18 rows from orders, items" in report.done
        assert guard(books).stand(4, None).safe

    @pytest.mark.parametrize("table", ROWS)
    def test_a_fault_between_the_deletes_leaves_everything(self, books: Books, table: str) -> None:
        record, standing = ahead(books), guard(books).stand(4, None)
        before = books.state()
        books.fail_at_delete(table)
        with refuses(StorageError, "sink-not-reachable", match="injected fault"):
            guard(books).roll_back(standing)
        assert books.state() == before
        books.mend(table)
        assert guard(books).roll_back(guard(books).stand(4, record)).rows == 18

    def test_rows_that_are_overwritten_stay(self, books: Books) -> None:
        one = guard(books, rows=(), overwrites=True)
        report = one.roll_back(one.stand(4, ahead(books)))
        assert books.lines() == [0, 1, 2, 3, 4] and books.rows()["7-0"] == 1
        assert report.rows is None and report.done == "3 lines of later batches are deleted."

    def test_nothing_is_deleted_where_rows_tell_nothing(self, books: Books) -> None:
        one = guard(books, rows=())
        record, before = ahead(books), books.state()
        with refuses(RefusedError, "sink-cannot-roll-back"):
            one.roll_back(one.stand(4, record))
        assert books.state() == before

    @pytest.mark.parametrize("url", ["sqlite"], indirect=True)
    def test_a_batch_that_is_written_between_the_deletes_is_noticed(self, books: Books) -> None:
        """The database itself writes it, at the delete of the last table: its line has to stay."""
        standing = guard(books).stand(4, ahead(books))
        line = f"INSERT INTO streambank_batches VALUES ('{QUERY}', 8, 'zombie')"
        books.do(f"CREATE TRIGGER zombie AFTER DELETE ON items WHEN old.k = '7-0' BEGIN {line}; END")
        with pytest.raises(ConflictError, match="got a line of batch 8"):
            guard(books).roll_back(standing)
        books.do("DROP TRIGGER zombie")
        assert guard(books).roll_back(guard(books).stand(4, None)).changed and books.lines()[-1] == 4


class TestNotReachable:
    def test_a_file_that_is_not_there_is_not_made(self, tmp_path: Path) -> None:
        file = tmp_path / "none.db"
        standing = LedgerGuard(PATH, f"sqlite:///{file}", QUERY).stand(4, None)
        assert standing.safe is None and standing.transient and "no such file" in standing.sentence()
        assert not file.exists()

    def test_a_path_that_no_system_takes(self) -> None:
        standing = LedgerGuard(PATH, f"sqlite:////{'long' * 2000}", QUERY).stand(4, None)
        assert standing.position == "not-known" and standing.transient

    def test_a_file_that_is_no_database(self, tmp_path: Path) -> None:
        books = Books(f"sqlite:///{tmp_path / 'x.db'}", QUERY).create()
        (tmp_path / "x.db").write_bytes(b"not a database" * 100)
        standing = guard(books).stand(4, None)
        assert standing.safe is None and "not a database" in standing.sentence()

    def test_a_server_that_is_away_is_transient_and_its_password_unsaid(self) -> None:
        url = f"postgresql+psycopg2://me:{PASSWORD}@127.0.0.1:{any_free()}/orders"
        standing = LedgerGuard(PATH, url, QUERY).stand(4, None)
        assert standing.transient and "refused" in standing.sentence()
        assert PASSWORD not in json.dumps(standing.to_dict()) + standing.hint
        found = LedgerGuard(PATH, url, QUERY).capture(4)
        assert PASSWORD not in json.dumps(dict(found.record)) + found.warning

    def test_a_rollback_of_a_server_that_is_away(self) -> None:
        url = f"postgresql+psycopg2://me:{PASSWORD}@127.0.0.1:{any_free()}/orders"
        standing = TableStanding("ledger", PATH, 4, "ahead", sink_batch=7, later_batches=3)
        with pytest.raises(StorageError) as caught:
            LedgerGuard(PATH, url, QUERY, rows=ROWS).roll_back(standing)
        error = caught.value
        assert error.code == "sink-not-reachable" and error.__cause__ is None
        assert PASSWORD not in f"{error.message}{error.hint}"

    @pytest.mark.parametrize(
        ("url", "said"),
        [
            (f"what {PASSWORD} is this", "(ArgumentError)"),
            (f"nosuchsql://me:{PASSWORD}@host/orders", "(NoSuchModuleError)"),
            (f"postgresql+pg8000://me:{PASSWORD}@host/orders", "No module named 'pg8000'"),
            (f"postgresql+psycopg2://me:{PASSWORD}@host:what/orders", "leads to no database"),
            (f"postgresql+psycopg2://me:wh@{PASSWORD}@host/orders", "(ValueError)"),
            ("", "(ArgumentError)"),
        ],
    )
    def test_a_wrong_url_or_a_missing_driver(self, url: str, said: str) -> None:
        standing = LedgerGuard(PATH, url, QUERY).stand(4, None)
        assert standing.safe is None and not standing.transient
        assert said in standing.sentence() and "SQLAlchemy" in standing.hint
        assert PASSWORD not in json.dumps(standing.to_dict()) + standing.hint


class TestSameBatch:
    """By `committed_at`, which a line has as the database gives it back."""

    @pytest.mark.parametrize(
        ("committed_at", "same"),
        [
            ("2026-03-01 12:00:00+00:00", True),
            ("2026-03-01 12:00:01+00:00", False),
            ("2026-03-01 13:00:00+01:00", True),
            ("2026-03-01 12:00:00", None),  # of which zone?
            ("2026-03-01 00:00:00", True),
            ("yesterday", None),
            (None, None),
        ],
    )
    def test_it_is_no_later_than_the_moment(
        self, books: Books, committed_at: str | None, same: bool | None
    ) -> None:
        books.do("ALTER TABLE streambank_batches ADD COLUMN committed_at VARCHAR(40)")
        books.do("UPDATE streambank_batches SET committed_at = :at WHERE batch_id = 4", at=committed_at)
        assert guard(books).same_batch(4, datetime(2026, 3, 1, 12, tzinfo=UTC)) is same

    def test_as_the_helper_writes_it(self, url: str) -> None:
        """Of `streambank_spark.ledger`: SQLite gives it back without a zone, Postgres with one."""
        engine = create_engine(url)
        Books(url, QUERY).do("DROP TABLE IF EXISTS streambank_batches")
        table = _definition("streambank_batches")
        table.create(engine)
        now = datetime.now(UTC)
        line = {"query_id": QUERY, "batch_id": 4, "committed_at": now}
        with engine.begin() as connection:
            connection.execute(table.insert().values(line))
        engine.dispose()
        found = LedgerGuard(PATH, url, QUERY)
        assert found.same_batch(4, now) is (None if "sqlite" in url else True)
        assert found.same_batch(4, now + timedelta(hours=12)) is True
        assert found.same_batch(3, now) is None

    def test_without_the_column_or_the_database(self, books: Books, tmp_path: Path) -> None:
        now = datetime.now(UTC)
        assert guard(books).same_batch(4, now) is None
        assert LedgerGuard(PATH, f"sqlite:///{tmp_path / 'none.db'}", QUERY).same_batch(4, now) is None


class TestDeclared:
    def test_the_url_comes_from_the_environment_and_stays_there(
        self, books: Books, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ORDERS_URL", books.url)
        declared = DeclaredSink("ledger", "streambank_batches", url="${ORDERS_URL}", rows=ROWS)
        one = declared.guard(QUERY)
        assert one is not None and one.path == PATH
        standing = one.stand(4, ahead(books))
        assert standing.later_rows == 18 and books.url not in json.dumps(standing.to_dict())
        assert books.url not in json.dumps(one.roll_back(standing).to_dict())

    def test_a_variable_that_is_not_set(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("ORDERS_URL", raising=False)
        one = DeclaredSink("ledger", "streambank_batches", url="${ORDERS_URL}").guard(QUERY)
        assert one is not None and "ORDERS_URL" in one.stand(4, None).sentence()
        assert "ORDERS_URL" in one.capture(4).warning
