"""A genuine signature of one record, job or place is put beside another one: it proves nothing there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streambank.control.control import JobControl
from streambank.core.errors import StreambankError
from streambank.core.signing import VARIABLE, new_key
from streambank.declaration.declaration import Job
from streambank.driver.prepare import prepare_launch
from streambank.job.sign_records import sign_records
from streambank.job.start import start_job
from streambank.sites.records import Sites, agree
from tests.support.jobs.declared import BY, declare, fake_launcher
from tests.support.jobs.upgraded_job import Killed, before
from tests.support.refuses import refuses

REFUSED = ("bad-signature", "not-signed")


@pytest.fixture
def job(key: Path, tmp_path: Path) -> Job:
    """A job that has been started and stopped, with signed records of both."""
    fake_launcher(tmp_path)
    job = declare(tmp_path)
    records = job.records()
    prepare_launch(job, records, by=BY)
    for state in ("running", "stopped"):
        records.set_desired(state, by=BY)
    return job


def refusal(job: Job) -> str:
    """What becomes of whoever asks what counts, what is meant to be, and where it is active."""
    control = job.records()
    try:
        control.generation()
        control.generations().current()
        control.desired()
        Sites(control).newest()
    except StreambankError as error:
        return error.code
    return "believed"


def put(job: Job, source: str, target: str) -> None:
    """Copy a record with its signatures, both renamed: all that who can write there can do."""
    store = job.records().store
    folder, _, number = source.removesuffix(".json").rpartition("/")
    data = store.read(source)
    for name in store.names(folder):
        if name.startswith(f"{number}.") and name.endswith(".signature"):
            store.write(f"{target.removesuffix('.json')}{name.removeprefix(number)}", b"")
    store.write(target, data)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("desired/0000000001.json", "sites/0000000001.json"),
        ("desired/0000000001.json", "desired/0000000003.json"),
        ("desired/0000000001.json", "desired/0000000002.json"),
        ("generation/main/0000000001.json", "generation/main/0000000002.json"),
        ("generation/main/0000000001.json", "sites/0000000001.json"),
        ("generation/main/0000000001.json", "desired/0000000003.json"),
    ],
)
def test_a_signed_record_is_not_another_one(job: Job, source: str, target: str) -> None:
    assert refusal(job) == "believed", "the honest records"
    put(job, source, target)
    assert refusal(job) in REFUSED
    with pytest.raises(StreambankError) as refused:
        prepare_launch(job, job.records(), by=BY)
        job.records().desired()
        Sites(job.records()).newest()
    assert refused.value.code in REFUSED


def test_no_site_is_made_the_active_one_by_a_record_of_another_kind(job: Job, tmp_path: Path) -> None:
    (tmp_path / "standby").mkdir()
    standby = declare(tmp_path / "standby").records()
    honest = agree(Sites(job.records()), Sites(standby), job.name)
    assert honest.active == "primary", "the first look at both sites writes a record that is believed"
    put(job, "desired/0000000001.json", "sites/0000000002.json")
    for one, other in ((job.records(), standby), (standby, job.records())):
        with pytest.raises(StreambankError) as refused:
            agree(Sites(one), Sites(other), job.name)
        assert refused.value.code in REFUSED
    assert not standby.store.exists("sites/0000000002.json"), "it is not passed on"


def test_who_takes_all_signatures_away_is_believed_in_nothing(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = job.records().store
    assert refusal(job) == "believed"
    taken = [info.path for info in store.list() if info.path.endswith(".signature")]
    for path in taken:
        store.delete(path)
    assert len(taken) == 3 and refusal(job) == "not-signed"
    monkeypatch.delenv(VARIABLE)
    assert refusal(job) == "believed", "it is the key that refuses; `signed = true` asks for one"


def test_a_key_of_somebody_else_signs_nothing_here(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose records these are is no secret, so they can sign for them, with the key that they have."""
    new_key(tmp_path / "theirs")
    store, identity = job.records().store, job.records().signer.identity()
    key, data = "desired/0000000003.json", store.read("desired/0000000001.json")
    with monkeypatch.context() as patch:
        patch.setenv(VARIABLE, str(tmp_path / "theirs"))
        JobControl(store, job.name).signer.sign(key, data, identity)
        store.write(key, data)
    assert [name for name in store.names("desired") if re.fullmatch(r"0000000003\..+\.signature", name)]
    assert refusal(job) in REFUSED
    job.records().signer.sign(key, data)
    assert refusal(job) == "believed", "with the key of this installation it counts"


def test_a_job_that_has_to_be_signed_is_not_looked_at_without_a_key(
    key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = declare(tmp_path, more="signed = true\n")
    assert refusal(job) == "believed"
    monkeypatch.delenv(VARIABLE)
    with refuses(StreambankError, "signing-key-missing"):
        job.records()


def test_a_start_at_the_records_of_another_place_records_nothing(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = fake_launcher(tmp_path)
    monkeypatch.setattr(launcher, "submit", before(launcher.submit))
    (tmp_path / "repository.control").rename(tmp_path / "elsewhere")
    moved = declare(tmp_path, more='control = "elsewhere"\n')
    with refuses(StreambankError, "records-of-another-place"):
        start_job(moved, by=BY, wait=False, launcher=launcher)
    desired = moved.records().desired()
    assert desired is not None and desired.state == "stopped", "nothing keeps it running"
    sign_records(moved, by=BY)
    with pytest.raises(Killed):
        start_job(moved, by=BY, wait=False, launcher=launcher)
    desired = moved.records().desired()
    assert desired is not None and desired.state == "running", "the honest case"
