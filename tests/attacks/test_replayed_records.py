"""Genuine records of another place: a signature is of a place, so what was true elsewhere does not count."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from streambank.code.chosen import choose_code
from streambank.code.code import Code
from streambank.control import signed
from streambank.control.control import JobControl
from streambank.control.records import RecordStream, encode_json
from streambank.core.errors import RefusedError, StreambankError
from streambank.core.names import PRIMARY, SITES, STANDBY
from streambank.core.signing import VARIABLE, Signing, new_key, signing_keys
from streambank.declaration.declaration import Job
from streambank.driver.prepare import prepare_launch
from streambank.job.move_records import move_records
from streambank.job.sign_records import sign_records
from streambank.sites.records import Sites
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Store, read_record
from tests.support.jobs.declared import BY, declare
from tests.support.jobs.two_sites import TwoSites
from tests.support.refuses import refuses


class Named(MemoryStore):
    """A store by the name that somebody gives it."""

    named = ""

    @property
    def uri(self) -> str:
        return self.named


@pytest.fixture
def sites(tmp_path: Path, key: Path) -> TwoSites:
    """A job that has begun at each of its sites, under one key."""
    made = TwoSites(tmp_path)
    for site in SITES:
        begin(made.at(site))
    return made


@pytest.fixture
def job(tmp_path: Path, key: Path) -> Job:
    made = declare(tmp_path)
    begin(made)
    return made


def begin(job: Job) -> None:
    """Its first records: a generation, and what is meant to be."""
    records = job.records()
    records.generations().ensure_first(job.checkpoint, by=BY)
    records.set_desired("running", by=BY)


def switch(job: Job, number: int) -> None:
    """What a restore of it leaves behind."""
    generations = job.records().generations()
    made = generations.propose(taken=lambda location: False)
    assert made.number == number
    with job.records().operation("restore", by=BY, any_site=True) as operation:
        generations.switch(made, operation=operation)


def copy(source: Store, target: Store, *folders: str) -> None:
    """What a writer of both places can do."""
    for folder in folders:
        for name in source.names(folder):
            if not target.exists(f"{folder}/{name}"):
                target.write(f"{folder}/{name}", source.read(f"{folder}/{name}"))


def verdict(job: Job) -> str:
    """What becomes of a start: its code, or where it would run."""
    try:
        control = job.records()
        spec = prepare_launch(job, control, by=BY)
        control.desired()
    except StreambankError as error:
        return error.code
    return spec.queries["main"].checkpoint.rpartition("/")[2]


def refusal(job: Job) -> str:
    """What is said where the generation that counts is asked for."""
    with pytest.raises(StreambankError) as refused:
        job.records().generation()
    return refused.value.code


def place(job: Job) -> Store:
    return job.records().store


def test_a_generation_of_the_standby_sends_nobody_at_the_primary_there(sites: TwoSites) -> None:
    switch(sites.at(STANDBY), 2)
    assert verdict(sites.at(PRIMARY)) == "checkpoint", "the honest case"
    copy(place(sites.at(STANDBY)), place(sites.at(PRIMARY)), "generation/main")
    assert place(sites.at(PRIMARY)).exists("generation/main/0000000002.json"), "it has come"
    assert verdict(sites.at(PRIMARY)) == "bad-signature"


def test_a_start_at_one_site_is_none_at_the_other(sites: TwoSites) -> None:
    primary, standby = sites.at(PRIMARY), sites.at(STANDBY)
    primary.records().set_desired("stopped", by=BY)
    standby.records().set_desired("stopped", by=BY)
    standby.records().set_desired("running", by=BY)
    copy(place(standby), place(primary), "desired")
    with refuses(StreambankError, "bad-signature"):
        primary.records().desired()
    desired = standby.records().desired()
    assert desired is not None and desired.state == "running", "where it was said it counts"


def test_all_records_of_another_place_together_are_refused(sites: TwoSites) -> None:
    """With the identity they would verify: but that says of which place it is."""
    primary, standby = sites.at(PRIMARY), sites.at(STANDBY)
    switch(standby, 2)
    shutil.rmtree(sites.folder / "primary/control")
    shutil.copytree(sites.folder / "standby/control", sites.folder / "primary/control")
    assert verdict(primary) == "records-of-another-place"
    with pytest.raises(StreambankError) as refused, primary.records().operation("clean", by=BY):
        pass
    assert refused.value.code == "records-of-another-place", "nor does anything else work on them"
    with refuses(StreambankError, "records-of-another-place"):
        choose_code(primary.records(), Code.declared(primary), None, by=BY, why="")


def test_a_site_that_is_reached_by_another_path_can_be_looked_at(tmp_path: Path, key: Path) -> None:
    """The honest case: the standby mounts the primary elsewhere, and has to know whether that may run."""
    there, here = TwoSites(tmp_path, far=STANDBY), TwoSites(tmp_path, far=PRIMARY)
    begin(there.at(PRIMARY))
    records = here.at(PRIMARY).records()
    assert records.store.uri != place(there.at(PRIMARY)).uri
    desired = records.desired()
    assert desired is not None and desired.state == "running" and records.generation() is not None
    records.set_desired("stopped", by=BY)  # what a fence does
    desired = there.at(PRIMARY).records().desired()
    assert desired is not None and desired.state == "stopped"
    assert verdict(here.at(PRIMARY)) == "records-of-another-place", "but not started from there"


def test_a_record_of_the_sites_says_the_same_at_both(sites: TwoSites) -> None:
    """The negative control: which site is active is of the job, wherever it is read."""
    primary, standby = (Sites(sites.at(site).records()) for site in SITES)
    assert verdict(sites.at(PRIMARY)) == "checkpoint"
    there = standby.newest()
    assert there is not None and there == primary.newest()
    store = place(sites.at(STANDBY))
    for name in store.names("sites"):
        store.delete(f"sites/{name}")
    copy(place(sites.at(PRIMARY)), store, "sites")
    assert standby.newest() == there


def test_production_does_not_take_the_records_of_a_test_with_the_same_name(tmp_path: Path, key: Path) -> None:
    """Two jobs files of one Airflow, one file of keys."""
    folders = [tmp_path / name for name in ("test", "production")]
    for folder in folders:
        folder.mkdir()
        begin(declare(folder))
    test, production = (declare(folder) for folder in folders)
    switch(test, 2)
    copy(place(test), place(production), "generation/main", "desired")
    assert verdict(production) == "bad-signature"
    assert verdict(test) == "flights.g0002"


def test_records_of_an_earlier_life_of_the_place_are_worth_nothing(job: Job, tmp_path: Path) -> None:
    """A job that was removed with its records and begun anew: old records were of another identity."""
    switch(job, 2)
    old = tmp_path / "old"
    shutil.copytree(tmp_path / "repository.control", old)
    shutil.rmtree(tmp_path / "repository.control")
    begin(job)
    assert verdict(job) == "flights"
    shutil.copytree(
        old / "flights/generation", tmp_path / "repository.control/flights/generation", dirs_exist_ok=True
    )
    assert verdict(job) == "bad-signature"


def test_a_forged_identity_is_refused(job: Job) -> None:
    store = place(job)
    said = store.read(signed.IDENTITY)
    store.write(signed.IDENTITY, said.replace(store.uri.encode(), b"file:///elsewhere"))
    assert store.read(signed.IDENTITY) != said
    assert verdict(job) == "bad-signature"
    store.write(signed.IDENTITY, encode_json({"id": "00", "place": store.uri, "signatures": []}))
    assert verdict(job) == "not-signed"
    store.write(signed.IDENTITY, b"{")
    assert verdict(job) == "damaged-record"
    store.write(signed.IDENTITY, said)
    assert verdict(job) == "flights", "the honest case"


def test_who_deletes_the_identity_gets_nothing_of_before_accepted(sites: TwoSites) -> None:
    """Records that were born with an identity have no signature of the old kind, nor do those after it."""
    primary, standby = sites.at(PRIMARY), sites.at(STANDBY)
    for one in (primary, standby):
        place(one).delete(signed.IDENTITY)
        assert refusal(one) == "bad-signature"
        one.records().set_desired("stopped", by=BY)  # reads nothing of before, and makes another identity
        assert refusal(one) == "bad-signature", "which does not bring the generations back"
    standby.records().set_desired("running", by=BY)
    copy(place(standby), place(primary), "desired")
    with refuses(StreambankError, "bad-signature"):
        primary.records().desired()
    with pytest.raises(StreambankError) as refused:
        sign_records(primary, by=BY)
    assert refused.value.code == "bad-signature", "a person has to look, and say so"


def of_before(control: JobControl, stream: str, number: int) -> None:
    """Sign a record as versions before did."""
    key = f"{stream}/{number:010d}.json"
    signing = Signing(signing_keys(), "streambank record 1", control.name, key)
    signing.update(control.store.read(key))
    (name,) = signing.names()
    control.store.write(f"{key.removesuffix('.json')}.{name}.signature", b"")


@pytest.fixture
def job_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job whose records were signed by a version that knew no identity."""
    made = declare(tmp_path)
    begin(made)
    new_key(tmp_path / "keys")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "keys"))
    for stream in ("generation/main", "desired"):
        of_before(made.records(), stream, 1)
    return made


def test_what_is_signed_for_no_place_counts_once_it_is_signed_anew(job_of_before: Job) -> None:
    job = job_of_before
    assert verdict(job) == "bad-signature"
    with pytest.raises(StreambankError) as refused:
        job.records().generation()
    assert "sign-records --unsigned" in str(refused.value.hint)
    assert sign_records(job, by=BY, unsigned=True).records == 2
    assert sign_records(job, by=BY).records == 0
    assert verdict(job) == "flights", "the honest case"


def test_who_deletes_the_identity_brings_back_no_signature_of_no_place(job: Job) -> None:
    """Of a job of that name with the same key, which had them before there were identities."""
    store = place(job)
    stream = RecordStream(store, "desired")
    stream.create(2, {"state": "stopped", "at": "2026-11-25T10:00:00.000Z", "by": {}})
    of_before(job.records(), "desired", 2)
    for step in ("with its identity", "without"):
        with pytest.raises(StreambankError) as refused:
            job.records().desired()
        assert refused.value.code == "bad-signature", step
        store.delete(signed.IDENTITY)


def test_who_moves_records_by_hand_vouches_for_them(job: Job, tmp_path: Path) -> None:
    switch(job, 2)
    (tmp_path / "repository.control").rename(tmp_path / "elsewhere")
    moved = declare(tmp_path, more='control = "elsewhere"\n')
    assert verdict(moved) == "records-of-another-place"
    assert sign_records(moved, by=BY).records == 3
    assert verdict(moved) == "flights.g0002"


def test_the_same_records_at_another_path_are_asked_for_their_own_path_first(
    job: Job, tmp_path: Path
) -> None:
    """A volume that host and container mount at two paths: who signs there shuts the other one out."""
    (tmp_path / "mount").symlink_to(tmp_path / "repository.control")
    mounted = declare(tmp_path, more='control = "mount"\n')
    with refuses(StreambankError, "records-of-another-place") as refused:
        mounted.records().signer.require_place()
    hint = str(refused.value.hint)
    assert hint.index(place(job).uri) < hint.index("sign-records")
    assert verdict(job) == "flights", "at the path with which it began"


@pytest.mark.parametrize(
    ("one", "other"),
    [("hdfs://nn:8020/x", "hdfs://NN/x"), ("s3a://b/x", "s3://b/x"), ("S3://b//x/", "s3n://b/x")],
)
def test_one_place_by_two_names_is_one_place(key: Path, one: str, other: str) -> None:
    store = Named()
    signer = signed.Signer(store, "orders", signing_keys())
    for store.named in (one, other):
        signer.sign("desired/0000000001.json", b"{}")
        signer.require_place()
    store.named = "s3://another/x"
    with refuses(StreambankError, "records-of-another-place"):
        signer.require_place()


def test_a_record_that_was_changed_on_the_way_is_not_vouched_for(job: Job, tmp_path: Path) -> None:
    (tmp_path / "repository.control").rename(tmp_path / "elsewhere")
    moved = declare(tmp_path, more='control = "elsewhere"\n')
    store = place(moved)
    store.write(
        "desired/0000000001.json", store.read("desired/0000000001.json").replace(b"running", b"stopped")
    )
    with pytest.raises(StreambankError) as refused:
        sign_records(moved, by=BY)
    assert refused.value.code in ("bad-signature", "records-of-another-place")
    assert verdict(moved) == "records-of-another-place", "nothing was vouched for"


def test_a_move_takes_the_identity_along(
    job: Job, key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.records().set_desired("stopped", by=BY)
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(RefusedError) as refused:
        move_records(job, by=BY, to=str(tmp_path / "control"))
    assert refused.value.code == "signing-key-missing", "before anything is copied"
    assert not (tmp_path / "control").exists()
    monkeypatch.setenv(VARIABLE, str(key))
    move_records(job, by=BY, to=str(tmp_path / "control"))
    assert verdict(declare(tmp_path, more='control = "control"\n')) == "flights"


def test_a_key_that_is_replaced_signs_the_identity_too(job: Job, key: Path, tmp_path: Path) -> None:
    old = key.read_text()
    new_key(tmp_path / "new")
    key.write_text((tmp_path / "new").read_text() + old)
    assert sign_records(job, by=BY).records == 2
    key.write_text((tmp_path / "new").read_text())
    assert verdict(job) == "flights"


def test_the_identity_is_read_once_and_never_without_keys(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        job.records().set_desired("running", by=BY)
    read: list[str] = []

    def reading(store: Store, key: str) -> bytes:
        read.append(key)
        return read_record(store, key)

    monkeypatch.setattr(signed, "read_record", reading)
    control = job.records()
    assert len(list(control.desired_records.all())) == 4 and control.generation() is not None
    assert read == [signed.IDENTITY]
    monkeypatch.delenv(VARIABLE)
    assert job.records().generation() is not None
    assert read == [signed.IDENTITY]


def test_a_signing_that_was_cut_off_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after the first record: what is signed then must not read as changed."""
    made = declare(tmp_path)
    begin(made)
    new_key(tmp_path / "keys")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "keys"))
    real, left = signed.Signer.sign, [1]

    def cut_off(*given: object) -> None:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        real(*given)  # type: ignore[arg-type]  # as it was called

    with monkeypatch.context() as patch:
        patch.setattr(signed.Signer, "sign", cut_off)
        with pytest.raises(KeyboardInterrupt):
            sign_records(made, by=BY)
    assert not left, "it was cut off"
    assert sign_records(made, by=BY).records == 1, "one was signed before"
    assert verdict(made) == "flights"
