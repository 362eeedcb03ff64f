"""Restores of a query without records, by savepoints that say nothing of its table: what the table knows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import RefusedError
from streambank.recovery.report import RestoreReport
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore, restore
from streambank.savepoint.take import TakeRequest, take
from streambank.sinks.declared import DeclaredSink
from streambank.sinks.delta import DeltaGuard
from tests.support.jobs.simulated_job import BY, JOB, SimulatedJob, quick_store
from tests.support.sinks.books import LEDGER, Books
from tests.support.sinks.iceberg import NAME, IceTable
from tests.support.sinks.lake import Lake

KINDS = ("delta", "iceberg", "ledger")


class Plain:
    """A query that no job manages, and its table; each batch is of one row, and each has a savepoint."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.job = SimulatedJob(folder, sink=False)
        query = self.job.live.query_id
        self.table: Lake | IceTable | Books
        if kind == "delta":
            self.table = Lake(folder / "lake", query)
            self.sink = DeclaredSink("delta", self.job.open("lake").uri)
        elif kind == "iceberg":
            self.table = IceTable(folder / "lake", query)
            self.table.create()
            self.sink = DeclaredSink("iceberg", NAME, catalog=self.table.properties)
        else:
            self.table = Books(f"sqlite:///{folder / 'orders.db'}", query).create()
            self.table.do(f"ALTER TABLE {LEDGER} ADD COLUMN committed_at VARCHAR(40)")
            self.sink = DeclaredSink("ledger", LEDGER, url=self.table.url, rows=("orders", "items"))
        self.savepoints: list[str] = []
        self._targets = 0

    def run(self, last: int) -> None:
        """Batches up to one."""
        while self.job.live.next_batch <= last:
            batch = self.job.live.next_batch
            self.write(batch, f"{batch}")
            self.job.run(1)
            self.savepoints.append(take(TakeRequest(self.job.checkpoint, self.job.repository, JOB)).savepoint)

    def write(self, batch: int, row: str) -> None:
        if isinstance(self.table, Books):
            self.table.write(batch, [row])
            at = datetime.now(UTC).isoformat()
            self.table.do(f"UPDATE {LEDGER} SET committed_at = :at WHERE batch_id = :b", at=at, b=batch)
        else:
            assert self.table.write(batch, [row])

    def request(self, batch: int, **options: Any) -> RestoreRequest:
        self._targets += 1
        options = {"sink": "rollback", "declared_sinks": (self.sink,), **options}
        into = self.job.open(f"restored-{self._targets}")
        return RestoreRequest(
            self.job.repository, self.savepoints[batch], into=into, by=BY, opener=quick_store, **options
        )

    def go_back(self, batch: int, **options: Any) -> RestoreReport:
        return restore(self.request(batch, **options))

    def rows(self) -> list[str]:
        return sorted(self.table.rows())


@pytest.fixture(params=KINDS)
def plain(tmp_path: Path, request: pytest.FixtureRequest) -> Plain:
    made = Plain(tmp_path, request.param)
    made.run(5)
    return made


def test_a_table_that_was_never_rolled_back_is_judged_by_its_batch(plain: Plain) -> None:
    plain.go_back(3)
    assert plain.rows() == ["0", "1", "2", "3"]
    plain.write(4, "other 4")
    plain.go_back(3)  # once more: batch 3 is still that of the savepoint
    assert plain.rows() == ["0", "1", "2", "3"]


def test_another_batch_of_its_number_is_not_that_of_the_savepoint(plain: Plain) -> None:
    plain.go_back(2)
    for batch in (3, 4):
        plain.write(batch, f"other {batch}")
    before = plain.rows()
    for choice in ("refuse", "rollback"):
        with pytest.raises(RefusedError) as caught:
            plain.go_back(3, sink=choice)
        assert caught.value.code == "sink-not-known" and plain.rows() == before
        assert "batch 3 is another one than when that was taken" in caught.value.message
        assert f'--sink-of "{plain.sink.path}=accept"' in caught.value.hint
    plain.go_back(3, sink_of={plain.sink.path: "accept"})
    assert plain.rows() == before, "the way out leaves it as it is"


def test_a_ledger_without_times_cannot_tell(tmp_path: Path) -> None:
    plain = Plain(tmp_path, "ledger")
    plain.run(5)
    assert isinstance(plain.table, Books)
    plain.table.do(f"ALTER TABLE {LEDGER} DROP COLUMN committed_at")
    with pytest.raises(RefusedError) as caught:
        plain.go_back(3)
    assert caught.value.code == "sink-not-known" and len(plain.rows()) == 6
    assert "neither it nor any records of the job show" in caught.value.message
    control = plain.job.control()
    control.generations().ensure_first(plain.job.checkpoint.uri, by=BY)
    with pytest.raises(RefusedError, match="neither it nor any records"):
        plain.go_back(3, control=control)  # they are younger than the savepoint


def test_records_of_the_job_tell_where_the_ledger_does_not(tmp_path: Path) -> None:
    plain = Plain(tmp_path, "ledger")
    control = plain.job.control()
    control.generations().ensure_first(plain.job.checkpoint.uri, by=BY)
    plain.run(5)
    assert isinstance(plain.table, Books)
    plain.table.do(f"ALTER TABLE {LEDGER} DROP COLUMN committed_at")
    plain.go_back(3, control=control)
    assert len(plain.rows()) == 4


def test_what_is_not_known_is_refused(plain: Plain) -> None:
    """The savepoint is older than all that the table remembers."""
    manifest = plain.job.repository.load(JOB, plain.savepoints[3])
    early = replace(manifest, taken_at=datetime(2020, 1, 1, tzinfo=UTC))
    guard = plain.sink.guard(plain.job.live.query_id)
    assert guard is not None and guard.same_batch(3, early.taken_at) is not True
    assert guard.same_batch(3, manifest.taken_at) is True


def test_without_that_look_the_restore_would_take_the_wrong_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: judged by its number, a table with other rows in batch 3 counts as even."""
    plain = Plain(tmp_path, "delta")
    plain.run(5)
    plain.go_back(2)
    plain.write(3, "other 3")
    assert not plan_restore(plain.request(3)).possible
    monkeypatch.setattr(DeltaGuard, "same_batch", lambda *_: True)
    plain.go_back(3)
    assert plain.rows() == ["0", "1", "2", "other 3"], "row 3 is lost, and its batch does not come again"
