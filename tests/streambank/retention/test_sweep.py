"""A sweep: what it deletes and when, what it leaves alone, and when it says no."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from streambank.core.errors import FormatError, InputError, IntegrityError, RefusedError, StorageError
from streambank.repository import trash
from streambank.repository.catalog import manifest_key
from streambank.repository.digest import digest_of
from streambank.repository.objects.large import object_key
from streambank.repository.objects.packs import PackBuilder, pack_key
from streambank.repository.repository import Repository
from streambank.retention.expired import set_aside
from streambank.retention.sweep import SweepReport, sweep
from streambank.savepoint.verify import verify
from streambank.storage.memory import MemoryStore
from streambank.storage.store import FileInfo
from streambank.work.pace import Step
from tests.support.refuses import refuses
from tests.support.repository.retention import HOUR_S, assert_whole, content, drop, large, store_and_list
from tests.support.storage.faulty_store import Fault, FaultyStore
from tests.support.time_travel import Clock, time_travel


@pytest.fixture(autouse=True)
def clock() -> Iterator[Clock]:
    with time_travel() as clock:
        yield clock


@pytest.fixture
def repository() -> Repository:
    return Repository.open(MemoryStore(), create=True)


def run(repository: Repository, *, dry_run: bool = False) -> SweepReport:
    return sweep(Repository.open(repository.store), grace_s=HOUR_S, dry_run=dry_run)


def files(batch: int) -> dict[str, bytes]:
    return {"offsets": b"%d" % batch * 500, "zip": large(batch)}


def test_from_expired_to_gone_takes_two_graces(repository: Repository, clock: Clock) -> None:
    copy = drop(repository, store_and_list(repository, files(1), 1))
    kept = store_and_list(repository, files(2), 2)
    of_kept = content(repository.store)
    clock.advance(0.9 * HOUR_S)
    report = run(repository)
    assert (report.removed, report.condemned.files, report.deleted.files) == ([], 0, 0)
    assert [copy.savepoint for copy, _ in report.expired] == [copy.savepoint]
    assert 0 < report.expired[0][1] < 400

    clock.advance(0.2 * HOUR_S)
    report = run(repository)
    assert [each.savepoint for each in report.removed] == [copy.savepoint]
    assert (report.condemned.files, report.deleted.files, report.kept.files) == (2, 0, 2)
    assert report.next_s is not None and report.next_s > HOUR_S - 1
    clock.advance(0.9 * HOUR_S)
    report = run(repository)
    assert (report.waiting.files, report.deleted.files) == (2, 0)
    assert content(repository.store) == of_kept

    clock.advance(0.2 * HOUR_S)
    report = run(repository)
    assert (report.deleted.files, report.kept.files) == (2, 2)
    assert report.deleted.bytes > len(large(1))
    assert assert_whole(repository.store) == {kept.savepoint}
    clock.advance(2 * HOUR_S)
    run(repository)
    assert [*repository.store.names("condemned")] == ["last-sweep"]
    assert not Repository.open(repository.store).objects.index.rebuild().changed
    assert verify(Repository.open(repository.store), "flights", kept.savepoint, level="full").ok


def test_a_dry_run_writes_nothing_and_says_what_would_happen(repository: Repository, clock: Clock) -> None:
    drop(repository, store_and_list(repository, files(1), 1))
    clock.advance(2 * HOUR_S)
    before = {info.path: info.identity for info in repository.store.list()}
    dry = run(repository, dry_run=True)
    assert {info.path: info.identity for info in repository.store.list()} == before
    assert dry.condemned.files == 0  # by this machine's own clock nothing is old yet


def test_what_nobody_ever_listed_goes_too(repository: Repository, clock: Clock) -> None:
    builder = PackBuilder("blake3")
    builder.add(digest_of("blake3", b"left"), b"left")
    pack, chunks = builder.finish()
    repository.store.write(pack_key(pack.id), b"".join(chunks))  # its writer was killed before the index
    repository.store.write(object_key(digest_of("blake3", large(5))), large(5))
    repository.store.write("objects/README", b"not ours")
    kept = store_and_list(repository, files(2), 2)
    for expected in ((2, 0), (0, 2)):
        clock.advance(2 * HOUR_S)
        report = run(repository)
        assert (report.condemned.files, report.deleted.files) == expected
    assert repository.store.exists("objects/README")
    assert assert_whole(repository.store) == {kept.savepoint}


def test_young_files_are_left_to_whoever_is_writing_them(repository: Repository, clock: Clock) -> None:
    with repository.objects.writer() as writer:
        writer.add(large(1), len(large(1)))
        writer.add(b"small", 5)
    clock.advance(0.9 * HOUR_S)
    assert run(repository).condemned.files == 0


def test_packs_of_which_little_is_needed_are_repacked(repository: Repository, clock: Clock) -> None:
    mostly_dead = {"shared": b"s" * 400, **{str(number): b"%d" % number * 900 for number in range(10)}}
    drop(repository, store_and_list(repository, mostly_dead, 1))
    kept = store_and_list(repository, {"shared": b"s" * 400, "offsets": b"2"}, 2)
    (old, _) = sorted(content(repository.store), key=lambda key: -repository.store.stat(key).size_bytes)
    clock.advance(2 * HOUR_S)
    report = run(repository)
    assert (report.condemned.files, report.rescued.objects, report.rescued.bytes) == (1, 1, 400)
    assert repository.store.exists(old)
    clock.advance(2 * HOUR_S)
    assert run(repository).deleted.files == 1
    assert not repository.store.exists(old)
    assert assert_whole(repository.store) == {kept.savepoint}


def test_the_only_whole_copy_is_never_deleted(repository: Repository, clock: Clock) -> None:
    """What was stored again for a condemned pack has lost a bit since."""
    dead = {"shared": b"s" * 400, "own": b"o" * 9000}
    drop(repository, store_and_list(repository, dead, 1))
    kept = store_and_list(repository, {"shared": b"s" * 400}, 2)
    (old,) = content(repository.store)
    clock.advance(2 * HOUR_S)
    run(repository)
    (new,) = content(repository.store) - {old}
    data = bytearray(repository.store.read(new))
    data[7] ^= 1
    repository.store.write(new, bytes(data))
    clock.advance(2 * HOUR_S)
    report = run(repository)
    assert report.deleted.files == 0 and [*report.left] == [old]
    assert report.left[old].code == "object-damaged"
    repository.store.delete(new)  # once it is seen that it is gone, it is stored again
    clock.advance(2 * HOUR_S)
    report = run(repository)
    assert (report.rescued.objects, report.deleted.files) == (1, 1)
    assert assert_whole(repository.store) == {kept.savepoint}


def test_nothing_is_stored_under_a_condemned_name(repository: Repository, clock: Clock) -> None:
    lost = files(1)
    drop(repository, store_and_list(repository, lost, 1))
    clock.advance(2 * HOUR_S)
    run(repository)
    old = content(repository.store)
    again = store_and_list(Repository.open(repository.store), lost, 3)
    new = content(repository.store) - old
    assert len(new) == 2 and all(key.startswith("packs/") for key in new)  # the large one in a separate pack
    clock.advance(2 * HOUR_S)
    assert run(repository).deleted.files == 2
    assert content(repository.store) == new
    assert assert_whole(repository.store) == {again.savepoint}
    report = verify(Repository.open(repository.store), "flights", again.savepoint, level="full")
    assert report.ok


@pytest.mark.parametrize("where", ["savepoints", "expired"])
def test_a_manifest_that_cannot_be_read_stops_everything(
    repository: Repository, clock: Clock, where: str
) -> None:
    manifest = store_and_list(repository, files(1), 1)
    key = manifest_key("flights", manifest.savepoint)
    if where == "expired":
        key = drop(repository, manifest).key
    clock.advance(0.5 * HOUR_S)
    data = repository.store.read(key)
    repository.store.write(key, data[:-4])
    for wrong, kind in (
        (data[:-4], IntegrityError),
        (data.replace(b'"format": 1', b'"format": 2'), FormatError),
    ):
        repository.store.write(key, wrong)
        with pytest.raises(kind) as refused:
            run(repository)
        assert "Nothing is swept" in str(refused.value) and key in refused.value.hint


def test_a_damaged_copy_of_a_listed_savepoint_does_no_harm(repository: Repository, clock: Clock) -> None:
    manifest = store_and_list(repository, files(1), 1)
    copy = set_aside(repository, manifest.job, manifest.savepoint)
    repository.store.write(copy.key, b"{")
    assert run(repository).kept.files == 2


def test_a_damaged_index_stops_everything(repository: Repository) -> None:
    store_and_list(repository, files(1), 1)
    (name,) = repository.store.names("index")
    repository.store.write(f"index/{name}", b"nothing")
    with refuses(IntegrityError, "index-damaged", hint="reindex"):
        run(repository)


def test_a_lost_index_costs_no_object(repository: Repository, clock: Clock) -> None:
    kept = store_and_list(repository, {"offsets": b"2" * 50}, 2)
    for name in repository.store.names("index"):
        repository.store.delete(f"index/{name}")
    for _ in range(3):
        clock.advance(2 * HOUR_S)
        assert run(repository).condemned.files == 0
    Repository.open(repository.store).objects.index.rebuild()
    assert assert_whole(repository.store) == {kept.savepoint}


def test_a_damaged_record_condemns_nothing_and_goes_away(repository: Repository, clock: Clock) -> None:
    drop(repository, store_and_list(repository, files(1), 1))
    clock.advance(2 * HOUR_S)
    run(repository)
    (name,) = [name for name in repository.store.names("condemned") if name.endswith(".json")]
    repository.store.write(f"condemned/{name}", b"{")
    listed = store_and_list(Repository.open(repository.store), files(1), 3)
    clock.advance(2 * HOUR_S)
    assert run(repository).deleted.files == 0
    assert not repository.store.exists(f"condemned/{name}")
    assert assert_whole(repository.store) == {listed.savepoint}


def test_a_clock_that_jumps_ahead_shortens_no_grace_of_this_machine(
    repository: Repository, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop(repository, store_and_list(repository, files(1), 1))
    clock.advance(2 * HOUR_S)
    run(repository)
    seconds = trash.boot_clock_s()
    monkeypatch.setattr(trash, "boot_clock_s", lambda: seconds + 60)
    clock.advance(100 * HOUR_S)
    assert run(repository).deleted.files == 0
    monkeypatch.setattr(trash, "boot_id", lambda: "another machine")
    assert run(repository).deleted.files == 2


def test_a_locked_object_is_told_and_stays(repository: Repository, clock: Clock) -> None:
    drop(repository, store_and_list(repository, files(1), 1))
    clock.advance(2 * HOUR_S)
    run(repository)
    clock.advance(2 * HOUR_S)
    fault = Fault("denied", operations=frozenset({"delete"}), key="objects/")
    faulty = FaultyStore(repository.store, fault)
    report = sweep(Repository.open(faulty), grace_s=HOUR_S)
    faulty.assert_fired()
    assert report.deleted.files == 1 and len(report.left) == 1 and not report.to_dict()["ok"]
    assert run(repository).deleted.files == 1


def test_a_storage_that_fails_ends_the_sweep_and_the_next_goes_on(
    repository: Repository, clock: Clock
) -> None:
    drop(repository, store_and_list(repository, files(1), 1))
    clock.advance(2 * HOUR_S)
    run(repository)
    clock.advance(2 * HOUR_S)
    faulty = FaultyStore(repository.store, Fault("error", call=2, operations=frozenset({"delete"})))
    with pytest.raises(StorageError):
        sweep(Repository.open(faulty), grace_s=HOUR_S)
    faulty.assert_fired()
    assert run(repository).deleted.files == 1
    assert content(repository.store) == set()


def test_a_short_grace_is_refused(repository: Repository) -> None:
    with refuses(InputError, "grace-too-short"):
        sweep(repository, grace_s=600)


def test_a_storage_without_times_is_refused(repository: Repository) -> None:
    """Also where it says so of a single file, and not in listings: everything would seem to be old."""

    class Timeless(MemoryStore):
        def list(self, prefix: str = "") -> Iterator[FileInfo]:
            return (replace(info, mtime_ns=0) for info in super().list(prefix))

    timeless = Repository.open(Timeless(), create=True)
    copy = drop(timeless, store_and_list(timeless, files(1), 1))
    with refuses(RefusedError, "no-file-times"):
        sweep(timeless)
    assert timeless.store.exists(copy.key)


def test_it_says_how_far_it_is(repository: Repository, clock: Clock) -> None:
    drop(repository, store_and_list(repository, files(1), 1))
    store_and_list(repository, files(2), 2)
    for _ in range(2):
        clock.advance(2 * HOUR_S)
        steps: list[Step] = []
        sweep(Repository.open(repository.store), grace_s=HOUR_S, progress=steps.append)
    assert {step.phase for step in steps} == {"read", "delete"}
    assert all(step.files_done <= step.files_total for step in steps)
    assert steps[-1].bytes_done == steps[-1].bytes_total > len(large(1))


def test_marks_go_with_their_savepoint_but_for_the_newest_pin(repository: Repository, clock: Clock) -> None:
    manifest = store_and_list(repository, files(1), 1)
    place = ("flights", manifest.savepoint)
    repository.pin(*place)
    repository.unpin(*place)
    repository.record_verification(*place, level="full", ok=True)
    drop(repository, manifest)
    clock.advance(2 * HOUR_S)
    run(repository)
    assert repository.store.names("marks/flights/" + manifest.savepoint) == ["pin-0000000002.json"]
    store_and_list(Repository.open(repository.store), files(1), 1)
    assert repository.pin(*place).number == 3
