"""What drills left behind that were killed goes with the next one, and nothing else does."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from streambank.core.units import utc_now
from streambank.drills import left
from streambank.drills.copy_of_job import copy_of
from streambank.driver.launchers.choose import launcher_for
from streambank.job.start import start_job
from tests.support.jobs.declared import BY, declare, end_drivers
from tests.support.jobs.managed_job import Managed, managed_job

HOUR_S = 3600.0


@pytest.fixture
def managed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Managed]:
    with managed_job(tmp_path, monkeypatch) as managed:
        yield managed


def scratch(managed: Managed, folder: Path, hours: float, token: str = "0a1b2c") -> Path:
    """The scratch of a drill that began some hours ago."""
    found = folder / left.name_of(utc_now() - timedelta(hours=hours), token)
    left.mark(str(found), managed.job.records())
    (found / "checkpoint/main").mkdir(parents=True)
    (found / "checkpoint/main/metadata").write_text('{"id":"0a1b2c3d-0000-0000-0000-000000000000"}')
    return found


def clean_up(managed: Managed, folder: Path) -> list[str]:
    return left.clean_up(
        managed.job, str(folder), timeout_s=HOUR_S, by=BY, launcher=launcher_for(managed.job)
    )


def test_only_what_is_older_than_any_drill_and_is_not_kept_goes(managed: Managed, tmp_path: Path) -> None:
    folder = tmp_path / "drills"
    old, young = scratch(managed, folder, 25.1), scratch(managed, folder, 24.9, "111111")
    kept = scratch(managed, folder, 99, "222222")
    left.keep(str(kept))
    unmarked = scratch(managed, folder, 99, "333333")
    (unmarked / left.MARKER).unlink()
    others = [
        folder / name for name in ("drill-20010101T000000Z", "orders", "drill-20010101T000000Z-0a1b2c.x")
    ]
    for other in others:
        other.mkdir()
    assert clean_up(managed, folder) == [f"file://{old}"]
    assert not old.exists()
    assert all(path.exists() for path in (young, kept, unmarked, *others))
    assert clean_up(managed, tmp_path / "nothing") == []


def test_what_says_nothing_of_this_jobs_records_is_named_once_and_an_empty_folder_goes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job, folder = declare(tmp_path), tmp_path / "drills"
    moved, unmarked, empty, link = (
        folder / left.name_of(utc_now() - timedelta(hours=99), token * 6) for token in "abcd"
    )
    moved.mkdir(parents=True)
    said = {"job": job.name, "records": "file:///records/of/before/they/were/moved"}
    (moved / left.MARKER).write_text(json.dumps(said))
    unmarked.mkdir()
    (unmarked / "file").write_bytes(b"x")
    empty.mkdir()  # killed after the marker had gone, and before the folder
    (tmp_path / "elsewhere").mkdir()
    link.symlink_to(tmp_path / "elsewhere")
    launcher = launcher_for(job)
    gone = left.clean_up(job, str(folder), timeout_s=HOUR_S, by=BY, launcher=launcher)
    assert gone == [empty.as_uri()] and not empty.exists()
    assert moved.exists() and unmarked.exists() and link.is_symlink() and (tmp_path / "elsewhere").exists()
    (line,) = caplog.messages
    assert line.startswith(f"3 folders, such as {moved.as_uri()}, ") and f"job {job.name}" in line
    caplog.clear()
    own = folder / left.name_of(utc_now() - timedelta(hours=99), "e" * 6)
    left.mark(str(own), job.records())
    for place in (moved, unmarked):
        shutil.rmtree(place)
    link.unlink()
    assert left.clean_up(job, str(folder), timeout_s=HOUR_S, by=BY, launcher=launcher) == [own.as_uri()]
    assert not caplog.messages


def test_the_driver_of_the_copy_is_ended_and_that_of_the_live_job_is_not(
    managed: Managed, tmp_path: Path
) -> None:
    managed.start()
    old = scratch(managed, tmp_path / "drills", 30)
    copy = copy_of(managed.job, f"file://{old}", {})
    start_job(copy, by=BY, wait=False)
    records = copy.records()
    try:
        assert (view := records.lease.view()) is not None and view.state == "live"
        assert clean_up(managed, tmp_path / "drills") == [f"file://{old}"]
        assert view.holder is not None
        assert not any(process.is_living() for process in view.holder.processes)
        assert managed.driver_lives()
        assert not old.exists()
    finally:
        end_drivers(records)
