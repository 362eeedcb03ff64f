"""One id, two savepoints: lines that part within a batch have the same logs, and other state."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from streambank.checkpoint.paths import needs_rewrite
from streambank.core.errors import IntegrityError
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.replicas.repair import RepairReport, repair
from streambank.replicas.replicate import Replicated, newest_first, open_replica, replicate
from streambank.repository.catalog import listed, manifest_key
from streambank.repository.marks import VERIFIED, add_mark
from streambank.repository.repository import Repository
from streambank.savepoint.import_copy import import_copy
from streambank.savepoint.plan import check_same
from streambank.savepoint.take import TakeRequest, TakeResult, take
from streambank.savepoint.verify import verify
from streambank.sinks.unguarded import sinks_from_descriptions
from streambank.storage.local.store import LocalStore
from streambank.storage.store import Store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.checkpoint.recorded import checkpoint as recorded
from tests.support.jobs.simulated_job import JOB, SimulatedJob, quick_store
from tests.support.refuses import refuses
from tests.support.repository.repositories import manifest_of

NOTHING = sinks_from_descriptions(["ConsoleTable"])


class Two:
    """A query, and a copy of its checkpoint that was made within a batch; both finish it."""

    def __init__(self, folder: Path) -> None:
        self.shop = SimulatedJob(folder / "primary", sink=False).run(3)
        self.shop.live.plan()
        shutil.copytree(folder / "primary/ck", folder / "standby/ck")
        self.copy = quick_store(folder / "standby/ck")
        other = LiveCheckpoint(self.copy, query_id=self.shop.live.query_id, seed=7)
        other.next_batch = self.shop.live.next_batch
        self.shop.live.commit()
        other.commit()
        self.other = Repository.open(quick_store(folder / "standby/repository"), create=True)

    def take(self, checkpoint: Store | None = None, repository: Repository | None = None) -> TakeResult:
        place = checkpoint or self.shop.checkpoint
        return take(TakeRequest(place, repository or self.reopened(), JOB, sinks=NOTHING))

    def reopened(self) -> Repository:
        return Repository.open(self.shop.repository_store)

    def take_both(self) -> str:
        """A savepoint of each line, each in its repository; their id."""
        one, other = self.take(), self.take(self.copy, self.other)
        assert one.savepoint == other.savepoint, "the same id"
        mine, theirs = self.reopened().load(JOB, one.savepoint), self.other.load(JOB, one.savepoint)
        assert mine.objects() != theirs.objects(), "and another savepoint"
        return one.savepoint

    def replicate(self) -> Replicated:
        source = self.reopened()
        (done,) = replicate(source, open_replica(source, self.other.store), newest_first(source))
        return done

    def repair(self, savepoint: str) -> RepairReport:
        return repair(self.reopened(), [Repository.open(self.other.store)], [(JOB, savepoint)])


@pytest.fixture
def two(tmp_path: Path) -> Two:
    return Two(tmp_path)


def test_a_take_of_the_other_line_is_no_savepoint_that_was_there_already(two: Two) -> None:
    savepoint = two.take().savepoint
    with pytest.raises(IntegrityError) as refused:
        two.take(two.copy)
    assert refused.value.code == "other-savepoint" and two.shop.checkpoint.uri in refused.value.message
    assert two.take().already_there
    assert verify(two.reopened(), JOB, savepoint, "full").findings == ()


def test_a_checkpoint_in_the_place_of_the_other_is_seen_as_that(two: Two) -> None:
    two.take()
    for info in list(two.copy.list()):
        two.shop.checkpoint.write(info.path, two.copy.read(info.path))
    with refuses(IntegrityError, "other-savepoint"):
        two.take()


def test_a_damaged_file_may_be_what_differs(two: Two, tmp_path: Path) -> None:
    """A take cannot tell it from another line, so its hint names who can."""
    savepoint = two.take().savepoint
    shutil.copytree(tmp_path / "primary/ck", tmp_path / "moved")
    live = quick_store(tmp_path / "moved")
    saved = two.reopened().load(JOB, savepoint)
    path = [entry.path for entry in saved.files if entry.path.endswith(".delta")][-1]
    live.write(path, live.read(path)[:-3])
    with pytest.raises(IntegrityError) as refused:
        two.take(live)
    hint = refused.value.hint
    assert f"{path} has other bytes" in refused.value.message and "or the file is damaged" in hint
    assert hint.index("`streambank verify`") < hint.index("`streambank doctor`") < hint.index("next batch")
    assert verify(two.reopened(), JOB, savepoint, "full").findings == ()


def test_two_takes_at_once_end_with_one_of_them(two: Two) -> None:
    """The other line is listed between the plan of a take and its own commit."""

    def overtake(_: object) -> None:
        two.take(two.copy)

    request = TakeRequest(two.shop.checkpoint, two.reopened(), JOB, sinks=NOTHING, before_commit=overtake)
    with refuses(IntegrityError, "other-savepoint"):
        take(request)


def test_a_copy_with_the_same_files_is_there_already(two: Two, tmp_path: Path) -> None:
    """The honest cases: a copy, a restore, and files that were touched."""
    savepoint = two.take().savepoint
    shutil.copytree(tmp_path / "primary/ck", tmp_path / "backup")
    assert two.take(quick_store(tmp_path / "backup")).already_there
    imported = import_copy(TakeRequest(quick_store(tmp_path / "backup"), two.reopened(), JOB, sinks=NOTHING))
    assert imported.taken.already_there
    two.shop.restore(savepoint, "again", sink="accept")
    assert two.take(two.shop.open("again")).already_there
    for info in list(two.shop.checkpoint.list()):
        two.shop.checkpoint.write(info.path, two.shop.checkpoint.read(info.path))
    again = two.take()
    assert again.already_there and again.savepoint == savepoint


def test_what_a_restore_has_laid_out_is_not_read_to_be_compared(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that stands where it was restored is saved each hour, whatever its size."""
    savepoint = two.take().savepoint
    two.shop.restore(savepoint, "again", sink="accept")
    monkeypatch.setattr("streambank.savepoint.take.check_is_of", None)
    again = two.shop.open("again")
    request = TakeRequest(again, two.reopened(), JOB, sinks=NOTHING, restored_from=savepoint)
    assert take(request).already_there
    with pytest.raises(TypeError):
        two.take(again)  # the negative control


def test_an_import_of_the_other_line_makes_no_older_savepoint_of_it(two: Two) -> None:
    """Each batch that was committed before the lines parted is whole in the copy, and none is of use."""
    savepoint = two.take().savepoint
    with refuses(IntegrityError, "other-savepoint"):
        import_copy(TakeRequest(two.copy, two.reopened(), JOB, sinks=NOTHING))
    assert [name for _, name in listed(two.shop.repository_store)] == [savepoint]
    elsewhere = import_copy(TakeRequest(two.copy, two.other, JOB, sinks=NOTHING))
    assert elsewhere.taken.savepoint == savepoint and not elsewhere.taken.already_there


class Moved:
    """A checkpoint with files that name its directory, its savepoint, and what a restore made of it."""

    def __init__(self, folder: Path) -> None:
        self.repository = Repository.open(quick_store(folder / "repository"), create=True)
        self.checkpoint = recorded("4.3.0/rocksdb-transform").into(quick_store(folder / "ck"))
        self.savepoint = self.take(self.checkpoint).savepoint
        self.again = quick_store(folder / "again")
        restore(RestoreRequest(self.repository, self.savepoint, into=self.again, opener=quick_store))
        for info in list(self.again.list()):
            if needs_rewrite(info.path):
                assert self.again.read(info.path) != self.checkpoint.read(info.path), "it was rewritten"
                self.rewritten = info.path

    def take(self, checkpoint: Store, repository: Repository | None = None) -> TakeResult:
        return take(TakeRequest(checkpoint, repository or self.repository, JOB, sinks=NOTHING))

    def change(self) -> None:
        """Other bytes of the state."""
        path = next(info.path for info in self.again.list("state") if info.path.endswith("/4.zip"))
        self.again.write(path, self.again.read(path) + b"\0")


@pytest.fixture
def moved(tmp_path: Path) -> Moved:
    return Moved(tmp_path)


def test_files_that_a_restore_rewrites_make_no_other_savepoint(moved: Moved) -> None:
    """They name the directory in which the checkpoint lies, so they differ wherever it is restored."""
    again = moved.take(moved.again)
    assert again.already_there and again.savepoint == moved.savepoint
    imported = import_copy(TakeRequest(moved.again, moved.repository, JOB, sinks=NOTHING))
    assert imported.taken.already_there
    moved.change()
    with pytest.raises(IntegrityError) as refused:
        moved.take(moved.again)
    assert refused.value.code == "other-savepoint" and "4.zip has other bytes" in refused.value.message


@pytest.mark.parametrize("changed", [False, True])
def test_a_savepoint_of_the_restored_job_is_the_one_that_a_replica_has(
    moved: Moved, tmp_path: Path, changed: bool
) -> None:
    """The repository was lost, and the job that was restored from the replica is saved into a new one."""
    if changed:
        moved.change()
    anew = Repository.open(quick_store(tmp_path / "anew"), create=True)
    taken = moved.take(moved.again, anew)
    mine, theirs = anew.load(JOB, taken.savepoint), moved.repository.load(JOB, moved.savepoint)
    assert mine.savepoint == theirs.savepoint and mine.objects() != theirs.objects()
    (done,) = replicate(anew, open_replica(anew, moved.repository.store), newest_first(anew))
    assert done.state == ("failed" if changed else "there")
    assert [error.code for _, error in done.errors] == ["other-savepoint"] * changed


class Spelled(LocalStore):
    """A checkpoint on a NameNode, by one of its names, which counts how often it is listed."""

    def __init__(self, folder: Path, uri: str) -> None:
        super().__init__(str(folder), fsync=False)
        self.name, self.listings = uri, 0

    @property
    def uri(self) -> str:
        return self.name

    def names(self, prefix: str = "") -> Sequence[str]:
        self.listings += not prefix
        return super().names(prefix)


@pytest.mark.parametrize(("uri", "is_same"), [("hdfs://nn/ck", True), ("hdfs://nn/other", False)])
def test_a_checkpoint_by_another_name_of_its_service_is_not_read_again(
    two: Two, tmp_path: Path, uri: str, is_same: bool
) -> None:
    two.take(Spelled(tmp_path / "primary/ck", "hdfs://nn:8020/ck"))
    again = Spelled(tmp_path / "primary/ck", uri)
    assert two.take(again).already_there
    assert (again.listings == 0) is is_same
    two.shop.run(1)
    later = two.take(Spelled(tmp_path / "primary/ck", uri))
    assert not later.already_there and (later.new_files < later.files) is is_same


@pytest.mark.parametrize(
    ("path", "is_told"),
    [
        ("state/0/_metadata/v2/2", False),
        ("state/0/_metadata/v2/2.crc", False),
        ("sources/0/_schema_log_7f3c/0", False),
        ("state/0/_metadata/metadata", True),
        ("state/0/_stateSchema/default/0_7c44", True),
        ("state/0/0/4.zip.crc", True),
    ],
)
def test_what_names_the_checkpoint_s_directory_is_not_compared(path: str, is_told: bool) -> None:
    with pytest.raises(IntegrityError) if is_told else nullcontext():
        check_same(manifest_of({path: b"/one"}), manifest_of({path: b"/other"}), "The repository")


def test_replicate_does_not_say_that_it_is_there(two: Two) -> None:
    savepoint = two.take_both()
    theirs = two.other.store.read(manifest_key(JOB, savepoint))
    done = two.replicate()
    assert done.state == "failed"
    assert [error.code for _, error in done.errors] == ["other-savepoint"]
    assert two.other.store.read(manifest_key(JOB, savepoint)) == theirs
    assert two.other.store.uri in done.errors[0][1].message


def test_replicate_of_one_that_was_taken_in_both_places_is_there(two: Two, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "primary/ck", tmp_path / "backup")
    one, other = two.take(), two.take(quick_store(tmp_path / "backup"), two.other)
    assert one.savepoint == other.savepoint
    assert two.replicate().state == "there"


def damage(two: Two, savepoint: str, how: str) -> None:
    key = manifest_key(JOB, savepoint)
    data = two.shop.repository_store.read(key)
    kept = {"flip": data[:40] + b"#" + data[41:], "cut": data[:-200], "empty": b""}[how]
    two.shop.repository_store.write(key, kept)


@pytest.mark.parametrize("how", ["flip", "cut", "empty"])
def test_repair_puts_no_other_savepoint_in_the_place_of_a_damaged_one(two: Two, how: str) -> None:
    savepoint = two.take_both()
    damage(two, savepoint, how)
    before = two.shop.repository_store.read(manifest_key(JOB, savepoint))
    report = two.repair(savepoint)
    assert not report.ok
    (left,) = report.not_repaired
    assert (
        left.file == manifest_key(JOB, savepoint) and "nothing here says that it is this one" in left.reason
    )
    assert two.shop.repository_store.read(left.file) == before


@pytest.mark.parametrize("how", ["flip", "cut", "empty"])
def test_repair_brings_the_very_manifest_back(two: Two, how: str) -> None:
    savepoint = two.take().savepoint
    was = two.shop.repository_store.read(manifest_key(JOB, savepoint))
    assert two.replicate().state == "copied"
    damage(two, savepoint, how)
    assert two.repair(savepoint).ok
    assert two.shop.repository_store.read(manifest_key(JOB, savepoint)) == was


def cut_the_power(two: Two, savepoint: str) -> None:
    """What a take wrote last is zeros: its packs, its index file, its manifest."""
    place = two.shop.repository_store
    for info in [*place.list("packs"), *place.list("index")]:
        place.write(info.path, b"\0" * info.size_bytes)
    place.write(manifest_key(JOB, savepoint), b"\0" * 900)
    assert Repository.open(place).objects.index.check(), "the fault was injected"


def test_repair_mends_a_take_that_a_power_cut_zeroed(two: Two) -> None:
    """Nothing is left that speaks for the replica's savepoint, and nothing that speaks against it."""
    savepoint = two.take().savepoint
    was = two.shop.repository_store.read(manifest_key(JOB, savepoint))
    assert two.replicate().state == "copied"
    assert verify(two.reopened(), JOB, savepoint, "full").ok, "a verification of the very bytes is no matter"
    cut_the_power(two, savepoint)
    assert two.repair(savepoint).ok
    assert two.repair(savepoint).repaired == [] and not two.reopened().objects.index.rebuild().damaged
    assert two.shop.repository_store.read(manifest_key(JOB, savepoint)) == was


def test_an_index_that_is_lost_says_nothing_that_the_packs_do_not(two: Two) -> None:
    """The packs are whole: they name what the very savepoint needs, and nothing of another one."""
    savepoint, place = two.take_both(), two.shop.repository_store
    was = place.read(manifest_key(JOB, savepoint))
    copy = Repository.open(quick_store(two.shop.base.removeprefix("file://") + "/copy"), create=True)
    (done,) = replicate(two.reopened(), copy, newest_first(two.reopened()))
    assert done.state == "copied"
    for replica, is_it in ((copy, True), (two.other, False)):
        for info in list(place.list("index")):
            place.write(info.path, b"")
        damage(two, savepoint, "empty")
        assert repair(two.reopened(), [Repository.open(replica.store)], [(JOB, savepoint)]).ok is is_it
        assert (place.read(manifest_key(JOB, savepoint)) == was) is is_it


def test_of_two_replicas_with_two_savepoints_none_is_believed(two: Two) -> None:
    savepoint = two.take_both()
    copy = Repository.open(quick_store(two.shop.base.removeprefix("file://") + "/copy"), create=True)
    assert [done.state for done in replicate(two.reopened(), copy, newest_first(two.reopened()))] == [
        "copied"
    ]
    cut_the_power(two, savepoint)
    for replicas in ([two.other, copy], [copy, two.other]):
        fresh = [Repository.open(one.store) for one in replicas]
        assert not repair(two.reopened(), fresh, [(JOB, savepoint)]).ok
    assert repair(two.reopened(), [Repository.open(copy.store)], [(JOB, savepoint)]).ok


def test_a_verification_that_saw_other_bytes_speaks_against_a_copy(two: Two) -> None:
    savepoint = two.take_both()
    report = verify(two.other, JOB, savepoint, "full")
    fields = {"level": "full", "ok": True, "files": report.files, "bytes": report.bytes + 1}
    add_mark(two.shop.repository_store, "blake3", JOB, savepoint, VERIFIED, fields=fields)
    cut_the_power(two, savepoint)
    assert not two.repair(savepoint).ok


@pytest.mark.parametrize("how", ["flip", "empty"])
def test_a_signature_says_which_manifest_it_was(two: Two, key: Path, how: str) -> None:
    """Both lines are signed by one key; the signature that lies here is of one of them."""
    two.other = Repository.open(two.other.store)
    savepoint = two.take_both()
    damage(two, savepoint, how)
    assert not two.repair(savepoint).ok


def test_the_signed_manifest_itself_comes_back(two: Two, key: Path) -> None:
    savepoint = two.take().savepoint
    assert two.replicate().state == "copied"
    two.other = Repository.open(two.other.store)
    damage(two, savepoint, "empty")
    for info in list(two.shop.repository_store.list("index")):
        two.shop.repository_store.delete(info.path)  # the signature is enough
    assert two.repair(savepoint).ok
