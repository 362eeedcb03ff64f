"""The verbs on checkpoints and savepoints, from the first take to the restore."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from streambank.savepoint import verify
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint, add_debris
from tests.support.cli import streambank, succeed
from tests.support.jobs.simulated_job import SimulatedJob

QUERY_ID = "5d1e7a40-5c6e-4a7f-9f0e-3c6bb1c9f2aa"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    live = LiveCheckpoint(open_store(tmp_path / "checkpoint"), query_id=QUERY_ID).run(7)
    live.plan()
    add_debris(live.store, 6)
    return tmp_path / "checkpoint"


@pytest.fixture
def repository(tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STREAMBANK_REPOSITORY", str(tmp_path / "repository"))
    return tmp_path / "repository"


def test_inspect_tells_what_a_checkpoint_holds(checkpoint: Path) -> None:
    found = streambank("inspect", checkpoint, "--json").document
    assert found["query_id"] == QUERY_ID
    assert found["last_committed_batch"] == 6
    assert found["last_planned_batch"] == 7
    assert found["retained_batches"] == list(range(7))
    assert found["watermark"] == "1970-01-01T00:00:06.500Z"
    assert found["operators"][0]["name"] == "stateStoreSave"
    text = streambank("inspect", checkpoint).out
    assert QUERY_ID in text and "0-6" in text and "stateStoreSave" in text
    assert "info: temporary-files" in text


def test_inspect_of_another_batch(checkpoint: Path) -> None:
    assert streambank("inspect", checkpoint, "--batch", 3, "--json").document["batch"] == 3


@pytest.mark.usefixtures("repository")
def test_a_savepoint_from_take_to_restore(tmp_path: Path, checkpoint: Path) -> None:
    first = succeed("take", checkpoint, "--job", "orders", "--batch", 4, "--note", "hello", "--json").document
    assert {"savepoint", "job", "batch", "files", "bytes", "new_bytes", "seconds", "replans"} <= set(first)
    assert (first["batch"], first["job"], first["already_there"]) == (4, "orders", False)
    second = succeed("take", checkpoint, "--job", "orders", "--pin")
    assert "savepoint b000006-" in second.out
    assert "were there already" not in second.out
    assert "It was there already" in succeed("take", checkpoint, "--job", "orders").out

    listed = succeed("list", "--json").document
    assert [each["batch"] for each in listed] == [4, 6]
    assert [each["pinned"] for each in listed] == [False, True]
    assert all(each["verified_at"] is None for each in listed)
    assert "hello" in succeed("list", "--job", "orders").out

    shown = succeed("show", "b000004", "--json").document
    assert shown["savepoint"] == first["savepoint"] and shown["note"] == "hello"
    assert {"path", "size_bytes", "digest"} <= set(shown["files"][0])
    assert "metadata" in {file["path"] for file in shown["files"]}
    assert shown["taken_by"]["via"] == "cli"
    text = succeed("show", "b000004").out
    assert "stateStoreSave" in text and "1970-01-01T00:00:04.500Z" in text

    report = succeed("verify", "b000004", "--level", "full", "--json").document
    assert report["ok"] is True and report["findings"] == [] and report["level"] == "full"
    assert ": ok (quick: " in succeed("verify", "--all").out
    assert all(each["verified_at"] is not None for each in succeed("list", "--json").document)

    assert succeed("pin", "b000004", "--json").document["pinned"] is True
    assert succeed("unpin", "b000004").out == f"{first['savepoint']} is no longer pinned.\n"
    assert succeed("unpin", "b000004").out == f"{first['savepoint']} was not pinned; nothing changed.\n"

    shutil.rmtree(checkpoint)
    into = ("--into", tmp_path / "back")
    refused = streambank("restore", "latest-good", *into)
    assert refused.code == 8 and "No sink of the query is known" in refused.err
    accepted = (*into, "--sink", "accept")
    plan = succeed("restore", "latest-good", *accepted, "--dry-run", "--json").document
    assert plan["batch"] == 6 and plan["possible"] is True
    assert (
        "How long it takes until the first batch"
        in succeed("restore", "latest-good", *accepted, "--dry-run").out
    )
    assert not (tmp_path / "back").exists()
    restored = succeed("restore", "b000004", *accepted, "--json").document
    assert restored["batch"] == 4
    assert streambank("inspect", tmp_path / "back", "--json").document["last_committed_batch"] == 4
    again = streambank("restore", "b000004", "--into", tmp_path / "back")
    assert again.code == 8 and "is not empty" in again.err


@pytest.mark.usefixtures("repository")
def test_a_savepoint_by_its_name_its_batch_and_a_time(
    tmp_path: Path, checkpoint: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    four = succeed("take", checkpoint, "--job", "orders", "--batch", 4, "--name", "before-upgrade")
    assert "(before-upgrade) of orders" in four.out
    six = succeed("take", checkpoint, "--job", "orders", "--json").document
    again = streambank("take", checkpoint, "--job", "orders", "--name", "before-upgrade")
    assert again.code == 2 and "belongs to the savepoint b000004-" in again.err

    assert [one["names"] for one in succeed("list", "--json").document] == [["before-upgrade"], []]
    assert "before-upgrade" in succeed("list").out
    shown = succeed("show", "before-upgrade", "--json").document
    assert (shown["batch"], shown["name"], shown["names"]) == (4, "before-upgrade", ["before-upgrade"])
    assert "before-upgrade" in succeed("show", "batch:4").out
    assert succeed("show", "batch:6", "--json").document["names"] == []
    assert succeed("pin", "before-upgrade", "--json").document["savepoint"] == shown["savepoint"]
    assert "full" in succeed("verify", "orders/before-upgrade", "--level", "full").out

    jobs = tmp_path / "jobs.toml"
    jobs.write_text(
        f'repository = "{repository}"\n[jobs.orders]\napplication = "{tmp_path}/a.py"\n'
        f'checkpoint = "{tmp_path}/c"\ntime_zone = "Asia/Tokyo"\n'
    )
    accepted = ("--into", tmp_path / "back", "--sink", "accept")
    into = (*accepted, "--dry-run")
    plan = succeed("restore", "2999-01-01", *into, "--job", "orders", "--json").document
    assert (plan["savepoint"], plan["as_of"], plan["as_of_zone"]) == (
        six["savepoint"], "2999-01-01T00:00:00.000Z", "UTC",
    )  # fmt: skip
    there = (*into, "--jobs", jobs, "--job", "orders")
    plan = succeed("restore", "2999-01-01", *there, "--json").document
    assert (plan["as_of"], plan["as_of_zone"]) == ("2998-12-31T15:00:00.000Z", "Asia/Tokyo")
    assert "2999-01-01 00:00:00+09:00 (Asia/Tokyo)" in succeed("restore", "2999-01-01", *there).out
    early = streambank("restore", "2001-01-01", *there)
    assert early.code == 3 and "2001-01-01 00:00:00+09:00 (Asia/Tokyo)" in early.err
    restored = succeed("restore", "before-upgrade", *accepted, "--json").document
    assert (restored["batch"], restored["as_of"]) == (4, None)


@pytest.mark.usefixtures("repository")
def test_a_damaged_savepoint_is_exit_code_1_for_verify_and_5_for_restore(
    tmp_path: Path, checkpoint: Path, repository: Path
) -> None:
    taken = succeed("take", checkpoint, "--job", "orders", "--json").document
    pack = next(path for path in (repository / "packs").rglob("*") if path.is_file())
    data = bytearray(pack.read_bytes())
    data[len(data) // 3] ^= 1
    pack.write_bytes(data)

    found = streambank("verify", taken["savepoint"], "--level", "full", "--json")
    assert found.code == 1
    assert found.document["ok"] is False
    assert {"code", "severity", "file", "cause", "effect", "hint"} == set(found.document["findings"][0])
    everything = streambank("verify", "--all", "--level", "full", "--json")
    assert everything.code == 1 and everything.document["findings"][0]["savepoint"] == taken["savepoint"]
    assert "DAMAGED" in streambank("verify", "--all", "--level", "full").out
    assert "DAMAGED" in succeed("list").out
    into = ("--into", tmp_path / "back", "--sink", "accept")
    assert streambank("restore", taken["savepoint"], *into).code == 5
    assert not list((tmp_path / "back").glob("*"))


@pytest.mark.usefixtures("repository")
def test_a_take_of_what_is_there_says_that_its_own_note_is_not_kept(checkpoint: Path) -> None:
    succeed("take", checkpoint, "--job", "orders", "--note", "one")
    said = succeed("take", checkpoint, "--job", "orders", "--note", "two")
    assert "It was there already" in said.out and "has the note 'one', which stays" in said.out
    for same in (("--note", "one"), ()):
        assert "note" not in succeed("take", checkpoint, "--job", "orders", *same).out
    assert succeed("show", "latest", "--json").document["note"] == "one"


def test_what_is_not_there_is_exit_code_3(tmp_path: Path, checkpoint: Path) -> None:
    nowhere = tmp_path / "nowhere"
    assert streambank("inspect", nowhere).code == 3
    assert streambank("list", "-r", nowhere).code == 3
    assert streambank("take", nowhere, "-r", tmp_path / "repository", "--job", "orders").code == 3
    succeed("take", checkpoint, "-r", tmp_path / "repository", "--job", "orders")
    answer = streambank("show", "b999", "-r", tmp_path / "repository")
    assert answer.code == 3 and "hint: The newest that are there: b0" in answer.err


@pytest.mark.usefixtures("repository")
def test_a_dry_run_that_would_be_refused_has_the_exit_code_of_the_restore(
    tmp_path: Path, checkpoint: Path
) -> None:
    succeed("take", checkpoint, "--job", "orders")
    (tmp_path / "back").mkdir()
    (tmp_path / "back/mine").touch()
    restore = ("restore", "latest-good", "--into", tmp_path / "back")
    shown, planned = streambank(*restore, "--dry-run"), streambank(*restore, "--dry-run", "--json")
    assert (shown.code, planned.code, streambank(*restore).code) == (8, 8, 8)
    assert "refused: " in shown.out and planned.document["refusals"][0]["error"] == "target-not-empty"


@pytest.mark.usefixtures("repository")
def test_restore_wants_a_place_and_latest_good_a_job(tmp_path: Path, checkpoint: Path) -> None:
    succeed("take", checkpoint, "--job", "orders")
    for given in ([], ["--into", str(tmp_path / "back"), "--generation"]):
        answer = streambank("restore", "latest-good", *given)
        assert answer.code == 2 and "--into" in answer.err and "--generation" in answer.err
    succeed("take", checkpoint, "--job", "copies")
    answer = streambank("restore", "latest-good", "--into", tmp_path / "back")
    assert answer.code == 2 and "--job" in answer.err


@pytest.mark.usefixtures("repository")
def test_a_query_that_is_not_the_jobs_is_a_conflict_unless_it_is_meant(
    tmp_path: Path, checkpoint: Path
) -> None:
    other = tmp_path / "other"
    LiveCheckpoint(open_store(other)).run(2)
    succeed("take", checkpoint, "--job", "orders")
    answer = streambank("take", other, "--job", "orders")
    assert answer.code == 6 and "--new-query" in answer.err
    succeed("take", other, "--job", "orders", "--new-query")


def test_a_fork_in_a_new_output_directory(tmp_path: Path) -> None:
    shop = SimulatedJob(tmp_path)
    taken = shop.run(3).take()
    fork: list[str | Path] = [
        "restore",
        taken.savepoint,
        "-r",
        tmp_path / "repository",
        "--mode",
        "fork",
        "--into",
    ]
    refused = streambank(*fork, tmp_path / "refused", "--json")
    assert refused.code == 8 and f"--new-sink {shop.sink_store.uri}=DIR" in refused.document["hint"]
    new = f"{tmp_path}/day=1/out"
    said = succeed(*fork, tmp_path / "fork", "--new-sink", f"{tmp_path}/out={new}")
    assert f"file://{new} instead of {shop.sink_store.uri}: its log names no file up to batch 2" in said.out
    assert sorted(path.name for path in Path(new).rglob("*") if path.is_file()) == ["0", "1", "2"]
    for wrong in ("out", "=x", f"{tmp_path}/out="):
        answer = streambank(*fork, tmp_path / "wrong", "--new-sink", wrong, "--json")
        assert (answer.code, answer.document["error"]) == (2, "bad-new-sink")


@pytest.mark.usefixtures("repository")
def test_verify_of_all_goes_on_where_one_is_expired_meanwhile(
    checkpoint: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (
        succeed("take", checkpoint, "--job", "orders", "--batch", batch, "--json").document["savepoint"]
        for batch in (4, 5)
    )
    original = verify.verify

    def expiring(*args: Any, **options: Any) -> verify.VerifyReport:
        (repository / "savepoints/orders" / f"{first}.json").unlink(missing_ok=True)
        return original(*args, **options)

    monkeypatch.setattr(verify, "verify", expiring)
    found = succeed("verify", "--all", "--json").document
    assert [each["savepoint"] for each in found["savepoints"]] == [second]


@pytest.mark.parametrize("inside", ["checkpoint/sp", "link/sp"])
def test_no_repository_is_made_in_a_checkpoint(tmp_path: Path, inside: str) -> None:
    LiveCheckpoint(open_store(tmp_path / "checkpoint")).run(2)
    (tmp_path / "link").symlink_to(tmp_path / "checkpoint/state")
    before = sorted((tmp_path / "checkpoint").rglob("*"))
    answer = streambank("take", tmp_path / "checkpoint", "-r", tmp_path / inside, "--job", "orders")
    assert answer.code == 2
    assert "would lie in the checkpoint" in answer.err
    assert sorted((tmp_path / "checkpoint").rglob("*")) == before


@pytest.mark.parametrize(
    "verb", [("verify", "--all"), ("verify", "--all", "--sample", "10%"), ("replicate", "--to", "replica")]
)
def test_a_mistyped_job_is_not_all_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    SimulatedJob(tmp_path).run(2).take()
    answer = streambank(*verb, "-r", tmp_path / "repository", "--job", "odrers")
    assert answer.code == 3
    assert "There is no savepoint of odrers" in answer.err
    assert not (tmp_path / "replica").exists()


def test_the_name_of_a_job_is_checked_before_it_is_looked_for(tmp_path: Path) -> None:
    SimulatedJob(tmp_path)
    answer = streambank("list", "-r", tmp_path / "repository", "--job", "../x")
    assert answer.code == 2
    assert "'..' cannot be the name of a job" in answer.err
