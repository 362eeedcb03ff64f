"""Nothing of ours lies where a query reads or writes files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from streambank.core.errors import InputError
from streambank.doctor.checks.locations import check_apart_from_data
from streambank.inputs.folders import DataFolders, check_new_repository, folders_of, folders_of_live
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore, restore
from streambank.storage import normalize_location, open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.simulated_job import SimulatedJob
from tests.support.refuses import refuses


def folders(base: Path, *files: str, own: str = "ck") -> DataFolders:
    def read() -> Iterator[str]:
        return iter([f"file://{quote(str(base / one), safe='/=')}" for one in files])

    return folders_of(normalize_location(base / own), [[read()]])


@pytest.mark.parametrize(
    ("files", "refused"),
    [
        (["in/a.json"], ["in/ck2", "in/deep/ck2", "in"]),
        (["in/day=1/hour=2/a.json"], ["in/ck2", "in/day=3/ck"]),
        (["in/a/1.json", "in/b/2.json"], ["in/a/x", "in/b"]),
        (["o ther/ü.json"], ["o ther/ck2"]),
    ],
)
def test_at_or_below_what_was_read(tmp_path: Path, files: list[str], refused: list[str]) -> None:
    found = folders(tmp_path, *files)
    for place in refused:
        refusal = found.refusal(normalize_location(tmp_path / place), "target")
        assert refusal is not None and refusal.code == "inside-input", place
    for place in ("ck2", "in2/ck", "in/_ck", "in/.ck", "in/day=1/_ck"):
        assert found.refusal(normalize_location(tmp_path / place), "target") is None, place


def test_other_spellings(tmp_path: Path) -> None:
    found = folders(tmp_path, "in/a.json")
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "in")
    for place in (f"file:{tmp_path}/in/ck", f"{tmp_path}/x/../in/ck", str(tmp_path / "link/ck")):
        assert found.refusal(place, "target") is not None
    s3 = folders_of("s3://bucket/ck", [[iter(["s3a://bucket/in/a.json"])]], ["s3a://bucket/out"])
    assert s3.refusal("s3://bucket/in/ck", "target") is not None
    assert s3.refusal("s3://bucket/out/ck", "target") is not None
    assert s3.refusal("s3://bucket/ck2", "target") is None
    assert s3.refusal("s3://other/in/ck", "target") is None


def test_a_folder_that_is_read_by_a_pattern_may_hold_the_checkpoint(tmp_path: Path) -> None:
    """Of `readStream.json("data/*.json")` with `data/ck` no file of the checkpoint is ever read."""
    place = normalize_location(tmp_path / "data/ck2")
    assert folders(tmp_path, "data/a.json", own="data/ck").refusal(place, "target") is None
    assert folders(tmp_path, "data/a.json", "data/ck/offsets/0", own="data/ck").refusal(place, "target")


def test_what_holds_the_folders_that_were_read_is_a_doubt(tmp_path: Path) -> None:
    """Of `data/*/in` nothing else in `data` is read; of a source with `recursiveFileLookup` all of it is."""
    found = folders(tmp_path, "data/a/in/1.json", "data/b/in/2.json")
    place = normalize_location(tmp_path / "data/restored")
    assert found.refusal(place, "target") is None
    assert "holds all folders that the query has read" in str(found.doubt(place, "target"))
    assert found.doubt(normalize_location(tmp_path / "data/_restored"), "target") is None
    assert found.doubt(normalize_location(tmp_path / "elsewhere"), "target") is None
    (finding,) = check_apart_from_data(found, {"repository": place})
    assert (finding.code, finding.severity) == ("inside-input", "warning")
    own = folders(tmp_path, "data/a/in/1.json", "data/ck/offsets/0", own="data/ck")
    assert own.refusal(place, "target") is not None, "it has read its own checkpoint there"


def reading(shop: SimulatedJob, *folders: Path) -> None:
    lines = [{"path": f"file://{one}/a.json", "timestamp": 1, "batchId": 0} for one in folders]
    shop.checkpoint.write("sources/0/0", "\n".join(["v1", *map(json.dumps, lines)]).encode())


def test_a_new_repository(tmp_path: Path) -> None:
    shop = SimulatedJob(tmp_path).run(2)
    reading(shop, tmp_path / "in")
    for place, code in (
        ("in/repo", "inside-input"),
        ("out/repo", "inside-output"),
        ("ck/r", "inside-checkpoint"),
    ):
        with refuses(InputError, code):
            check_new_repository(open_store(tmp_path / place), shop.checkpoint, [shop.sink_store.uri])
    check_new_repository(open_store(tmp_path / "elsewhere"), shop.checkpoint, [shop.sink_store.uri])
    assert f"file://{tmp_path}/in" in folders_of_live(shop.checkpoint).inputs


def test_a_restore(tmp_path: Path) -> None:
    shop = SimulatedJob(tmp_path).run(2)
    taken = shop.take()
    with refuses(InputError, "inside-output"):
        shop.restore(taken.savepoint, "out/ck2")
    assert not (tmp_path / "out/ck2").exists() and not (tmp_path / "out/ck2.restored.json").exists()
    # where the checkpoint's files say that they were
    plan = plan_restore(RestoreRequest(shop.repository, taken.savepoint, into=open_store("/in/ck2")))
    assert [one.code for one in plan.refusals] == ["inside-input"]
    shop.restore(taken.savepoint, "outside")


def test_an_output_that_the_savepoint_does_not_name(tmp_path: Path) -> None:
    shop = SimulatedJob(tmp_path).run(2)
    shop.sink = None
    taken, into = shop.take(), open_store(tmp_path / "out/ck2")
    asked = RestoreRequest(shop.repository, taken.savepoint, into=into, file_sinks=(shop.sink_store.uri,))
    assert "inside-output" in {one.code for one in plan_restore(asked).refusals}


def test_a_restore_beside_folders_that_were_read(tmp_path: Path) -> None:
    shop = SimulatedJob(tmp_path).run(1)
    reading(shop, tmp_path / "data/a/in", tmp_path / "data/b/in")
    report = shop.restore(shop.take().savepoint, "data/restored")
    assert any("data, which holds all folders" in one for one in report.warnings)


@pytest.mark.parametrize("folder", ["out", "in"])
def test_a_checkpoint_that_lies_there_already_is_restored_beside(tmp_path: Path, folder: str) -> None:
    shop = SimulatedJob(tmp_path)
    shop.checkpoint = shop.open(f"{folder}/checkpoint")
    shop.live = LiveCheckpoint(shop.checkpoint)
    shop.run(2)
    if folder == "in":
        reading(shop, tmp_path / "in", tmp_path / "in/checkpoint")
    taken = shop.take(shop.checkpoint)
    report = restore(RestoreRequest(shop.repository, taken.savepoint, generation=shop.control()))
    assert report.layout.target == f"{shop.base}/{folder}/checkpoint.g0002"
    assert any(one.endswith("So does the checkpoint that there is.") for one in report.warnings)


def test_doctor(tmp_path: Path) -> None:
    shop = SimulatedJob(tmp_path).run(2)
    shop.take()
    found = folders_of_live(shop.checkpoint, [shop.sink_store.uri])
    places = {"repository": shop.repository_store.uri, "checkpoint": shop.checkpoint.uri}
    assert list(check_apart_from_data(found, places)) == []
    reading(shop, tmp_path)
    shop.checkpoint.write(
        "sources/0/1", shop.checkpoint.read("sources/0/0").replace(b"/a.json", b"/ck/metadata")
    )
    found = folders_of_live(shop.checkpoint, [shop.sink_store.uri])
    assert [one.code for one in check_apart_from_data(found, places)] == ["inside-input", "inside-input"]
    (output,) = check_apart_from_data(found, {"records": f"{shop.sink_store.uri}/control"})
    assert (output.code, output.severity) == ("inside-input", "error")
