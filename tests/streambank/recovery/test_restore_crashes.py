"""A crash before and after every storage call of take and restore: what is listed stays whole."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from streambank.checkpoint.reader import CheckpointReader
from streambank.control.control import JobControl
from streambank.core.errors import IntegrityError, RefusedError, StorageError
from streambank.core.lines import pieces
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from streambank.sinks.file.capture import FileSinkCapture
from streambank.sinks.file.position import read_saved_log
from streambank.sinks.file.rollback import roll_back, stand
from streambank.storage import open_store
from streambank.storage.store import Store
from streambank.work.executor import Pace
from tests.support.checkpoint.file_sink import FileSinkWriter
from tests.support.jobs.simulated_job import BY, JOB, SimulatedJob, quick_store
from tests.support.storage.contents import contents
from tests.support.storage.faulty_store import WRITES, Fault, FaultyStore, Kind, SimulatedCrash

_SERIAL = iter(range(10**9))


def fresh(tmp_path: Path) -> SimulatedJob:
    """A job in memory: hundreds of them are made."""
    return SimulatedJob(f"memory://crash-{tmp_path.name}-{next(_SERIAL)}")


def calls_of(run: Callable[[FaultyStore], object], store: Store) -> int:
    """How many calls an undisturbed run makes."""
    counting = FaultyStore(store)
    run(counting)
    return len(counting.calls)


def crash(kind: Kind, call: int, store: Store, run: Callable[[FaultyStore], object]) -> None:
    """Run, and be killed at that call; fails where the crash never came."""
    faulty = FaultyStore(store, Fault(kind, call=call))
    with pytest.raises(SimulatedCrash):
        run(faulty)
    faulty.assert_fired()


def assert_whole(repository_store: Store) -> list[str]:
    """Every listed savepoint is whole, read by somebody who knows nothing of the crash."""
    repository = Repository.open(repository_store)
    summaries = list(repository.manifests())
    for summary in summaries:
        assert summary.error is None
        report = verify(repository, summary.job, summary.savepoint, "full", record=False)
        assert report.restorable, report.findings
    return [summary.savepoint for summary in summaries]


@pytest.mark.parametrize("kind", ["crash-before", "crash-after", "crash-during"])
@pytest.mark.parametrize("incremental", [False, True])
def test_take_killed_at_any_call_of_the_repository(tmp_path: Path, kind: Kind, incremental: bool) -> None:
    def prepared() -> tuple[SimulatedJob, Callable[[FaultyStore], object]]:
        shop = fresh(tmp_path).run(4)
        if incremental:
            shop.take()
            shop.run(2)

        def run(store: FaultyStore) -> object:
            sinks = [FileSinkCapture(shop.sink_store.uri, shop.sink_store)]
            return take(
                TakeRequest(shop.checkpoint, Repository.open(store), JOB, sinks=sinks, pin=True),
                pace=Pace(parallel=1),
            )

        return shop, run

    shop, run = prepared()
    calls = calls_of(run, shop.repository_store)
    assert calls > 5
    for call in range(1, calls + 1):
        shop, run = prepared()
        crash(kind, call, shop.repository_store, run)
        assert_whole(shop.repository_store)
        run(FaultyStore(shop.repository_store))
        listed = assert_whole(shop.repository_store)
        assert len(listed) == (2 if incremental else 1)
        assert Repository.open(shop.repository_store).pinned(JOB, listed[-1])


@pytest.mark.parametrize("kind", ["crash-before", "error"])
def test_take_failing_at_any_call_of_the_checkpoint(tmp_path: Path, kind: Kind) -> None:
    def prepared() -> tuple[SimulatedJob, Callable[[FaultyStore], object]]:
        shop = fresh(tmp_path).run(3)
        return shop, lambda store: take(TakeRequest(store, shop.repository, JOB), pace=Pace(parallel=1))

    shop, run = prepared()
    for call in range(1, calls_of(run, shop.checkpoint) + 1):
        shop, run = prepared()
        faulty = FaultyStore(shop.checkpoint, Fault(kind, call=call))
        with pytest.raises(SimulatedCrash if kind == "crash-before" else StorageError):
            run(faulty)
        faulty.assert_fired()
        assert assert_whole(shop.repository_store) == []
        run(FaultyStore(shop.checkpoint))
        assert len(assert_whole(shop.repository_store)) == 1


def usable(target: Store) -> bool:
    """Whether a query could start in a directory: it has a query id."""
    return target.exists("metadata") and b'"id"' in target.read("metadata")


@pytest.mark.parametrize("kind", ["crash-before", "crash-after", "crash-during", "power-cut"])
def test_restore_killed_at_any_call_of_the_target(tmp_path: Path, kind: Kind) -> None:
    shop = fresh(tmp_path).run(4)
    taken = shop.take()
    expected = None
    calls = 0

    def run(store: Store) -> object:
        return restore(
            RestoreRequest(shop.repository, taken.savepoint, into=store, opener=quick_store),
            pace=Pace(parallel=1),
        )

    calls = calls_of(run, shop.open("whole"))
    expected = contents(shop.open("whole"))
    for call in range(1, calls + 1):
        target = shop.open(f"target-{call}")
        crash(kind, call, target, run)
        if usable(target):
            assert contents(target) == expected
            with pytest.raises(RefusedError):
                run(target)
        else:
            run(target)
            assert contents(target) == expected


def test_restore_makes_every_file_durable_before_metadata(tmp_path: Path) -> None:
    shop = fresh(tmp_path).run(4)
    taken = shop.take()
    target = FaultyStore(shop.open("restored"))
    restore(RestoreRequest(shop.repository, taken.savepoint, into=target, opener=quick_store))

    changes = [(call.operation, call.key) for call in target.calls if call.operation in WRITES]
    assert changes[0] == changes[-1] == ("write", "metadata")  # the note, and what replaces it
    assert changes[-2] == ("settle", "")
    assert {key for _, key in changes[1:-2]} == set(contents(shop.open("restored"))) - {"metadata"}


def test_restore_failing_at_any_call_of_the_target_leaves_nothing(tmp_path: Path) -> None:
    shop = fresh(tmp_path).run(4)
    taken = shop.take()

    def run(store: Store) -> object:
        return restore(
            RestoreRequest(shop.repository, taken.savepoint, into=store, opener=quick_store),
            pace=Pace(parallel=1),
        )

    calls = calls_of(run, shop.open("whole"))
    for kind in ("error", "full", "denied"):
        for call in range(1, calls + 1):
            target = shop.open(f"target-{kind}-{call}")
            faulty = FaultyStore(target, Fault(kind, call=call))
            try:
                run(faulty)
            except StorageError:
                assert contents(target) == {}, (kind, call)
            else:
                assert kind == "full"  # only a write can meet a full disk
                assert usable(target)


def test_restore_failing_at_any_call_of_the_repository_leaves_nothing(tmp_path: Path) -> None:
    shop = fresh(tmp_path).run(4)
    taken = shop.take()

    def run_into(name: str) -> Callable[[FaultyStore], object]:
        return lambda store: restore(
            RestoreRequest(Repository.open(store), taken.savepoint, into=shop.open(name), opener=quick_store),
            pace=Pace(parallel=1),
        )

    calls = calls_of(run_into("whole"), shop.repository_store)
    for kind in ("error", "crash-before", "flip", "short-read"):
        for call in range(1, calls + 1):
            target = shop.open(f"{kind}-{call}")
            store = FaultyStore(shop.repository_store, Fault(kind, call=call))
            try:
                run_into(f"{kind}-{call}")(store)
            except (StorageError, IntegrityError):
                assert contents(target) == {}
            except SimulatedCrash:
                # reading a repository that died: the target is ours to clean, and was cleaned; or it was
                # whole, and only the hold was to be ended
                of_hold = store.calls[call - 1].operation == "delete"
                assert contents(target) == (contents(shop.open("whole")) if of_hold else {})
            else:
                # this call gave no bytes, or was about the hold, without which it is read all the same; or it
                # was made again
                failed, later = store.calls[call - 1], store.calls[call:]
                assert kind in ("flip", "short-read") or "/hold-" in failed.key or failed in later
                assert contents(target) == contents(shop.open("whole"))


@pytest.mark.parametrize("kind", ["crash-before", pytest.param("crash-after", marks=pytest.mark.storm)])
def test_generation_restore_killed_at_any_call(tmp_path: Path, kind: Kind) -> None:
    """The job's records, the target and the sink die together, as they do when the process is killed."""

    def prepared() -> tuple[SimulatedJob, str, Callable[[FaultyStore], object]]:
        shop = fresh(tmp_path).run(4)
        taken = shop.take().savepoint
        shop.run(2)
        return shop, taken, lambda root: _restore_generation(shop, taken, root)

    shop, taken, run = prepared()
    calls = calls_of(run, open_store(shop.base))
    for call in range(1, calls + 1):
        shop, taken, run = prepared()
        crash(kind, call, open_store(shop.base), run)
        current = shop.control().generation()
        if current is not None and current.number > 1:
            assert usable(quick_store(current.location))
        _as_if_the_process_were_gone(shop.control())
        run(FaultyStore(open_store(shop.base)))
        current = shop.control().generation()
        assert current is not None
        assert current.from_savepoint == taken
        assert CheckpointReader(quick_store(current.location)).closure().batch == 3
        assert shop.sink is not None
        assert sorted({row["batch"] for row in shop.sink.read()}, key=str) == [1, 2, 3]
        assert_whole(shop.repository_store)


def _as_if_the_process_were_gone(control: JobControl) -> None:
    """What a real kill does by itself: the process that held lock and lease is this one, and lives."""
    control.operation_lock.break_off(by=BY, why="killed", even_live=True)
    control.lease.break_off(by=BY, why="killed", even_live=True)


def _restore_generation(shop: SimulatedJob, taken: str, root: FaultyStore) -> object:
    def opener(location: object) -> Store:
        return root.child(str(location).removeprefix(shop.base + "/"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streambank.recovery.sinks.sinks.open_store", opener)
        return restore(
            RestoreRequest(
                Repository.open(root.child("repository")),
                taken,
                generation=JobControl(root.child(f"repository.control/{JOB}"), JOB),
                opener=opener,
                sink="rollback",
            ),
            pace=Pace(parallel=1),
        )


@pytest.mark.parametrize("kind", ["crash-before", "crash-after"])
@pytest.mark.parametrize("to", [4, 11])
def test_rollback_killed_at_any_call(tmp_path: Path, kind: Kind, to: int) -> None:
    def prepared() -> tuple[Store, FileSinkWriter, Callable[[FaultyStore], object], Callable[[], bool]]:
        store = open_store(f"memory://rollback-{tmp_path.name}-{next(_SERIAL)}")
        writer = FileSinkWriter(store)
        for batch in range(to + 1):
            writer.write(batch, [{"batch": batch}])
        captured = FileSinkCapture(store.uri, store).capture(to)
        content = {info.path: partial(pieces, store.read(info.path)) for info in captured.files}
        saved = read_saved_log(captured.record, content, store.uri)
        for batch in range(to + 1, 23):
            writer.write(batch, [{"batch": batch}])
        return (
            store,
            writer,
            lambda faulty: roll_back(saved, faulty, store.uri, "b-one"),
            lambda: stand(saved, store, store.uri).safe,
        )

    store, writer, run, safe = prepared()
    calls = calls_of(run, store)
    changing = 0
    for call in range(1, calls + 1):
        store, writer, run, safe = prepared()
        before = contents(store)
        faulty = FaultyStore(store, Fault(kind, call=call))
        with pytest.raises(SimulatedCrash):
            run(faulty)
        changing += faulty.calls[-1].operation in WRITES
        data = set(contents(store).values())
        assert set(before.values()) <= data  # nothing is destroyed at any moment
        run(FaultyStore(store))
        assert safe()
        assert [row["batch"] for row in writer.read()] == list(range(to + 1))
        later = [path for path in contents(store) if path.startswith("part-")]
        assert len(later) == to + 1  # also files whose entry was gone when the second try began
    assert changing > 10


def test_an_unfinished_rollback_is_not_accepted(tmp_path: Path) -> None:
    shop = fresh(tmp_path).run(4)
    taken = shop.take()
    shop.run(3)
    faulty = FaultyStore(shop.sink_store, Fault("crash-before", call=3, operations=frozenset({"rename"})))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streambank.recovery.sinks.sinks.open_store", lambda location: faulty)
        with pytest.raises(SimulatedCrash):
            shop.restore(taken.savepoint, sink="rollback")
    for choice, code in (("refuse", "sink-would-lose-rows"), ("accept", "sink-rollback-unfinished")):
        with pytest.raises(RefusedError) as caught:
            shop.restore(taken.savepoint, f"restored-{choice}", sink=choice)
        assert caught.value.code == code
    shop.restore(taken.savepoint, "restored-at-last", sink="rollback")
    shop.restore(taken.savepoint, "and-again")
