"""Which disks a job works on, and what they have left: a start on a full one is refused before it begins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streambank.core.errors import StorageError
from streambank.core.units import utc_now
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.declaration.objectives import PROMISES
from streambank.doctor.checks.locations import check_space
from streambank.driver.launchers.disks import TEMPORARY, Disk, DiskLocation, disks_of, places_of
from streambank.sla.history.point import History
from streambank.sla.judge.facts import Facts
from streambank.sla.judge.judge import judge
from streambank.storage.local.space import FULL_BYTES, Space, space_at
from tests.support.jobs.simulated_job import BY
from tests.support.permissions import as_ordinary_user, open_folder
from tests.support.storage.small_disk import small_disk

ROOMY = Space("/data", 1, 50 * 10**9, 100 * 10**9, 1000, read_only=False)


def disk(space: Space, *what: str) -> Disk:
    return Disk(space, tuple(DiskLocation(one, f"/data/{one}") for one in what or ("checkpoint",)))


def test_a_place_that_is_not_there_yet_is_on_the_disk_on_which_it_would_be_made(tmp_path: Path) -> None:
    places = [
        DiskLocation("checkpoint", str(tmp_path / "a/b")),
        DiskLocation("repository", f"file://{tmp_path}"),
    ]
    (found,) = disks_of([*places, DiskLocation("output", "s3://bucket/out")])
    assert found.places == tuple(places) and found.space.device == tmp_path.stat().st_dev
    assert found.space.free_bytes > 0 and found.space.refusal("It") is None
    assert found.holds == f"the checkpoint {tmp_path}/a/b and the repository {tmp_path}"


@pytest.mark.parametrize(
    ("space", "code", "says"),
    [
        (replace(ROOMY, free_bytes=FULL_BYTES - 1), "disk-full", "that is full: 1,048,575 bytes"),
        (replace(ROOMY, free_files=0), "disk-full", "no more files (inodes)"),
        (replace(ROOMY, read_only=True), "read-only", "that is read-only"),
    ],
)
def test_what_is_wrong_with_a_disk_is_said_by_name(space: Space, code: str, says: str) -> None:
    refusal = space.refusal("The checkpoint /data/ck")
    assert isinstance(refusal, StorageError) and (refusal.code, says in refusal.message) == (code, True)
    assert refusal.message.startswith("The checkpoint /data/ck is on the disk mounted at /data, and ")
    assert space.usable_bytes < FULL_BYTES


def level(*disks: Disk) -> tuple[str, float | None, str]:
    verdicts = judge("j", History("main"), None, utc_now(), Facts({"free_space": disks}))
    (found,) = [one for one in verdicts if one.objective == "free_space"]
    return found.level, found.value, found.why


def test_free_space_is_judged_by_the_disk_that_has_the_least() -> None:
    assert level(disk(ROOMY))[0] == "ok"
    little, none = replace(ROOMY, free_bytes=5 * 10**8), replace(ROOMY, free_bytes=10**7)
    assert level(disk(ROOMY), disk(little))[:2] == ("warn", 5e8)
    assert level(disk(little), disk(none))[:2] == ("breach", 1e7)
    assert level(disk(replace(ROOMY, free_files=0)))[:2] == ("breach", 0.0)
    assert level()[0] == "ok", "there is none in an object store"


def codes(*disks: Disk, savepoint_bytes: int = 0, grows_by: float = 0.0) -> list[tuple[str, str]]:
    return [(one.code, one.severity) for one in check_space(disks, savepoint_bytes, grows_by)]


def test_doctor_names_a_disk_that_is_full_or_will_be() -> None:
    assert codes(disk(ROOMY)) == []
    assert codes(disk(replace(ROOMY, free_bytes=0))) == [("no-free-space", "error")]
    assert codes(disk(replace(ROOMY, read_only=True))) == [("no-free-space", "error")]
    assert codes(disk(replace(ROOMY, free_bytes=5 * 10**8))) == [("little-free-space", "warning")]
    warned = [("little-free-space", "warning")]
    assert codes(disk(ROOMY, "repository"), savepoint_bytes=60 * 10**9) == warned
    assert codes(disk(ROOMY, "checkpoint"), savepoint_bytes=60 * 10**9) == []
    assert codes(disk(ROOMY, "checkpoint"), grows_by=3e9) == warned
    assert codes(disk(ROOMY, "checkpoint"), grows_by=1e9) == []


def test_a_small_disk_is_not_full_for_that() -> None:
    small = disk(replace(ROOMY, free_bytes=60 << 20, total_bytes=64 << 20), TEMPORARY)
    assert codes(small) == [] and level(disk(ROOMY), small)[0] == "ok"
    full = disk(replace(ROOMY, free_bytes=0, total_bytes=64 << 20), TEMPORARY)
    assert codes(full) == [("no-free-space", "error")] and level(disk(ROOMY), full)[0] == "breach"


def test_the_effect_is_that_of_what_lies_there() -> None:
    def effect(what: str, *, needed: bool) -> str:
        places = (DiskLocation(what, "/data/x", needed=needed),)
        (found,) = check_space([Disk(replace(ROOMY, read_only=True), places)], 0)
        return found.effect

    assert effect("repository", needed=False) == "On a full disk savepoints fail."
    assert "no driver is started" in effect("checkpoint", needed=True)


def test_what_is_many_is_one_folder_in_a_sentence() -> None:
    assert str(DiskLocation("records", "/data/control")) == "the folder of records /data/control"


def test_a_file_system_that_does_not_say_how_large_it_is_is_not_full() -> None:
    space = space_at("/proc")
    assert (space.total_bytes, space.refusal("It")) == (0, None)
    assert disks_of([DiskLocation("checkpoint", "/proc")]) == ()


class TestOutput:
    """A job whose last driver wrote to one disk."""

    @pytest.fixture
    def job(self, tmp_path: Path) -> Job:
        (tmp_path / "app.py").write_text("")
        (tmp_path / "jobs.toml").write_text(
            f'repository = "{tmp_path}/repository"\n[jobs.disk]\napplication = "app.py"\n'
            f'checkpoint = "{tmp_path}/ck"\n'
        )
        job = load_jobs(tmp_path / "jobs.toml").job("disk")
        told = {"query_id": "q", "sink_path": f"file://{tmp_path}/old", "generation": 1}
        job.records().record_query(None, told)
        return job

    def places(self, job: Job) -> dict[str, DiskLocation]:
        return {one.what: one for one in places_of(job, job.records(), "main")}

    def test_it_may_refuse_a_start_of_the_generation_that_wrote_it(self, job: Job, tmp_path: Path) -> None:
        job.records().generations().ensure_first(job.checkpoint, by=BY)
        assert self.places(job)["output"] == DiskLocation("output", f"file://{tmp_path}/old")

    def test_a_generation_that_writes_elsewhere_has_left_it(self, job: Job, tmp_path: Path) -> None:
        generations = job.records().generations()
        first = generations.ensure_first(job.checkpoint, by=BY)
        new = {f"file://{tmp_path}/old": f"file://{tmp_path}/new"}
        second = replace(first, number=2, location=f"{first.location}.2", new_sinks=new)
        generations.records.create(2, second.to_dict())
        assert self.places(job)["output"] == DiskLocation("output", f"file://{tmp_path}/new", needed=False)

    def test_local_state_is_where_the_driver_is_told(self, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SPARK_LOCAL_DIRS", "/of/this/process")
        passed = replace(job, env=("SPARK_LOCAL_DIRS",))
        assert self.places(passed)["local state"].location == "/of/this/process"


def test_a_place_that_may_not_be_seen_is_on_the_disk_of_what_may() -> None:
    with open_folder() as folder:
        private = folder / "private"
        (private / "ck").mkdir(parents=True)
        private.chmod(0o000)
        place = DiskLocation("checkpoint", str(private / "ck"))
        with as_ordinary_user():
            assert not place.is_there and len(disks_of([place])) == 1
        private.chmod(0o755)


def test_it_is_judged_by_default() -> None:
    promise = PROMISES["free_space"]
    assert promise.below and promise.warn and promise.breach


@pytest.mark.storm
def test_a_disk_that_is_really_full_or_read_only(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 8 << 20, files=64) as small:
        assert space_at(small.folder).refusal("It") is None
        small.fill()
        assert (space_at(small.folder / "x").refusal("It") or StorageError("")).code == "disk-full"
        small.free()
        small.use_up_files()
        assert "inodes" in (space_at(small.folder).refusal("It") or StorageError("")).message
        small.free()
        small.remount("ro")
        assert (space_at(small.folder).refusal("It") or StorageError("")).code == "read-only"
        small.remount("rw")
