"""An Iceberg table at a savepoint and at a restore; its rows are written and read by PyIceberg."""

from __future__ import annotations

import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import ConflictError, RefusedError, StorageError
from streambank.sinks.declared import DeclaredSink
from streambank.sinks.iceberg import IcebergGuard
from streambank.sinks.iceberg_catalog import IcebergTable
from tests.support.cli import streambank, succeed
from tests.support.refuses import refuses
from tests.support.sinks.guarded import QUERY, SCOPE, batch_rows, captured
from tests.support.sinks.ice_job import IceJob
from tests.support.sinks.iceberg import NAME, IceTable
from tests.support.storage.s3_servers import ACCESS_KEY, free_ports


def guard(ice: IceTable, query_id: str = QUERY) -> IcebergGuard:
    return IcebergGuard(ice.place, query_id, scope=SCOPE)


class TestCapture:
    def test_the_snapshot_of_the_batch(self, ice: IceTable) -> None:
        record = captured(ice)
        assert (record["snapshot"], record["sink_batch"]) == (str(ice.current()), 4)
        assert record["guarded"] and record["table_uuid"]

    def test_a_tag_holds_the_snapshot(self, ice: IceTable) -> None:
        record = captured(ice, 2)
        assert ice.tags() == {record["tag"]: int(record["snapshot"])}
        ice.expire()
        assert ice.snapshots() == [int(record["snapshot"]), ice.current()]

    def test_a_tag_is_used_again(self, ice: IceTable) -> None:
        assert captured(ice)["tag"] == captured(ice)["tag"]
        assert len(ice.tags()) == 1

    def test_the_same_batch_of_another_timeline_has_another_tag(self, ice: IceTable) -> None:
        late = captured(ice)
        guard(ice).roll_back(guard(ice).stand(3, captured(ice, 3)))
        ice.write(4, ["another"])
        assert captured(ice)["tag"] != late["tag"] and len(ice.tags()) == 3

    def test_no_tag_where_none_is_declared(self, ice: IceTable) -> None:
        sink = DeclaredSink("iceberg", NAME, catalog=ice.properties, tag=False)
        found = sink.guard(QUERY, tags=SCOPE)
        assert found is not None and found.capture(4).record["tag"] is None and not ice.tags()

    def test_a_table_that_takes_no_tag_stops_no_savepoint(self, sql: IceTable) -> None:
        sql.refuse_changes()
        found = guard(sql).capture(4)
        assert "got no tag, and may expire" in found.warning
        assert found.record["tag"] is None and found.record["snapshot"] == str(sql.current())

    def test_no_table_yet(self, ice: IceTable) -> None:
        found = IcebergGuard(IcebergTable("db.none", ice.properties), QUERY).capture(3)
        assert "There is no Iceberg table db.none" in found.warning and found.record["snapshot"] is None

    def test_a_table_without_batches(self, ice: IceTable) -> None:
        found = guard(ice, "another query").capture(3)
        assert "is of the query another query" in found.warning and "epochId" in found.warning


class TestStanding:
    def test_a_savepoint_of_a_batch_that_the_table_does_not_name(self, ice: IceTable) -> None:
        standing = guard(ice).stand(6, None)
        assert standing.safe is None and "have batch 4 and not 6" in standing.sentence()

    def test_a_snapshot_that_has_expired(self, ice: IceTable) -> None:
        """A savepoint without a tag."""
        record = {**captured(ice), "tag": None}
        with ice.opened() as table:
            table.manage_snapshots().remove_tag(next(iter(ice.tags()))).commit()
        for batch in (5, 6):
            ice.write(batch, batch_rows(batch))
        ice.expire()
        standing = guard(ice).stand(4, record)
        assert standing.safe is False and not standing.can_roll_back
        assert "has expired" in standing.why_not()

    def test_the_memory_of_batches_may_have_expired(self, ice: IceTable) -> None:
        record = captured(ice)
        ice.write(5, batch_rows(5))
        ice.write_other(["x"])
        ice.expire()
        standing = guard(ice).stand(4, record)
        assert standing.safe is None and "come twice" in standing.sentence()

    def test_a_table_that_is_gone(self, ice: IceTable) -> None:
        record = captured(ice)
        with ice.catalog() as catalog:
            catalog.drop_table(NAME)
        standing = guard(ice).stand(4, record)
        assert standing.safe is None and not standing.transient


class TestRollback:
    def test_without_it_the_next_batches_are_lost(self, ice: IceTable) -> None:
        """The negative control."""
        for batch in (5, 6, 7):
            ice.write(batch, batch_rows(batch))
        before = ice.rows()
        backlog = [row for batch in (5, 6, 7) for row in batch_rows(batch)]
        assert not ice.write(5, backlog) and not ice.write(6, ["new"])
        assert ice.rows() == before and ice.rows()["new"] == 0

    def test_what_somebody_writes_meanwhile_is_not_undone(
        self, ice: IceTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Between the last look and the commit: the catalog itself refuses."""
        record = captured(ice)
        ice.write(5, batch_rows(5))
        standing = guard(ice).stand(4, record)
        from pyiceberg.table import Table

        manage = Table.manage_snapshots
        fired: list[int] = []

        def late(table: Table) -> Any:
            if not fired:
                fired.append(ice.write_other(["x"]))
            return manage(table)

        monkeypatch.setattr(Table, "manage_snapshots", late)
        with refuses(ConflictError, "sink-moved"):
            guard(ice).roll_back(standing)
        assert fired and ice.rows()["x"] == 1

    @pytest.mark.parametrize("lost", ["request", "reply"])
    def test_a_commit_that_breaks_off_is_done_once(
        self, ice: IceTable, monkeypatch: pytest.MonkeyPatch, lost: str
    ) -> None:
        record, before = captured(ice), ice.rows()
        ice.write(5, batch_rows(5))
        with ice.catalog() as catalog:
            kind = type(catalog)
        commit = kind.commit_table

        def broken(*arguments: Any) -> None:
            if lost == "reply":
                commit(*arguments)
            raise OSError("connection reset")

        with monkeypatch.context() as fault:
            fault.setattr(kind, "commit_table", broken)
            with pytest.raises(StorageError, match="connection reset"):
                guard(ice).roll_back(guard(ice).stand(4, record))
        standing = guard(ice).stand(4, record)
        assert standing.position == ("even" if lost == "reply" else "ahead")
        assert guard(ice).roll_back(standing).changed is (lost == "request")
        assert ice.rows() == before and guard(ice).stand(4, record).safe

    def test_snapshots_that_have_expired_do_not_tell_of_a_batch(self, ice: IceTable) -> None:
        at, record = datetime.now(UTC), captured(ice)
        others = ice.write_other(["x"])
        ice.write(5, batch_rows(5))
        guard(ice).roll_back(guard(ice).stand(4, record))
        assert guard(ice).same_batch(4, at)
        with ice.opened() as table:
            log = [one.snapshot_id for one in table.metadata.snapshot_log]
        assert log[-1] == others, "the log of current snapshots has the rollback"
        ice.expire(*(one for one in log if one != log[-1]))
        assert guard(ice).same_batch(4, at) is None

    def test_snapshots_between_have_expired(self, ice: IceTable) -> None:
        """The tag has held that of the savepoint, which is no ancestor any more as far as anybody can see."""
        record, before = captured(ice), ice.rows()
        for batch in (5, 6, 7):
            ice.write(batch, batch_rows(batch))
        ice.expire()
        standing = guard(ice).stand(4, record)
        assert (standing.position, standing.later_batches, standing.later_rows) == ("ahead", 3, None)
        guard(ice).roll_back(standing)
        assert ice.rows() == before and guard(ice).stand(4, record).safe

    def test_what_others_wrote_may_have_expired_as_well(self, ice: IceTable) -> None:
        record = captured(ice)
        ice.write(5, batch_rows(5))
        ice.write_other(["x"])
        ice.write(6, batch_rows(6))
        ice.expire()
        standing = guard(ice).stand(4, record)
        assert standing.others == ("1 snapshots that have expired",) and not standing.can_roll_back

    def test_a_table_that_was_set_back_by_hand(self, ice: IceTable) -> None:
        """What others wrote to the savepoint's snapshot is gone, and the query's batches are all there."""
        ice.write_other(["x"])
        record = captured(ice)
        with ice.opened() as table:
            table.manage_snapshots().rollback_to_snapshot(ice.snapshots()[4]).commit()
        assert guard(ice).stand(4, record).safe

    def test_columns_that_were_added_since_stay(self, ice: IceTable) -> None:
        from pyiceberg.types import LongType

        record, before = captured(ice), ice.rows()
        with ice.opened() as table:
            table.update_schema().add_column("n", LongType()).commit()
        ice.write(5, batch_rows(5))
        guard(ice).roll_back(guard(ice).stand(4, record))
        with ice.opened() as table:
            assert table.schema().column_names == ["k", "n"]
        assert ice.rows() == before


class TestErrors:
    def test_a_catalog_that_is_away(self, sql: IceTable, tmp_path: Path) -> None:
        record = captured(sql)
        away = {**sql.properties, "uri": f"sqlite:///{tmp_path / 'gone' / 'catalog.db'}"}
        found = IcebergGuard(IcebergTable(NAME, away), QUERY, scope=SCOPE)
        standing = found.stand(4, record)
        assert standing.safe is None and standing.transient and "cannot be asked" in standing.sentence()
        assert "does not say how far its sink is" in found.capture(4).warning
        with pytest.raises(StorageError) as caught, found._place.opened():
            raise AssertionError("it is not there")
        assert caught.value.code == "sink-not-reachable"

    def test_metadata_that_is_away(self, sql: IceTable, tmp_path: Path) -> None:
        record = captured(sql)
        metadata = sql.folder / "warehouse" / "db" / "orders" / "metadata"
        shutil.move(metadata, tmp_path / "aside")
        standing = guard(sql).stand(4, record)
        shutil.move(tmp_path / "aside", metadata)
        assert standing.safe is None and standing.transient

    def test_no_catalog_is_made_of_an_empty_database(self, sql: IceTable, tmp_path: Path) -> None:
        import sqlite3
        from contextlib import closing

        place = IcebergTable(NAME, {**sql.properties, "uri": f"sqlite:///{tmp_path / 'empty.db'}"})
        assert IcebergGuard(place, QUERY).stand(4, None).safe is None
        with closing(sqlite3.connect(tmp_path / "empty.db")) as database:
            assert not database.execute("SELECT name FROM sqlite_master").fetchall()

    @pytest.mark.parametrize(
        "properties",
        [
            {"type": "sql", "uri": "postgresql+psycopg2://me:s3cr%40t@127.0.0.1:1/db"},
            {"type": "rest", "uri": "http://me:s3cr%40t@127.0.0.1:1/", "credential": "id:s3cr@t"},
            {"type": "nonsense", "uri": "http://me:s3cr%40t@127.0.0.1:1/"},
            {"kind": "s3cr@t"},
        ],
    )
    def test_no_secret_is_repeated(self, properties: dict[str, str]) -> None:
        found = IcebergGuard(IcebergTable(NAME, properties), QUERY, scope=SCOPE)
        said = found.stand(4, None).sentence() + str(found.capture(4))
        assert "cannot be asked" in said and "s3cr" not in said

    def test_a_variable_that_is_not_set(self, ice: IceTable) -> None:
        sink = DeclaredSink("iceberg", NAME, catalog={**ice.properties, "uri": "${NOT_SET_HERE}"})
        found = sink.guard(QUERY)
        assert found is not None and "NOT_SET_HERE" in found.stand(4, None).sentence()

    def test_a_variable_is_filled_in(self, ice: IceTable, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ICE_URI", ice.properties["uri"])
        sink = DeclaredSink("iceberg", NAME, catalog={**ice.properties, "uri": "${ICE_URI}"})
        found = sink.guard(QUERY)
        assert found is not None and found.stand(4, None).safe

    def test_a_missing_package(self, ice: IceTable, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "pyiceberg"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "pyiceberg", None)
        standing = guard(ice).stand(4, None)
        assert "pyiceberg is not installed" in standing.sentence() and "[iceberg]" in standing.hint
        assert not standing.transient


@pytest.mark.storm
class TestRest:
    """What only a REST catalog has: credentials of its own, and answers that get lost on the way."""

    def test_s3_is_not_asked(self, rest: IceTable, monkeypatch: pytest.MonkeyPatch) -> None:
        """The catalog reads and writes the metadata: without any access to S3 all of this works."""
        monkeypatch.setenv("AWS_PROFILE", "there-is-none")
        record = captured(rest)
        rest.write(5, batch_rows(5))
        assert guard(rest).roll_back(guard(rest).stand(4, record)).rows == 3

    def test_a_wrong_credential(self, rest: IceTable) -> None:
        record = captured(rest)
        rest.write(5, batch_rows(5))
        standing = guard(rest).stand(4, record)
        wrong = {**rest.properties, "credential": f"{ACCESS_KEY}:not-the-secret-0123456789"}
        found = IcebergGuard(IcebergTable(NAME, wrong), QUERY)
        unknown, warning = found.stand(4, record), found.capture(4).warning
        with refuses(StorageError, "sink-not-reachable") as caught:
            found.roll_back(standing)
        assert "`catalog`" in caught.value.hint
        assert unknown.safe is None and "cannot be asked" in warning
        assert "not-the-secret" not in f"{caught.value.message}{caught.value.__cause__}{unknown}{warning}"

    def test_a_catalog_that_is_away(self, rest: IceTable) -> None:
        record = captured(rest)
        (port,) = free_ports(1)
        away = {**rest.properties, "uri": f"http://127.0.0.1:{port}"}
        standing = IcebergGuard(IcebergTable(NAME, away), QUERY).stand(4, record)
        assert standing.safe is None and standing.transient and "cannot be asked" in standing.sentence()


def test_a_restore_of_a_declared_job(folder: Path) -> None:
    job = IceJob(folder)
    savepoint, _ = job.take()
    before = job.ice.rows()
    job.run(3)
    restore = ("restore", savepoint, "-r", job.job.repository, "--jobs", job.jobs, "--job", "flights")
    refused = streambank(*restore, "--generation")
    assert refused.code == RefusedError.exit_code and "batches 3 to 5 (6 rows)" in refused.err
    document = succeed(*restore, "--generation", "--sink", "rollback", "--json").document
    assert [one["rows_removed"] for one in document["rolled_back"]] == [6]
    assert job.ice.rows() == before and job.ice.write(3, ["new"])
