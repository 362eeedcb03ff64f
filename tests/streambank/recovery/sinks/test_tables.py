"""Restores over a Delta table and a ledger of one query: both, one of two, and what ends in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from sqlalchemy.engine import Connection

from streambank.control.rollbacks import RollbackNote
from streambank.core.choices import SinkChoice
from streambank.core.errors import ConflictError, RefusedError, StorageError
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.driver.prepare import prepare_launch
from streambank.recovery import restore as restoring
from streambank.recovery.plan import RestorePlan
from streambank.recovery.preconditions import Prepared, prepare
from streambank.recovery.report import RestoreReport
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore, restore
from streambank.savepoint.take import TakeRequest, take
from streambank.sinks.delta import DeltaGuard
from streambank.sinks.ledger import LedgerGuard
from streambank.sinks.of_query import sinks_of_query
from tests.support.jobs.simulated_job import BY, JOB, SimulatedJob, quick_store
from tests.support.sinks.books import Books
from tests.support.sinks.lake import Lake
from tests.support.storage.faulty_store import SimulatedCrash

FOREACH = "ForeachBatchSink"
ROWS = 3


@dataclass(frozen=True)
class Shop:
    """A job whose query wrote batches 0 to 7 to a Delta table and to a database; batch 4 is saved."""

    simulated: SimulatedJob
    job: Job
    lake: Lake
    books: Books
    saved: tuple[object, ...]

    def request(self, sink: SinkChoice) -> RestoreRequest:
        return RestoreRequest(
            self.simulated.repository,
            "b000004",
            generation=self.simulated.control(),
            by=BY,
            opener=quick_store,
            sink=sink,
            declared_sinks=self.job.sinks,
        )

    def go_back(self, sink: SinkChoice = "rollback") -> RestoreReport:
        return restore(self.request(sink))

    def planned(self, sink: SinkChoice = "refuse") -> RestorePlan:
        return plan_restore(self.request(sink))

    def rows(self) -> tuple[object, ...]:
        """All that both hold."""
        return self.lake.rows(), self.books.state()

    def killed(self) -> None:
        """A restore that a crash ends; its locks are broken then."""
        with pytest.raises(SimulatedCrash):
            self.go_back()
        self.unlock()

    def unlock(self) -> None:
        control = self.simulated.control()
        for lock in (control.operation_lock.break_off, control.lease.break_off):
            lock(by=BY, why="killed", even_live=True)

    def start_is_refused(self) -> str:
        with pytest.raises(RefusedError) as refused:
            prepare_launch(self.job, self.job.records(), by=BY)
        assert refused.value.code == "sinks-taken-back"
        assert f"--job {JOB} --generation --sink rollback" in refused.value.hint
        return refused.value.message

    def nothing_changed(self) -> None:
        """The job goes on where it is, and no note says otherwise."""
        assert not self.job.records().store.names("taken-back/main")
        assert prepare_launch(self.job, self.job.records(), by=BY).queries["main"].generation == 1

    def converges(self) -> RestoreReport:
        """A restore that ends well, and a job that can be started again."""
        report = self.go_back()
        assert self.rows() == self.saved
        assert prepare_launch(self.job, self.job.records(), by=BY).queries["main"].generation == 2
        return report

    def events(self) -> list[str]:
        """The sinks that events say were rolled back."""
        records = [record.data for record in self.job.records().events()]
        return [str(one["sink"]["kind"]) for one in records if one.get("kind") == "sink-rolled-back"]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    simulated = SimulatedJob(tmp_path, sink=False)
    (tmp_path / "app.py").write_text("")
    (tmp_path / "jobs.toml").write_text(
        f'repository = "repository"\n[jobs.{JOB}]\napplication = "app.py"\ncheckpoint = "ck"\n'
        f'[[jobs.{JOB}.sinks]]\nkind = "delta"\ntable = "lake"\n'
        f'[[jobs.{JOB}.sinks]]\nkind = "ledger"\nurl = "sqlite:///{tmp_path / "orders.db"}"\n'
        'rows = ["orders", "items"]\n'
    )
    job = load_jobs(tmp_path / "jobs.toml").job(JOB)
    query_id = simulated.live.query_id
    lake = Lake(tmp_path / "lake", query_id)
    books = Books(f"sqlite:///{tmp_path / 'orders.db'}", query_id).create()

    def run(first: int, last: int) -> None:
        for batch in range(first, last + 1):
            simulated.run(1)
            keys = [f"{batch}-{row}" for row in range(ROWS)]
            lake.write(batch, keys)
            books.write(batch, keys)

    run(0, 4)
    assert prepare_launch(job, job.records(), by=BY).queries["main"].generation == 1
    job.records().record_query(None, {"query_id": query_id, "sink": FOREACH, "generation": 1})
    sinks = sinks_of_query(FOREACH, query_id, job.sinks).captures()
    taken = take(TakeRequest(simulated.checkpoint, simulated.repository, JOB, sinks=sinks))
    assert taken.batch == 4 and not taken.warnings
    saved = (lake.rows(), books.state())
    run(5, 7)
    return Shop(simulated, job, lake, books, saved)


class TestChoices:
    def test_both_are_refused_with_their_rows(self, shop: Shop) -> None:
        first, second = shop.planned().refusals
        assert {first.code, second.code} == {"sink-would-lose-rows"}
        assert "Delta table" in first.message and "batches 5 to 7 (9 rows)" in first.message
        assert "ledger sqlite" in second.message and "batches 5 to 7 (18 rows)" in second.message
        assert all("--sink rollback" in one.hint for one in (first, second))
        with pytest.raises(RefusedError) as caught:
            shop.go_back("refuse")
        assert first.message in caught.value.message and second.message in caught.value.message
        assert not shop.events()

    def test_a_plan_changes_nothing(self, shop: Shop) -> None:
        before = shop.rows()
        plan = shop.planned("rollback")
        assert plan.possible and plan.possible_choices.sink == ("rollback", "accept")
        assert shop.rows() == before and prepare_launch(shop.job, shop.job.records(), by=BY)

    def test_rollback_takes_both_back(self, shop: Shop) -> None:
        report = shop.converges()
        did = [(one["kind"], one["rows_removed"]) for one in report.to_dict()["rolled_back"]]
        assert did == [("delta", 9), ("ledger", 18)] and shop.events() == ["delta", "ledger"]

    def test_accept_leaves_both(self, shop: Shop) -> None:
        before = shop.rows()
        report = shop.go_back("accept")
        assert shop.rows() == before and "batches 5 to 7" in report.sink_effect


def test_an_exchange_does_not_say_that_no_sink_is_known(shop: Shop) -> None:
    assert plan_restore(replace(shop.request("refuse"), unmoved=True)).sinks == ()


class TestOneOfTwoFails:
    @pytest.mark.parametrize("table", ["orders", "items"])
    def test_a_second_restore_finishes_it(self, shop: Shop, table: str) -> None:
        before = shop.books.state()
        shop.books.fail_at_delete(table)
        with pytest.raises(StorageError, match="injected fault"):
            shop.go_back()
        assert shop.lake.rows() == shop.saved[0] and shop.books.state() == before
        assert shop.events() == ["delta"], "what was rolled back is on record"
        assert "Delta table" in shop.start_is_refused()
        with pytest.raises(StorageError, match="injected fault"):
            shop.go_back()
        assert "Delta table" in shop.start_is_refused(), "the second note knows what the first one did"

        shop.books.mend(table)
        did = [(one["kind"], one["rows_removed"]) for one in shop.converges().to_dict()["rolled_back"]]
        assert did == [("delta", 0), ("ledger", 18)]

    def test_without_it_the_job_would_lose_rows(self, shop: Shop) -> None:
        """The negative control: what the refused start would have done with the table that went back."""
        shop.books.fail_at_delete("items")
        with pytest.raises(StorageError):
            shop.go_back()
        assert shop.lake.write(8, ["8-0"]), "generation 1 goes on after batch 7"
        assert not any(key.startswith(("5-", "6-", "7-")) for key in shop.lake.rows())

    def test_one_that_cannot_go_back_stops_both(self, shop: Shop) -> None:
        """It is known before anything is done."""
        shop.lake.write_other(["theirs"])
        before = shop.rows()
        with pytest.raises(RefusedError) as caught:
            shop.go_back()
        assert caught.value.code == "sink-cannot-roll-back" and shop.rows() == before
        assert prepare_launch(shop.job, shop.job.records(), by=BY) and not shop.events()


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (DeltaGuard, "roll_back"),
        (DeltaGuard, "_restore"),
        (DeltaTable, "restore"),
        (LedgerGuard, "roll_back"),
        (LedgerGuard, "_delete"),
        (Connection, "commit"),
    ],
    ids=lambda one: one if isinstance(one, str) else one.__name__,
)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_crash_at_each_call(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, where: type, name: str, moment: str
) -> None:
    """Killed before or after it: unless nothing was changed, no start; and a second restore converges."""
    call: Callable[..., object] = getattr(where, name)

    def die(*args: object, **options: object) -> None:
        if moment == "after":
            call(*args, **options)
        raise SimulatedCrash(name)

    with monkeypatch.context() as patched:
        patched.setattr(where, name, die)
        shop.killed()
    if where is DeltaGuard and moment == "before":
        shop.nothing_changed()
    else:
        assert "may have been rolled back" in shop.start_is_refused()
    shop.converges()


def test_killed_twice(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """After all was rolled back, before the switch; then before a sink was looked at again."""

    def die(*args: object, **options: object) -> None:
        raise SimulatedCrash("killed")

    with monkeypatch.context() as patched:
        patched.setattr(restoring, "begin_outputs", die)
        shop.killed()
    assert shop.rows() == shop.saved
    shop.start_is_refused()
    with monkeypatch.context() as patched:
        patched.setattr(restoring, "roll_back_sinks", die)
        shop.killed()
    shop.start_is_refused()
    shop.converges()


class TestNothingWasChanged:
    """A restore that ends before it changes a sink leaves no note, and the job can be started."""

    def test_refused_by_the_first_table(self, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as patched:
            TestAnotherWriter.writes(patched, lambda: shop.lake.write_other(["theirs"]))
            with pytest.raises(ConflictError):
                shop.go_back()
        shop.nothing_changed()

    def test_refused_at_the_commit(self, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        """Another writer commits between the last look and the commit of the rollback: Delta refuses that."""
        restores = DeltaTable.restore

        def late(*args: Any, **options: Any) -> object:
            shop.lake.write_other(["theirs"])
            return restores(*args, **options)

        with monkeypatch.context() as patched:
            patched.setattr(DeltaTable, "restore", late)
            with pytest.raises(ConflictError) as caught:
                shop.go_back()
        assert caught.value.code == "sink-moved" and shop.lake.rows()["theirs"] == 1
        assert shop.job.records().store.names("taken-back/main"), "it was noted"
        assert prepare_launch(shop.job, shop.job.records(), by=BY).queries["main"].generation == 1

    def test_a_lost_answer_to_the_commit(self, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is sent again, and refused since it is there already: the table was rolled back."""
        from deltalake.exceptions import CommitFailedError

        restores = DeltaTable.restore
        fired: list[str] = []

        def twice(*args: Any, **options: Any) -> object:
            restores(*args, **options)
            fired.append("restore")
            raise CommitFailedError("injected fault: version already exists")

        with monkeypatch.context() as patched:
            patched.setattr(DeltaTable, "restore", twice)
            shop.converges()
        assert fired == ["restore"]

    def test_a_database_that_does_not_let_it_delete(self, shop: Shop) -> None:
        """The Delta table is even already: only the ledger is left, and its transaction is undone."""
        shop.go_back()
        shop.books.write(5, ["5-0"])
        shop.books.fail_at_delete("items")
        before = shop.rows()
        with pytest.raises(StorageError, match="injected fault"):
            shop.go_back()
        assert shop.rows() == before
        assert prepare_launch(shop.job, shop.job.records(), by=BY).queries["main"].generation == 2
        shop.books.mend("items")
        shop.go_back()
        assert shop.rows() == shop.saved

    @pytest.mark.parametrize("note", ["error-before", "error-after", "crash-before", "crash-after"])
    def test_a_fault_at_the_note(self, shop: Shop, monkeypatch: pytest.MonkeyPatch, note: str) -> None:
        """No sink is changed without one; one that is there refuses a start, whatever came of it."""
        fired: list[str] = []
        kind, moment = note.split("-")

        write = RollbackNote._write

        def broken(*args: Any, **options: Any) -> None:
            if moment == "after":
                write(*args, **options)
            fired.append(note)
            raise SimulatedCrash(note) if kind == "crash" else StorageError("injected fault")

        before = shop.rows()
        with monkeypatch.context() as patched:
            patched.setattr(RollbackNote, "_write", broken)
            if kind == "crash":
                shop.killed()
            else:
                with pytest.raises(StorageError, match="injected fault"):
                    shop.go_back()
        assert fired == [note] and shop.rows() == before
        if moment == "before":
            shop.nothing_changed()
        else:
            assert "Delta table" in shop.start_is_refused()
        shop.converges()

    def test_an_earlier_note_stays(self, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        """The first restore rolled one table back, the second one was refused before it changed anything."""
        shop.books.fail_at_delete("items")
        with pytest.raises(StorageError):
            shop.go_back()
        with monkeypatch.context() as patched:
            TestAnotherWriter.writes(patched, lambda: shop.lake.write_other(["theirs"]))
            with pytest.raises(ConflictError):
                shop.go_back()
        assert "Delta table" in shop.start_is_refused()

    def test_a_lost_lock_changes_nothing(self, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        """A person breaks it while the table is asked once more, since the restore seems to hang."""
        asked = DeltaGuard.roll_back

        def slow(*args: Any) -> object:
            shop.unlock()
            return asked(*args)

        before = shop.rows()
        with monkeypatch.context() as patched, pytest.raises(ConflictError):
            patched.setattr(DeltaGuard, "roll_back", slow)
            shop.go_back()
        assert shop.rows() == before
        shop.nothing_changed()
        shop.converges()


class TestAnotherWriter:
    """It writes after the plan was made that a person has approved, and before the rollback."""

    @staticmethod
    def writes(monkeypatch: pytest.MonkeyPatch, write: Callable[[], object]) -> None:
        def look_and_write(*args: object) -> Prepared:
            found = prepare(*args)  # type: ignore[arg-type]  # passed on
            write()
            return found

        monkeypatch.setattr(restoring, "prepare", look_and_write)

    def test_to_the_delta_table(self, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        books = shop.books.state()
        with monkeypatch.context() as patched:
            self.writes(patched, lambda: shop.lake.write_other(["theirs"]))
            with pytest.raises(ConflictError) as caught:
                shop.go_back()
        assert caught.value.code == "sink-moved" and shop.lake.rows()["theirs"] == 1
        assert shop.books.state() == books and not shop.events()
        with pytest.raises(RefusedError) as refused:
            shop.go_back()
        assert refused.value.code == "sink-cannot-roll-back", "it would undo what they wrote"

    def test_to_the_ledger(self, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as patched:
            self.writes(patched, lambda: shop.books.write(8, ["zombie"]))
            with pytest.raises(ConflictError) as caught:
                shop.go_back()
        assert caught.value.code == "sink-moved" and shop.books.rows()["zombie"] == 1
        assert shop.events() == ["delta"]
        shop.start_is_refused()
        shop.converges()

    @pytest.mark.parametrize("table", ["lake", "books"])
    def test_where_nothing_was_ahead(self, shop: Shop, monkeypatch: pytest.MonkeyPatch, table: str) -> None:
        """A restore that found both even does not go on over a batch that came after."""
        shop.converges()
        writer = shop.lake if table == "lake" else shop.books
        for choice in ("refuse", "rollback"):
            with monkeypatch.context() as patched:
                self.writes(patched, lambda: writer.write(5, ["zombie"]))
                with pytest.raises((RefusedError, ConflictError)) as caught:
                    shop.go_back(choice)
            assert caught.value.code in ("sink-would-lose-rows", "sink-moved")
            assert writer.rows()["zombie"] == 1
            shop.go_back()
            assert shop.rows() == shop.saved
