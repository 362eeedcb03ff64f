"""Work that is done elsewhere is the same work: the same digests, however often and wherever it is done."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import ConflictError, InputError, IntegrityError, RefusedError, StorageError
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.repository.manifest import Manifest
from streambank.repository.objects.objects import Objects
from streambank.repository.objects.packs import SMALL_BYTES
from streambank.repository.repository import Repository
from streambank.repository.trash import condemn
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from streambank.storage import open_store
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Store
from streambank.work import copy, place, plan_lines
from streambank.work.check import ObjectsTask
from streambank.work.copy import CopyTask
from streambank.work.executor import BySize, Executor, Pace, Threads
from streambank.work.place import place_large
from streambank.work.plan_lines import cut, read_error, run_portion
from streambank.work.target import METADATA
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.simulated_job import JOB, SimulatedJob, quick_store
from tests.support.portion_executor import PortionExecutor
from tests.support.refuses import refuses
from tests.support.repository.repositories import save
from tests.support.storage.contents import contents

LARGE_STATE = 400_000  # snapshots are four times as large: objects of their own


@pytest.fixture(autouse=True)
def quick_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Durability is not what these tests are about."""
    for module in (copy, place):
        monkeypatch.setattr(module, "open_store", quick_store)


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several portions, though there is little."""
    monkeypatch.setattr(plan_lines, "MIN_PORTION_BYTES", 2_000_000)
    monkeypatch.setattr(plan_lines, "MIN_PORTION_FILES", 5)


@pytest.fixture
def shop(tmp_path: Path) -> SimulatedJob:
    return SimulatedJob(tmp_path, state_bytes=LARGE_STATE).run(12)


def content(manifest: Manifest) -> dict[str, tuple[int, str, str]]:
    """What a savepoint holds, whoever took it."""
    return {entry.path: (entry.size_bytes, entry.digest, entry.role) for entry in manifest.files}


def second_repository(shop: SimulatedJob) -> Repository:
    return Repository.open(shop.open("second"), create=True)


class TestTakingElsewhere:
    @pytest.mark.parametrize(("times", "at_once"), [(1, 1), (2, 1), (3, 4)])
    def test_the_savepoint_is_the_same(
        self, shop: SimulatedJob, tmp_path: Path, times: int, at_once: int
    ) -> None:
        here = shop.take()
        repository = second_repository(shop)
        machines = PortionExecutor(tmp_path, times=times, at_once=at_once)
        there = take(TakeRequest(shop.checkpoint, repository, JOB), pace=Pace(executor=machines))
        assert len(machines.plans[0]) > 3, "a plan of one portion shows little"
        manifest = repository.load(JOB, there.savepoint)
        assert content(manifest) == content(shop.repository.load(JOB, here.savepoint))
        assert there.savepoint == here.savepoint
        assert there.new_files == there.files
        report = verify(Repository.open(repository.store), JOB, there.savepoint, "full")
        assert report.ok, report.findings
        if times == 1:
            assert there.new_bytes == there.bytes

    def test_sinks_are_read_here(self, shop: SimulatedJob, tmp_path: Path) -> None:
        machines = PortionExecutor(tmp_path)
        result = shop.take(pace=Pace(executor=machines))
        manifest = shop.repository.load(JOB, result.savepoint)
        assert list(manifest.sink_files())
        (plan,) = machines.plans
        origins = {task["origin"] for line in plan[1:] for _, task in json.loads(line)["tasks"]}
        assert origins == {-1}
        assert verify(shop.repository, JOB, result.savepoint, "full").ok

    def test_what_an_attempt_left_that_was_killed_is_no_part_of_anything(
        self, shop: SimulatedJob, tmp_path: Path
    ) -> None:
        """Its packs are there and no index names them; the next attempt does not count on them."""
        killed: list[str] = []

        def first_dies(header: str, portion: str) -> list[str]:
            if portion not in killed:
                killed.append(portion)
                before = set(Repository.open(repository.store).objects.index.unindexed_packs())
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr("streambank.repository.objects.write.ObjectWriter._index", _die)
                    with pytest.raises(KilledError):
                        run_portion(header, portion)
                orphans.append(Repository.open(repository.store).objects.index.unindexed_packs() - before)
            return run_portion(header, portion)

        repository = second_repository(shop)
        orphans: list[set[str]] = []
        result = take(
            TakeRequest(shop.checkpoint, repository, JOB),
            pace=Pace(executor=PortionExecutor(tmp_path, attempt=first_dies)),
        )
        assert killed and any(orphans)
        report = verify(Repository.open(repository.store), JOB, result.savepoint, "full")
        assert report.ok, report.findings

    def test_a_file_that_went_away_makes_a_new_plan_and_what_arrived_is_kept(
        self, shop: SimulatedJob, tmp_path: Path
    ) -> None:
        gone: list[str] = []

        def purged_meanwhile(header: str, portion: str) -> list[str]:
            if not gone:
                shop.run(8)
                victim = "state/0/1/10.snapshot"
                shop.checkpoint.delete(victim)
                gone.append(victim)
            return run_portion(header, portion)

        machines = PortionExecutor(tmp_path, attempt=purged_meanwhile)
        result = take(TakeRequest(shop.checkpoint, shop.repository, JOB), pace=Pace(executor=machines))
        assert gone and result.replans == 1
        assert result.batch == 19
        planned = [
            {task["path"] for line in plan[1:] for _, task in json.loads(line)["tasks"]}
            for plan in machines.plans
        ]
        assert "state/0/0/10.snapshot" in planned[0] - planned[1], "it had arrived, and is planned again"
        assert verify(shop.repository, JOB, result.savepoint, "full").ok

    @pytest.mark.parametrize("before", [True, False])
    def test_what_a_sweep_condemns_is_stored_again_by_whoever_does_the_work(
        self, shop: SimulatedJob, tmp_path: Path, before: bool
    ) -> None:
        condemned: set[str] = set()

        def condemn_all() -> None:
            found = {info.path for folder in ("objects", "packs") for info in store.list(folder)}
            condemn(store, "blake3", sorted(found), {})
            condemned.update(found)

        def swept_meanwhile(header: str, portion: str) -> list[str]:
            lines = run_portion(header, portion)
            if not condemned:
                condemn_all()
            return lines

        store = shop.repository_store
        shop.take()
        shop.run(2)
        if before:
            condemn_all()
        result = shop.take(pace=Pace(executor=PortionExecutor(tmp_path, attempt=swept_meanwhile)))
        assert condemned and result.replans == int(not before)
        for key in condemned:
            store.delete(key)
        report = verify(Repository.open(store), JOB, result.savepoint, "full")
        assert report.restorable and report.files == result.files

    def test_a_machine_that_sees_another_checkpoint_refuses(self, shop: SimulatedJob, tmp_path: Path) -> None:
        def elsewhere(header: str, portion: str) -> list[str]:
            other = LiveCheckpoint(shop.open("other")).run(2)
            return run_portion(json.dumps({**json.loads(header), "source": other.store.uri}), portion)

        with refuses(RefusedError, "paths-not-shared"):
            shop.take(pace=Pace(executor=PortionExecutor(tmp_path, attempt=elsewhere)))
        assert list(shop.repository.manifests()) == []

    @pytest.mark.parametrize("field", ["source", "repository"])
    def test_a_machine_that_sees_nothing_there_refuses(
        self, shop: SimulatedJob, tmp_path: Path, field: str
    ) -> None:
        def elsewhere(header: str, portion: str) -> list[str]:
            return run_portion(
                json.dumps({**json.loads(header), field: (tmp_path / "none").as_uri()}), portion
            )

        with refuses(RefusedError, "paths-not-shared"):
            shop.take(pace=Pace(executor=PortionExecutor(tmp_path, attempt=elsewhere)))

    def test_what_is_in_the_memory_of_this_process_stays_here(self, tmp_path: Path) -> None:
        shop = SimulatedJob(f"memory://{tmp_path.name}").run(3)
        with refuses(InputError, "not-elsewhere"):
            shop.take(pace=Pace(executor=PortionExecutor(tmp_path)))


class TestVerifyingElsewhere:
    def test_a_whole_savepoint(self, shop: SimulatedJob, tmp_path: Path) -> None:
        savepoint = shop.take().savepoint
        machines = PortionExecutor(tmp_path, times=2)
        report = verify(shop.repository, JOB, savepoint, "full", pace=Pace(executor=machines))
        assert report.ok and machines.plans

    def test_damage_is_found_wherever_it_is_looked_for(self, shop: SimulatedJob, tmp_path: Path) -> None:
        savepoint = shop.take().savepoint
        for folder in ("objects", "packs"):
            key = next(info.path for info in shop.repository_store.list(folder))
            data = bytearray(shop.repository_store.read(key))
            data[7] ^= 1
            shop.repository_store.write(key, bytes(data))
        here = verify(Repository.open(shop.repository_store), JOB, savepoint, "full", record=False)
        there = verify(
            Repository.open(shop.repository_store),
            JOB,
            savepoint,
            "full",
            record=False,
            pace=Pace(executor=PortionExecutor(tmp_path)),
        )
        assert len(here.findings) >= 2
        assert there.findings == here.findings


class TestRestoringElsewhere:
    @pytest.mark.parametrize(("times", "at_once"), [(1, 1), (2, 3)])
    def test_the_checkpoint_is_the_same(
        self, shop: SimulatedJob, tmp_path: Path, times: int, at_once: int
    ) -> None:
        savepoint = shop.take().savepoint
        here = shop.restore(savepoint, "here", sink="accept")
        machines = PortionExecutor(tmp_path, times=times, at_once=at_once)
        there = shop.restore(savepoint, "there", sink="accept", pace=Pace(executor=machines))
        assert machines.plans
        assert contents(shop.open("there")) == contents(shop.open("here"))
        assert (there.layout.files, there.layout.bytes) == (here.layout.files, here.layout.bytes)

    def test_a_portion_that_is_done_twice_links_its_files_once(
        self, shop: SimulatedJob, tmp_path: Path
    ) -> None:
        """A machine that is lost before it reports leaves its links behind."""
        savepoint = shop.take().savepoint

        def again(header: str, portion: str) -> list[str]:
            run_portion(header, portion)
            return run_portion(header, portion)

        machines = PortionExecutor(tmp_path, attempt=again)
        report = shop.restore(savepoint, "there", sink="accept", link=True, pace=Pace(executor=machines))
        assert report.layout.linked_files > 0
        shop.restore(savepoint, "here", sink="accept")
        assert contents(shop.open("there")) == contents(shop.open("here"))

    def test_a_machine_whose_restore_is_over_writes_nothing_more(
        self, shop: SimulatedJob, tmp_path: Path
    ) -> None:
        savepoint = shop.take().savepoint
        kept: list[tuple[str, str]] = []

        def keeping(header: str, portion: str) -> list[str]:
            kept.append((header, portion))
            return run_portion(header, portion)

        shop.restore(
            savepoint, "there", sink="accept", pace=Pace(executor=PortionExecutor(tmp_path, attempt=keeping))
        )
        before = contents(shop.open("there"))
        victim = next(path for path in before if path.endswith(".snapshot"))
        shop.open("there").delete(victim)
        lines = [json.loads(line) for header, portion in kept for line in run_portion(header, portion)]
        assert {line["error"]["error"] for line in lines} == {"target-moved"}
        assert victim not in contents(shop.open("there"))

    def test_a_restore_that_ends_in_the_middle_of_a_file_leaves_the_file_out(
        self, shop: SimulatedJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The last look is when all bytes have passed: before it, nothing is under the file's name."""
        savepoint = shop.take().savepoint
        monkeypatch.setattr("streambank.work.target.NOTE_EVERY_S", 0.0)
        ended = threading.Event()
        chunks = Objects.chunks

        def ending(self: Objects, digest: str) -> Any:
            yield from chunks(self, digest)
            if self.size(digest) > SMALL_BYTES and not ended.is_set():
                ended.set()
                shop.open("there").write(METADATA, b'{"id": "another query"}')

        monkeypatch.setattr(Objects, "chunks", ending)
        with refuses(ConflictError, "target-moved"):
            shop.restore(savepoint, "there", sink="accept", pace=Pace(executor=PortionExecutor(tmp_path)))
        assert ended.is_set()

    def test_a_copy_that_the_service_makes_is_left_out_too(self) -> None:
        """There no bytes pass: the last look is before the service is asked."""
        repository = Repository.open(MemoryStore(), create=True)
        manifest = save(repository)
        entry = next(entry for entry in manifest.files if entry.size_bytes > SMALL_BYTES)

        def over() -> None:
            raise ConflictError("Over.", code="target-moved")

        target = MemoryStore(holds=False)
        with pytest.raises(ConflictError):
            place_large(repository, target, entry, check=over)
        assert not target.exists(entry.path)
        place_large(repository, target, entry)
        assert target.read(entry.path) == repository.objects.read(entry.digest)

    def test_damage_ends_it(self, shop: SimulatedJob, tmp_path: Path) -> None:
        savepoint = shop.take().savepoint
        key = next(info.path for info in shop.repository_store.list("objects"))
        data = bytearray(shop.repository_store.read(key))
        data[7] ^= 1
        shop.repository_store.write(key, bytes(data))
        with pytest.raises(IntegrityError):
            restore(
                RestoreRequest(
                    shop.repository,
                    savepoint,
                    job=JOB,
                    into=shop.open("there"),
                    sink="accept",
                    opener=quick_store,
                ),
                pace=Pace(executor=PortionExecutor(tmp_path)),
            )
        assert contents(shop.open("there")) == {}


class TestPortions:
    def test_each_task_is_in_one_and_small_ones_are_among_themselves(self) -> None:
        tasks = [
            CopyTask(-1, f"f{number}", SMALL_BYTES * 3 if number % 7 == 0 else 100, 0, "i", "state")
            for number in range(500)
        ]
        portions = list(cut(tasks))
        assert sorted(number for portion in portions for number in portion) == list(range(500))
        assert len(portions) > 20
        for portion in portions:
            assert len({tasks[number].size_bytes for number in portion}) == 1
        assert [portion[0] for portion in portions] == sorted(portion[0] for portion in portions)

    def test_one_file_may_be_larger_than_a_portion(self) -> None:
        tasks = [ObjectsTask(((f"d{number}", 1 << 40),)) for number in range(3)]
        assert list(cut(tasks)) == [[0], [1], [2]]

    def test_nothing_gives_no_portion(self) -> None:
        tasks: Sequence[CopyTask] = ()
        assert list(cut(tasks)) == []


def test_another_try_gets_the_chance_to_heal_what_the_environment_did(
    shop: SimulatedJob, tmp_path: Path
) -> None:
    """A full disk or a service that is away is raised, so that Spark tries again; at last it is reported."""
    plans = PortionExecutor(tmp_path)
    shop.take(pace=Pace(executor=plans))
    header, portion = plans.plans[0][0], plans.plans[0][1]
    broken = json.dumps({**json.loads(header), "source": "s3://nowhere/ck"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copy, "open_store", _unreachable)
        with pytest.raises(StorageError):
            run_portion(broken, portion, last_try=False)
        (line,) = run_portion(broken, portion, last_try=True)
    error = read_error(json.loads(line)["error"])
    assert isinstance(error, StorageError) and error.code == "unreachable"


@pytest.mark.parametrize(
    ("far_bytes", "far_files", "goes_far"), [(1, 10**9, 1), (10**15, 3, 1), (10**15, 10**9, 0)]
)
def test_much_goes_far_and_little_stays(
    shop: SimulatedJob, tmp_path: Path, far_bytes: int, far_files: int, goes_far: int
) -> None:
    far = PortionExecutor(tmp_path)
    executor: Executor = BySize(Threads(2), far, far_bytes, far_files)
    assert shop.take(pace=Pace(executor=executor)).batch == 11
    assert len(far.plans) == goes_far


class KilledError(BaseException):
    """The machine is gone."""


def _die(*_: object) -> None:
    raise KilledError


def _unreachable(location: object) -> Store:
    raise StorageError(f"{location} cannot be reached.", code="unreachable")


def test_stores_are_opened_as_always() -> None:
    """The fixture of this module replaces what the modules really use."""
    assert open_store is not quick_store
