"""What of a copy goes when it is made again, and what stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streambank.control.copies import begun_refreshes, commit_refresh, last_refresh
from streambank.control.records import RecordStream
from streambank.copies import claims
from streambank.copies.preconditions import check_removable
from streambank.core.errors import ConflictError, NotFoundError, RefusedError, StorageError
from tests.support.jobs.copied_job import STAGING, CopiedJob, numbered
from tests.support.refuses import refuses
from tests.support.storage.faulty_store import SimulatedCrash


def failing(
    made: CopiedJob, monkeypatch: pytest.MonkeyPatch, error: BaseException, step: str = "lay_out_copy"
) -> None:
    """Make the copy again, which ends in an error once its directories are named."""
    fired = []

    def fail(*args: object, **options: object) -> None:
        fired.append(args)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(f"streambank.copies.refresh.{step}", fail)
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


SHARED = STAGING.replace('"staging/out"', '"../shared/out"')
"""Two installations declare one place for the output of their copies."""


def installations(tmp_path: Path) -> tuple[CopiedJob, CopiedJob]:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    return CopiedJob(tmp_path / "one", SHARED), CopiedJob(tmp_path / "other", SHARED)


@pytest.mark.parametrize("step", ["claim", "lay_out_copy"])
def test_what_a_killed_refresh_has_named_and_another_installation_has_filled_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    one, other = installations(tmp_path)
    failing(one, monkeypatch, SimulatedCrash(), step)
    (output,) = other.refresh().queries[0].outputs.values()
    number = {"claim": 2, "lay_out_copy": 3}[step]
    assert output == (tmp_path / f"shared/out.g{number:04d}").as_uri(), "what is claimed is left out"
    report = one.refresh()
    assert (tmp_path / f"shared/out.g{number:04d}/_spark_metadata/2").exists()
    (own,) = report.queries[0].outputs.values()
    assert own != output and output not in report.removed
    assert (tmp_path / "shared/out.g0002").exists() is (step == "claim")


def test_a_directory_that_is_claimed_meanwhile_is_not_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = installations(tmp_path)
    claim = claims.claim
    filled: list[str] = []

    def late(*args: Any) -> None:
        if not filled:
            filled.append("begun")
            filled.extend(one.location for one in other.refresh().queries)
        claim(*args)

    with monkeypatch.context() as patch:
        patch.setattr("streambank.copies.refresh.claim", late)
        with pytest.raises(ConflictError) as caught:
            one.refresh()
    assert caught.value.code == "generation-moved" and len(filled) == 2
    assert (tmp_path / "shared/out.g0002/_spark_metadata/2").exists()
    assert not list((tmp_path / "one/staging").glob("ck.g*")), "its own claim is dropped"
    assert one.refresh().queries[0].generation == 3


def test_directories_of_outputs_that_are_not_declared_any_more_stay_and_are_said_once(tmp_path: Path) -> None:
    """What records alone name is removed by a person."""
    made = CopiedJob(tmp_path, f"{STAGING}keep = 1\n")
    made.refresh()
    made.declare(f"{STAGING}keep = 1\n".replace("staging/out", "elsewhere/out"))
    report = made.refresh()
    assert {Path(one).name for one in report.removed} == {"ck.g0002"}
    assert any("staging/out.g0002 is not claimed" in one for one in report.warnings)
    assert numbered(tmp_path / "staging") == {"ck.g0003", "out.g0002"}
    assert numbered(tmp_path / "elsewhere") == {"out.g0003"}
    assert not made.refresh().warnings


def test_what_is_not_claimed_stays_and_is_said_once(tmp_path: Path) -> None:
    """Its claim was removed by hand, or another job has taken the directory over."""
    made = CopiedJob(tmp_path, f"{STAGING}keep = 1\n")
    made.refresh()
    (tmp_path / "staging/out.g0002.streambank.json").unlink()
    assert any("out.g0002 is not claimed" in one for one in made.refresh().warnings)
    assert (tmp_path / "staging/out.g0002").exists()
    assert not made.refresh().warnings
    assert len(list(begun_refreshes(made.on().records()))) == 1


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
    with refuses(RefusedError, "not-apart"):
        check_removable(made.job, made.control(), location, made.job.repository)


def test_a_refresh_that_slept_does_not_replace_a_later_one(tmp_path: Path) -> None:
    made = CopiedJob(tmp_path)
    made.refresh()
    records = made.on().records()
    seen = last_refresh(records)
    made.refresh()
    with pytest.raises(ConflictError) as caught:
        commit_refresh(records, {}, {}, seen=seen)
    assert caught.value.code == "generation-moved" and last_refresh(records) == seen + 1
