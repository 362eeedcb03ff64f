"""`replicate`, `repair`, `status` and `verify --sample`, as a person calls them."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.repository.repository import Repository
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.cli import streambank, succeed
from tests.support.repository.repositories import flip
from tests.support.storage.contents import keys


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two savepoints, the older one pinned."""
    monkeypatch.setenv("STREAMBANK_REPOSITORY", str(tmp_path / "repository"))
    live = LiveCheckpoint(open_store(tmp_path / "checkpoint")).run(3)
    succeed("take", tmp_path / "checkpoint", "--job", "orders", "--pin")
    live.run(2)
    succeed("take", tmp_path / "checkpoint", "--job", "orders")
    return tmp_path / "repository"


def damage(repository: Path, prefix: str) -> str:
    store = open_store(repository)
    key = keys(store, prefix)[0]
    flip(store, key, 60)
    return key


def test_lost_with_its_disk_and_restored_from_the_replica(tmp_path: Path, repository: Path) -> None:
    replica = tmp_path / "replica"
    said = succeed("replicate", "--to", replica).out
    assert "2 savepoints" in said and "copied, pinned" in said
    again = succeed("replicate", "--to", replica, "--json").document
    assert again["ok"] and again["replicas"][0]["moved_bytes"] == 0
    repository.rename(tmp_path / "lost")
    into = ("--into", tmp_path / "back", "--json")
    assert succeed("restore", "latest-good", "-r", replica, *into).document["batch"] == 4
    assert [each["pinned"] for each in succeed("list", "-r", replica, "--json").document] == [True, False]


def test_one_savepoint_to_two_replicas(tmp_path: Path, repository: Path) -> None:
    succeed("replicate", "b000004", "--to", tmp_path / "one", "--to", tmp_path / "two")
    for name in ("one", "two"):
        assert [each["batch"] for each in succeed("list", "-r", tmp_path / name, "--json").document] == [4]


def test_a_damaged_savepoint_is_exit_code_1_and_the_other_goes(tmp_path: Path, repository: Path) -> None:
    damage(repository, "savepoints")
    answer = streambank("replicate", "--to", tmp_path / "replica")
    assert answer.code == 1 and "NOT replicated" in answer.out and "is damaged" in answer.out
    assert len(succeed("list", "-r", tmp_path / "replica", "--json").document) == 1


def test_a_replica_that_fails_is_named_and_the_next_one_is_filled(tmp_path: Path, repository: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "other").write_text("something else")
    answer = streambank("replicate", "--to", tmp_path / "full", "--to", tmp_path / "good", "--json")
    assert answer.code == 2
    bad, good = answer.document["replicas"]
    assert bad["error"]["error"] == "not-empty" and good["ok"]
    text = streambank("replicate", "--to", tmp_path / "full")
    assert text.code == 2 and "ended early" in text.out and "hint: " in text.out
    assert streambank("replicate", "--to", repository).code == 2
    sha = tmp_path / "sha"
    Repository.open(open_store(sha), create=True, digest="sha256")
    assert "sha256" in streambank("replicate", "--to", sha).out


def test_repair(tmp_path: Path, repository: Path) -> None:
    succeed("replicate", "--to", tmp_path / "replica")
    for dry_run in ((), ("--dry-run",)):
        assert succeed("repair", "--from", tmp_path / "replica", *dry_run).out == "Nothing is damaged.\n"
    pack, manifest = damage(repository, "packs"), damage(repository, "savepoints")
    assert streambank("verify", "--all", "--level", "full").code == 1
    plan = streambank("repair", "--from", tmp_path / "replica", "--dry-run")
    assert plan.code == 1
    assert f"would be repaired: {pack}" in plan.out and f"would be repaired: {manifest}" in plan.out
    assert streambank("verify", "--all", "--level", "full").code == 1
    done = succeed("repair", "--from", tmp_path / "replica", "--json").document
    assert done["ok"] and {each["file"] for each in done["repaired"]} == {pack, manifest}
    succeed("verify", "--all", "--level", "full")


def test_what_cannot_be_repaired_is_exit_code_1(tmp_path: Path, repository: Path) -> None:
    replica = tmp_path / "replica"
    succeed("replicate", "b000004", "--to", replica)
    key = f"savepoints/orders/{succeed('show', 'b000002', '--json').document['savepoint']}.json"
    flip(open_store(repository), key, 60)
    answer = streambank("repair", "--from", replica)
    assert answer.code == 1
    assert (
        f"NOT repaired: {key}" in answer.out and "why: " in answer.out and "needed by: orders/" in answer.out
    )
    absent = streambank("repair", "b000003", "--from", replica)
    assert absent.code == 3 and "streambank replicate" in absent.err
    assert streambank("repair", "--from", tmp_path / "nowhere").code == 3


def test_status(tmp_path: Path, repository: Path) -> None:
    replica = tmp_path / "replica"
    succeed("replicate", "b000002", "--to", replica)
    succeed("verify", "--all", "-r", replica, "--level", "full")
    said = succeed("status", "--replica", replica).out
    assert "1 not here" in said and "a month" not in said and "none" in said
    prices = tmp_path / "prices.toml"
    prices.write_text(f'currency = "CHF "\n[per_gb_month]\n"file://{replica}" = 1000000\n')
    document = succeed("status", "--replica", replica, "--cost", "--prices", prices, "--json").document
    one, two = document["places"]
    assert one["cost_month"] < 0.01 < two["cost_month"]
    assert two["jobs"][0]["newest_verified"]["batch"] == 2
    costs = succeed("status", "--replica", replica, "--cost", "--prices", prices).out
    assert "a month" in costs and "CHF " in costs
    gone = streambank("status", "--replica", tmp_path / "nowhere")
    assert gone.code == 1 and "cannot be read: There is no repository" in gone.out
    assert "orders" in gone.out
    assert streambank("status", "--prices", prices).code == 2
    empty = tmp_path / "empty"
    Repository.open(open_store(empty), create=True)
    assert "no savepoints" in succeed("status", "-r", empty).out
    Repository.open(open_store("memory://priceless"), create=True)
    assert "no price for this storage" in succeed("status", "-r", "memory://priceless", "--cost").out


def test_sampled_verification(tmp_path: Path, repository: Path) -> None:
    said = succeed("verify", "--all", "--sample", "50%").out
    assert "2 runs like this cover everything" in said and "ok (sampled: " in said
    assert all(each["hashed_since"] is None for each in succeed("list", "--json").document)
    found = succeed("verify", "--all", "--sample", "50%", "--json").document
    assert found["sample"]["from"] == 0.5 and found["sample"]["runs"] == 2
    assert all(each["hashed_since"] for each in succeed("list", "--json").document)
    assert "all since " in succeed("list").out
    damage(repository, "packs")
    codes = [streambank("verify", "--all", "--sample", "50%").code for _ in range(2)]
    assert sorted(codes) in ([0, 1], [1, 1])
    assert "DAMAGED" in succeed("list").out
    for wrong in (["b000002"], ["--all", "--level", "full"]):
        assert streambank("verify", *wrong, "--sample", "50%").code == 2
    assert streambank("verify", "--all", "--sample", "half").code == 2
    (repository / "sampling" / "repository.json").write_text("{}")
    anew = streambank("verify", "--all", "--sample", "10%", "--json")
    assert "sampling-restarted" in {each["code"] for each in anew.document["findings"]}
