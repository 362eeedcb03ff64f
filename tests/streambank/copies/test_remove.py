"""What of a copy goes when it is made again, and what stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.control.copies import begun_refreshes, commit_refresh, last_refresh
from streambank.control.records import RecordStream
from streambank.copies.preconditions import check_removable
from streambank.core.errors import ConflictError, NotFoundError, RefusedError, StorageError
from tests.support.jobs.copied_job import STAGING, CopiedJob
from tests.support.storage.faulty_store import SimulatedCrash


def failing(made: CopiedJob, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Make the copy again, which ends in an error once its directories are named."""
    fired = []

    def fail(*args: object, **options: object) -> None:
        fired.append(args)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("streambank.copies.refresh.materialize", fail)
        with pytest.raises(type(error)):
            made.refresh()
    assert fired


def test_what_a_restore_on_the_copy_has_made_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = CopiedJob(tmp_path)
    made.refresh()
    failing(made, monkeypatch, SimulatedCrash())
    restored = made.restore_on_copy()
    assert Path(restored).name == "ck.g0003", "it takes the number that the killed refresh had named"
    with pytest.raises(NotFoundError):
        made.refresh(savepoint="b000099-000000000000")
    assert (tmp_path / "staging/ck.g0003/metadata").exists()
    made.declare(f"{STAGING}keep = 1\n")
    report = made.refresh()
    assert report.queries[0].generation == 4
    assert {Path(one).name for one in report.removed} == {"ck.g0002", "out.g0002"}
    assert (tmp_path / "staging/ck.g0003/metadata").exists(), "no refresh has made it"


def test_a_number_that_a_killed_refresh_has_named_is_not_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = CopiedJob(tmp_path)
    failing(made, monkeypatch, SimulatedCrash())
    assert made.refresh().queries[0].generation == 3


def test_a_refresh_that_left_nothing_names_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = CopiedJob(tmp_path)
    made.refresh()
    records = made.on().records()
    before = list(begun_refreshes(records))
    failing(made, monkeypatch, StorageError("no room", code="no-space", hint=""))
    assert list(begun_refreshes(records)) == before
    assert made.refresh().queries[0].generation == 3


def test_where_a_record_cannot_be_read_nothing_goes(tmp_path: Path) -> None:
    made = CopiedJob(tmp_path)
    for _ in range(2):
        made.refresh()
    records = made.on().records()
    stream = RecordStream(records.store, "refreshed")
    records.store.write(stream.key(1), b"{")
    made.declare(f"{STAGING}keep = 3\n")
    report = made.refresh()
    assert report.removed == () and any("Nothing was removed" in one for one in report.warnings)
    assert (tmp_path / "staging/ck.g0002/metadata").exists()


def test_a_record_that_was_moved_away_keeps_what_is_in_use(tmp_path: Path) -> None:
    made = CopiedJob(tmp_path, f"{STAGING}keep = 1\n")
    for _ in range(2):
        made.refresh()
    records = made.on().records()
    records.store.delete(RecordStream(records.store, "refreshed").key(2))
    with pytest.raises(NotFoundError):
        made.refresh(savepoint="b000099-000000000000")
    assert (tmp_path / "staging/ck.g0003/metadata").exists()
    assert (tmp_path / "staging/out.g0003/_spark_metadata").exists()


def test_what_holds_something_live_does_not_go(tmp_path: Path) -> None:
    made = CopiedJob(tmp_path)
    location = made.refresh().queries[0].location
    check_removable(made.job, made.control(), location, made.job.repository)
    made.control().record_query(None, {"sink_path": f"{location}/out"})
    with pytest.raises(RefusedError) as caught:
        check_removable(made.job, made.control(), location, made.job.repository)
    assert caught.value.code == "not-apart"


def test_a_refresh_that_slept_does_not_replace_a_later_one(tmp_path: Path) -> None:
    made = CopiedJob(tmp_path)
    made.refresh()
    records = made.on().records()
    seen = last_refresh(records)
    made.refresh()
    with pytest.raises(ConflictError) as caught:
        commit_refresh(records, {}, {}, seen=seen)
    assert caught.value.code == "generation-moved" and last_refresh(records) == seen + 1
