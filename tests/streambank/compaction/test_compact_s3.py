"""A checkpoint on a real S3 server: compacted, brought back, compacted again, and for good."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.checkpoint.reader import CheckpointReader
from streambank.compaction import quiet_check
from streambank.storage import Store, open_store
from tests.support.checkpoint.recorded import unpack
from tests.support.checkpoint.with_garbage import closure
from tests.support.cli import streambank, succeed
from tests.support.jobs.declared import write_jobs
from tests.support.storage.contents import contents
from tests.support.storage.s3_servers import S3Server, moto_server, seaweedfs, versitygw

pytestmark = pytest.mark.storm

__all__ = ["moto_server", "seaweedfs", "versitygw"]  # fixtures

CELLS = [
    "4.3.0/hdfs-window",
    pytest.param("4.3.0/rocksdb-window", marks=pytest.mark.storm),
    pytest.param("4.3.0/ids-changelog-window", marks=pytest.mark.storm),
]
UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"


@pytest.fixture(
    params=[
        "seaweedfs",
        *(pytest.param(name, marks=pytest.mark.storm) for name in ("moto_server", "versitygw")),
    ],
    name="server",
)
def s3_server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    monkeypatch.setattr(quiet_check, "WATCH_S", 0.0)
    server: S3Server = request.getfixturevalue(request.param)
    return server.use(monkeypatch)


def upload(cell: str, folder: Path, store: Store) -> None:
    """What Spark wrote, with two writes that it never finished."""
    local = open_store(unpack(cell, folder) / "checkpoint")
    for info in local.list():
        if not Path(info.path).name.endswith(".crc") or not Path(info.path).name.startswith("."):
            store.write(info.path, local.read(info.path))
    newest = CheckpointReader(local).last_committed()
    store.write(f"offsets/.{newest}.{UUID}.tmp", b"v1\n{")
    store.write(f"state/0/0/.{newest}.zip.{UUID}.TID42.tmp", b"PK")


def sizes(store: Store) -> dict[str, int]:
    return {info.path: info.size_bytes for info in store.list()}


@pytest.mark.parametrize("cell", CELLS)
def test_there_and_back_and_there_and_for_good(server: S3Server, cell: str, tmp_path: Path) -> None:
    place = server.location()
    store = open_store(place)
    upload(cell, tmp_path, store)
    before, needed = contents(store), closure(store)
    stopped = (place, "--stopped", "--quiet", "0s", "--json")

    young = streambank("compact", place, "--stopped", "--json")
    assert (young.code, young.document["error"]) == (8, "signs-of-life")
    planned = succeed("compact", *stopped, "--dry-run").document
    assert sizes(store) == {path: len(data) for path, data in before.items()}
    assert {"temporary", "superseded"} <= {one["reason"] for one in planned["reasons"]}

    done = succeed("compact", *stopped).document
    assert done["quarantine"].startswith(f"{place}.quarantine-20")
    assert [one["path"] for one in done["moved"]] == [one["path"] for one in planned["moved"]]
    kept = sizes(store)
    assert closure(store) == needed and len(kept) == done["kept_files"]
    assert not {one["path"] for one in done["moved"]} & kept.keys()

    back = succeed("compact", *stopped, "--undo", done["quarantine"]).document
    assert (back["files"], back["bytes"]) == (done["files"], done["bytes"])
    assert contents(store) == before and not sizes(open_store(done["quarantine"]))

    quarantine = server.location("s3a")
    again = succeed("compact", *stopped, "--quarantine", quarantine).document
    assert (again["files"], again["bytes"]) == (done["files"], done["bytes"])
    gone = succeed("compact", "--purge", again["quarantine"], "--json").document
    assert (gone["files"], gone["bytes"]) == (done["files"], done["bytes"])
    assert not sizes(open_store(quarantine)) and sizes(store) == kept
    assert closure(store) == needed


def test_a_declared_job_on_s3(server: S3Server, tmp_path: Path) -> None:
    place, records = server.location(), server.location()
    upload("4.3.0/hdfs-window", tmp_path, open_store(place))
    jobs = write_jobs(tmp_path)
    jobs.write_text(
        f'repository = "{records}"\n\n[jobs.flights]\napplication = "app.py"\ncheckpoint = "{place}"\n'
    )
    before = contents(open_store(place))
    job = ("compact", "--job", "flights", "--jobs", jobs, "--json")
    done = succeed(*job).document
    assert done["mode"] == "stopped" and done["files"]
    assert succeed(*job, "--undo", done["quarantine"]).document["files"] == done["files"]
    assert contents(open_store(place)) == before
    done = succeed(*job).document
    assert succeed(*job, "--purge", done["quarantine"]).document["files"] == done["files"]
    assert succeed(*job, "--purge", done["quarantine"]).document["already_done"]
