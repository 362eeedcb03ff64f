"""`streambank reindex`: whatever became of the index, the packs have it all."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.repository.repository import Repository
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.cli import streambank, succeed

WELL = {"ok": True, "repaired_packs": [], "damaged_packs": [], "lost_packs": []}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two savepoints, so two packs and two index files."""
    monkeypatch.setenv("STREAMBANK_REPOSITORY", str(tmp_path / "repository"))
    live = LiveCheckpoint(open_store(tmp_path / "checkpoint")).run(3)
    for _ in range(2):
        succeed("take", tmp_path / "checkpoint", "--job", "orders")
        live.run(2)
    return tmp_path / "repository"


def files(repository: Path, folder: str) -> list[Path]:
    return sorted(path for path in (repository / folder).rglob("*") if path.is_file())


def flip(path: Path, where: int) -> None:
    data = bytearray(path.read_bytes())
    data[where] ^= 1
    path.write_bytes(data)


def test_where_all_is_well_nothing_is_written(repository: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in files(repository, "")}
    found = succeed("reindex", "--json").document
    assert found == WELL | {
        "changed": False,
        "packs": 2,
        "objects": found["objects"],
        "added_packs": 0,
        "damaged_index_files": [],
    }
    assert "The index is in order: 2 packs" in succeed("reindex").out
    assert {path: path.stat().st_mtime_ns for path in files(repository, "")} == before


def test_a_lost_index(tmp_path: Path, repository: Path) -> None:
    for path in files(repository, "index"):
        path.unlink()
    refused = streambank("restore", "b000004", "--into", tmp_path / "back")
    assert refused.code == 5 and "streambank reindex" in refused.err
    (finding, *_) = streambank("verify", "b000004", "--json").document["findings"]
    assert finding["code"] == "index-incomplete" and "streambank reindex" in finding["hint"]

    found = succeed("reindex", "--json").document
    assert (found["changed"], found["packs"], found["added_packs"]) == (True, 2, 2)
    assert succeed("verify", "--all", "--level", "full", "--json").document["ok"]
    succeed("restore", "b000004", "--into", tmp_path / "back", "--sink", "accept")
    assert not succeed("reindex", "--json").document["changed"]


def test_one_lost_index_file_of_two(tmp_path: Path, repository: Path) -> None:
    files(repository, "index")[0].unlink()
    assert succeed("reindex", "--json").document["added_packs"] == 1
    assert succeed("verify", "--all", "--json").document["ok"]


def test_a_damaged_index(tmp_path: Path, repository: Path) -> None:
    damaged = files(repository, "index")
    for path in damaged:
        flip(path, 60)
    refused = streambank("restore", "b000004", "--into", tmp_path / "back")
    assert refused.code == 5 and "streambank reindex" in refused.err

    found = succeed("reindex", "--json").document
    assert [each["error"] for each in found["damaged_index_files"]] == ["index-damaged"] * 2
    assert found | WELL == found and found["added_packs"] == 2
    assert not set(damaged) & set(files(repository, "index"))
    assert succeed("verify", "--all", "--level", "full", "--json").document["ok"]
    succeed("restore", "b000004", "--into", tmp_path / "back", "--sink", "accept")


def test_a_damaged_table_of_a_pack(repository: Path) -> None:
    packs = files(repository, "packs")
    for path in packs:
        flip(path, -1)
    (finding, *_) = streambank("verify", "b000004", "--json").document["findings"]
    assert finding["code"] == "pack-damaged" and "streambank reindex" in finding["hint"]
    found = succeed("reindex", "--json").document
    assert found["repaired_packs"] == [path.relative_to(repository).as_posix() for path in packs]
    assert not found["changed"]
    assert succeed("verify", "--all", "--level", "full", "--json").document["ok"]
    flip(packs[0], -1)
    assert "repaired: the table of contents of packs/" in succeed("reindex").out


def test_a_pack_that_is_cut_off_keeps_what_the_index_knows(tmp_path: Path, repository: Path) -> None:
    for path in files(repository, "packs"):
        path.write_bytes(path.read_bytes()[:-1])
    answer = streambank("reindex", "--json")
    assert answer.code == 1
    assert [each["error"] for each in answer.document["damaged_packs"]] == ["pack-damaged"] * 2
    assert not answer.document["changed"]
    opened = Repository.open(open_store(repository))
    manifest = opened.load(*opened.find("b000004"))
    assert len(dict(opened.objects.read_many(manifest.objects()))) == len(manifest.objects())
    assert all(isinstance(data, bytes) for _, data in opened.objects.read_many(manifest.objects()))


def test_a_pack_that_is_gone_is_named_and_forgotten(repository: Path) -> None:
    lost = files(repository, "packs")[0]
    lost.unlink()
    answer = streambank("reindex", "--json")
    assert answer.code == 1
    assert answer.document["lost_packs"] == [lost.relative_to(repository).as_posix()]
    assert streambank("verify", "--all").code == 1
    assert "verify --all" not in succeed("reindex").out


def test_an_index_of_a_newer_version_is_left_alone(repository: Path) -> None:
    store = open_store(repository)
    opened = Repository.open(store)
    data = b'{"index": 2, "digest": "blake3"}\n'
    with opened.objects.writer() as writer:
        digits = writer.add(data, len(data)).partition(":")[2]
    store.write(f"index/{digits}.jsonl", data)
    before = files(repository, "index")
    answer = streambank("reindex")
    assert answer.code == 4 and "upgrade" in answer.err
    assert files(repository, "index") == before


def test_beside_a_take(tmp_path: Path, repository: Path) -> None:
    """A pack that a running take has stored and not indexed yet is indexed; the take goes on."""
    opened = Repository.open(open_store(repository))
    with opened.objects.writer() as writer:
        kept = [writer.add(b"one", 3)]
        writer.flush()
        files(repository, "index")[0].unlink()
        assert succeed("reindex", "--json").document["changed"]
        kept.append(writer.add(b"two", 3))
    fresh = Repository.open(open_store(repository))
    assert [fresh.objects.read(digest) for digest in kept] == [b"one", b"two"]
    assert succeed("verify", "--all", "--level", "full", "--json").document["ok"]
    assert not succeed("reindex", "--json").document["changed"]
