"""Every file of a repository damaged in every way: verify names it, restore refuses, nothing is half done."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import FormatError, IntegrityError, NotFoundError, StreambankError
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.repository.manifest import Manifest, decode, encode
from streambank.repository.repository import Repository
from streambank.savepoint.verify import VerifyReport, verify
from streambank.storage.store import Store
from tests.support.jobs.simulated_job import JOB, SimulatedJob, quick_store
from tests.support.storage.contents import contents

Damage = Callable[[Store, str], None]


def _delete(store: Store, key: str) -> None:
    store.delete(key)


def _truncate(store: Store, key: str) -> None:
    store.write(key, store.read(key)[:-1])


def _empty(store: Store, key: str) -> None:
    store.write(key, b"")


def _flip(place: float) -> Damage:
    def flip(store: Store, key: str) -> None:
        data = bytearray(store.read(key))
        data[min(len(data) - 1, int(len(data) * place))] ^= 0x01
        store.write(key, bytes(data))

    return flip


def _zero(store: Store, key: str) -> None:
    store.write(key, bytes(len(store.read(key))))


def _one_more(store: Store, key: str) -> None:
    store.write(key, store.read(key) + b"\n")


def _swap(store: Store, key: str) -> None:
    """With the nearest other file, of the same kind where there is one."""
    others = sorted((info.path for info in store.list() if info.path != key), key=lambda k: _distance(k, key))
    other = others[0]
    mine, theirs = store.read(key), store.read(other)
    assert mine != theirs
    store.write(key, theirs)
    store.write(other, mine)


def _distance(left: str, right: str) -> int:
    same = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        same += 1
    return -same


DAMAGES: dict[str, Damage] = {
    "deleted": _delete,
    "truncated": _truncate,
    "emptied": _empty,
    "flipped-first": _flip(0.0),
    "flipped-middle": _flip(0.5),
    "flipped-last": _flip(1.0),
    "zeroed": _zero,
    "one-byte-more": _one_more,
    "swapped": _swap,
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[SimulatedJob, str, dict[str, bytes]]:
    """A repository with packs, large objects, an index, marks and two savepoints; the second is restored."""
    shop = SimulatedJob(f"memory://{tmp_path_factory.mktemp('damage').name}", state_bytes=300_000)
    first = shop.run(5).take()
    second = shop.run(1).take(pin=True)
    for savepoint in (first.savepoint, second.savepoint):
        assert verify(shop.repository, JOB, savepoint, "full").ok
    return shop, second.savepoint, contents(shop.repository_store)


def copy_of(files: dict[str, bytes], name: str) -> Store:
    store = quick_store(f"memory://{name}")
    for path, data in files.items():
        store.write(path, data)
    return store


def examine(store: Store, savepoint: str) -> tuple[VerifyReport | None, str]:
    """What verify says, as a report or as one error."""
    try:
        report = verify(Repository.open(store), JOB, savepoint, "full", record=False)
    except (IntegrityError, FormatError, NotFoundError) as error:
        return None, error.message
    said = " ".join(f"{finding.file} {finding.cause}" for finding in report.findings)
    return report, said


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_file_of_the_repository(
    saved: tuple[SimulatedJob, str, dict[str, bytes]], damage: str, tmp_path: Path
) -> None:
    shop, savepoint, files = saved
    expected: dict[str, bytes] | None = None
    refused = 0
    kinds = {path.partition("/")[0] for path in files}
    assert kinds == {"repository.json", "objects", "packs", "index", "savepoints", "marks"}
    for number, key in enumerate(sorted(files)):
        store = copy_of(files, f"{tmp_path.name}-{damage}-{number}")
        DAMAGES[damage](store, key)
        report, said = examine(store, savepoint)
        target = quick_store(f"memory://{tmp_path.name}-{damage}-{number}-target")
        try:
            restore(
                RestoreRequest(Repository.open(store), savepoint, job=JOB, into=target, opener=quick_store)
            )
        except (IntegrityError, FormatError, NotFoundError):
            refused += 1
            assert contents(target) == {}, key
            assert report is None or not report.restorable, (key, report)
            assert said, key
        else:
            # Not needed for this savepoint: what was restored is right to the byte.
            expected = expected or _restored(shop, savepoint)
            assert contents(target) == expected, key
            assert report is not None and report.restorable, (key, said)
        needed = _needed(key, files, savepoint)
        if needed:
            assert report is None or not report.restorable, (key, said)
        if damage != "deleted" and (needed or key.startswith(f"marks/{JOB}/{savepoint}")):
            assert said, key
        if needed and report is not None and not key.startswith("index/"):
            assert Path(key).stem in said or "objects" in said or "pack" in said, (key, said)
    assert refused >= 5


def _needed(key: str, files: dict[str, bytes], savepoint: str) -> bool:
    """Whether the savepoint cannot be restored without this file."""
    if key in ("repository.json", f"savepoints/{JOB}/{savepoint}.json"):
        return True
    manifest = decode(files[f"savepoints/{JOB}/{savepoint}.json"])
    return any(digest.rpartition(":")[2] in key for digest in manifest.objects())


def _restored(shop: SimulatedJob, savepoint: str) -> dict[str, bytes]:
    target = quick_store(f"{shop.base}/expected")
    if not target.exists("metadata"):
        restore(RestoreRequest(shop.repository, savepoint, into=target, opener=quick_store))
    return contents(target)


def test_each_file_of_the_savepoint_is_named(
    saved: tuple[SimulatedJob, str, dict[str, bytes]], tmp_path: Path
) -> None:
    """One byte of each of its files, wherever it lies in the repository: the finding names that very file."""
    shop, savepoint, files = saved
    manifest = shop.repository.load(JOB, savepoint)
    for number, entry in enumerate(manifest.all_files()):
        if entry.size_bytes == 0:
            continue
        store = copy_of(files, f"{tmp_path.name}-{number}")
        place = Repository.open(store).objects.locate(entry.digest)
        data = bytearray(store.read(place.key))
        data[place.offset + entry.size_bytes // 2] ^= 0x80
        store.write(place.key, bytes(data))
        report = verify(Repository.open(store), JOB, savepoint, "full", record=False)
        assert not report.restorable
        assert entry.path in {finding.file for finding in report.findings}
        for finding in report.findings:
            assert finding.cause and finding.effect and finding.hint
        target = quick_store(f"memory://{tmp_path.name}-{number}-target")
        with pytest.raises(IntegrityError):
            restore(
                RestoreRequest(Repository.open(store), savepoint, job=JOB, into=target, opener=quick_store)
            )
        assert contents(target) == {}


@pytest.mark.parametrize("damage", ["deleted", "truncated", "one-byte-more", "emptied"])
def test_quick_verify_sees_sizes(
    saved: tuple[SimulatedJob, str, dict[str, bytes]], damage: str, tmp_path: Path
) -> None:
    _, savepoint, files = saved
    for number, key in enumerate(sorted(files)):
        if key.startswith(("objects/", "packs/")):
            store = copy_of(files, f"{tmp_path.name}-{number}")
            DAMAGES[damage](store, key)
            full = verify(Repository.open(store), JOB, savepoint, "full", record=False)
            quick = verify(Repository.open(store), JOB, savepoint, "quick", record=False)
            assert quick.restorable == full.restorable, key


def edited_by_hand(manifest: Manifest) -> Iterator[tuple[str, Callable[[dict[str, Any]], None]]]:
    """Edits of the JSON that keep the old seal."""
    yield "batch", lambda fields: fields.update(batch=fields["batch"] + 1)
    yield "query", lambda fields: fields.update(query_id="00000000-0000-0000-0000-000000000000")
    yield "checkpoint", lambda fields: fields.update(checkpoint="file:///elsewhere")
    yield "a file less", lambda fields: fields["files"].pop()
    yield "a file twice", lambda fields: fields["files"].append(fields["files"][0])
    yield "another path", lambda fields: fields["files"][0].update(path="../../etc/cron.d/x")
    yield "another digest", lambda fields: fields["files"][0].update(digest="blake3:" + "0" * 64)
    yield "another size", lambda fields: fields["files"][0].update(size_bytes=1)
    yield "no sinks", lambda fields: fields.update(sinks=[])
    yield "another job", lambda fields: fields.update(job="other")
    yield "no seal", lambda fields: fields.pop("manifest_digest")
    yield "a later format", lambda fields: fields.update(format=2)
    yield "no files", lambda fields: fields.pop("files")


def test_a_manifest_edited_by_hand(saved: tuple[SimulatedJob, str, dict[str, bytes]], tmp_path: Path) -> None:
    _, savepoint, files = saved
    key = f"savepoints/{JOB}/{savepoint}.json"
    for name, edit in edited_by_hand(decode(files[key])):
        fields = json.loads(files[key])
        edit(fields)
        for text in (_in_lines(fields), json.dumps(fields), json.dumps(fields, indent=1)):
            store = copy_of({**files, key: text.encode()}, f"{tmp_path.name}-{name.replace(' ', '-')}")
            report, said = examine(store, savepoint)
            assert report is None or not report.restorable, name
            assert savepoint in said, name
            target = quick_store(f"memory://{tmp_path.name}-target")
            with pytest.raises((IntegrityError, FormatError)):
                restore(
                    RestoreRequest(
                        Repository.open(store), savepoint, job=JOB, into=target, opener=quick_store
                    )
                )
            assert contents(target) == {}


def _in_lines(fields: dict[str, Any]) -> str:
    """The layout of a manifest file, with the edits in it."""
    lines = []
    for name, value in fields.items():
        if name == "files":
            entries = ",\n".join(json.dumps(entry, separators=(", ", ": ")) for entry in value)
            lines.append(f'"files": [\n{entries}\n]')
        else:
            lines.append(f"{json.dumps(name)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def forged(manifest: Manifest, path: str) -> bytes | None:
    """A manifest with a right seal and a path that must never be written; None where it cannot be made."""
    entry = replace(manifest.files[0], path=path)
    try:
        return b"".join(encode(replace(manifest, files=(*manifest.files[1:], entry))))
    except StreambankError:
        return None


@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "a/../../x",
        "/etc/x",
        "a//b",
        "./a",
        "a/.",
        "a\\..\\x",
        "a\nb",
        "",
        "..",
        "state/0/0",
        "offsets",
    ],
)
def test_forged_manifests_cannot_even_be_written(
    saved: tuple[SimulatedJob, str, dict[str, bytes]], path: str
) -> None:
    shop, savepoint, _ = saved
    assert forged(shop.repository.load(JOB, savepoint), path) is None


class TestForgedContent:
    """A manifest whose seal is right, and which lies all the same: by somebody who can write there."""

    def commit(self, shop: SimulatedJob, manifest: Manifest, **changes: Any) -> str:
        changed = replace(manifest, savepoint="b999999-forged", **changes)
        shop.repository_store.write(f"savepoints/{JOB}/b999999-forged.json", b"".join(encode(changed)))
        return "b999999-forged"

    @pytest.fixture
    def shop(self, tmp_path: Path) -> SimulatedJob:
        return SimulatedJob(f"memory://{tmp_path.name}").run(4)

    def assert_refused(self, shop: SimulatedJob, savepoint: str, **options: Any) -> StreambankError:
        before = contents(shop.sink_store)
        with pytest.raises((IntegrityError, FormatError)) as caught:
            shop.restore(savepoint, **options)
        assert contents(shop.open("restored")) == {}
        assert contents(shop.sink_store) == before
        return caught.value

    def test_a_file_of_the_closure_left_out(self, shop: SimulatedJob) -> None:
        manifest = shop.repository.load(JOB, shop.take().savepoint)
        for entry in manifest.files:
            if entry.role in ("metadata", "offsets", "commits", "state-changelog"):
                files = tuple(one for one in manifest.files if one is not entry)
                name = self.commit(shop, manifest, files=files)
                assert self.assert_refused(shop, name).code == "savepoint-incomplete", entry.path

    def test_a_sinks_log_of_another_batch(self, shop: SimulatedJob) -> None:
        manifest = shop.repository.load(JOB, shop.take().savepoint)
        record = dict(manifest.sinks[0])
        name = self.commit(shop, manifest, sinks=({**record, "batch": 2},))
        self.assert_refused(shop, name, sink="rollback")
        name = self.commit(shop, manifest, sinks=({**record, "files": record["files"][:-1]},))
        self.assert_refused(shop, name, sink="rollback")
        name = self.commit(shop, manifest, sinks=({**record, "files": [*record["files"][1:]]},))
        shop.run(3)
        self.assert_refused(shop, name, sink="rollback")

    def test_a_sinks_file_that_climbs(self, shop: SimulatedJob) -> None:
        manifest = shop.repository.load(JOB, shop.take().savepoint)
        record = dict(manifest.sinks[0])
        climbing = {**record["files"][0], "path": "_spark_metadata/../../escape"}
        with pytest.raises(IntegrityError):
            self.commit(shop, manifest, sinks=({**record, "files": [climbing]},))

    def test_objects_swapped_between_files_of_one_size(self, shop: SimulatedJob) -> None:
        """Both objects are whole, so only what they hold can tell: the layout's logs are parsed."""
        manifest = shop.repository.load(JOB, shop.take().savepoint)
        by_path = {entry.path: entry for entry in manifest.files}
        one, two = by_path["offsets/3"], by_path["commits/3"]
        swapped = {
            one.path: replace(one, digest=two.digest, size_bytes=two.size_bytes),
            two.path: replace(two, digest=one.digest, size_bytes=one.size_bytes),
        }
        files = tuple(swapped.get(entry.path, entry) for entry in manifest.files)
        self.assert_refused(shop, self.commit(shop, manifest, files=files))
