"""Who writes records, notes or links has `clean`, a refresh or a drill delete what is not the job's."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from streambank.cleaning.clean import CleanReport, clean_job
from streambank.compaction.job import compact_job
from streambank.control.records import encode_json
from streambank.core.errors import RefusedError
from streambank.core.units import to_json_time, utc_now
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.declaration.maintenance import GenerationsPolicy
from streambank.drills import left
from streambank.drills.copy_of_job import scratch_of
from streambank.driver.launchers.choose import launcher_for
from streambank.driver.prepare import prepare_launch
from streambank.storage import open_store
from streambank.work.staging import checkpoint_name
from streambank.work.target import NOTE
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.checkpoint.with_garbage import write_with_garbage
from tests.support.jobs.copied_job import STAGING, CopiedJob
from tests.support.jobs.declared import BY, declare
from tests.support.jobs.left_behind import go_on, next_generation, save
from tests.support.storage.contents import contents

AT_ONCE = GenerationsPolicy(keep=1, keep_for_s=0.001)


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "temporary"
    place.mkdir(mode=0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def clean(job: Job, *, now: datetime | None = None) -> CleanReport:
    jobs = load_jobs(job.source).jobs
    now = now or utc_now() + timedelta(days=5)
    return clean_job(job, jobs=jobs, policy=AT_ONCE, now=now, dry_run=False, by=BY)


def states(report: CleanReport) -> dict[str, str]:
    return {one.directory.location: one.state for one in report.decisions}


def restored(job: Job) -> Job:
    """A job that has gone on after a restore: its first generation is left."""
    LiveCheckpoint(open_store(job.checkpoint)).run(2)
    next_generation(job, save(job), sink="accept")
    go_on(job)
    return job


def in_memory(tmp_path: Path, repository: str = "memory://{name}/repository") -> Job:
    name = tmp_path.name
    (tmp_path / "app.py").write_text("")
    file = tmp_path / "jobs.toml"
    file.write_text(
        f'repository = "{repository.format(name=name)}"\n[jobs.flights]\napplication = "app.py"\n'
        f'checkpoint = "memory://{name}/ck"\n'
    )
    return restored(load_jobs(file).job("flights"))


VICTIM = {"metadata", "offsets/0", "commits/0", "part-0.parquet"}


def victim_at(location: str) -> str:
    store = open_store(location)
    for name in VICTIM:
        store.write(name, b"{}")
    return store.uri


def intact(location: str) -> bool:
    return set(contents(open_store(location))) >= VICTIM


def record(job: Job, number: int, location: str, **more: Any) -> None:
    """What who may write the job's records lays among them."""
    data = {"generation": number, "location": location, "from_savepoint": None, "by": {}, **more}
    data["made_at"] = to_json_time(utc_now())
    job.records().store.write(f"generation/main/{number:010d}.json", encode_json(data))


# The temporary folder.


def staged(temporary: Path, job: Job, folder: str = "streambank-inspect-abc") -> Path:
    place = temporary / folder / checkpoint_name()
    place.mkdir(parents=True)
    place.parent.chmod(0o700)
    note = {NOTE: {"job": job.name, "token": "t", "owner": {}, "files": []}}
    (place / "metadata").write_text(json.dumps(note))
    return place


def test_what_another_user_has_laid_into_the_temporary_folder_is_not_looked_at(
    tmp_path: Path, temporary_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = restored(declare(tmp_path))
    place = staged(temporary_folder, job)
    me = os.geteuid()
    with monkeypatch.context() as another:
        another.setattr(os, "geteuid", lambda: me + 1)
        assert place.as_uri() not in states(clean(job)) and place.exists()
    place.parent.chmod(0o777)
    assert place.as_uri() not in states(clean(job)) and place.exists(), "others may write there"
    place.parent.chmod(0o700)
    assert states(clean(job))[place.as_uri()] == "removed" and not place.exists()


def test_a_link_in_the_temporary_folder_is_not_followed(tmp_path: Path, temporary_folder: Path) -> None:
    job = restored(declare(tmp_path))
    elsewhere = staged(tmp_path / "elsewhere", job)
    (temporary_folder / "streambank-inspect-evil").symlink_to(elsewhere.parent)
    clean(job)
    assert elsewhere.exists()


def test_in_a_shared_place_for_work_only_what_is_this_users_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = restored(declare(tmp_path))
    job = replace(job, state=replace(job.state, work=str(tmp_path / "work")))
    place = staged(tmp_path, job, "work")
    place.parent.chmod(0o1777)
    me = os.geteuid()
    with monkeypatch.context() as another:
        another.setattr(os, "geteuid", lambda: me + 1)
        assert states(clean(job))[place.as_uri()] == "kept"
    assert states(clean(job))[place.as_uri()] == "removed"


def test_what_everybody_could_exchange_is_kept_for_that_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = restored(declare(tmp_path))
    place = Path(job.checkpoint.removeprefix("file://"))
    place.parent.chmod(0o777)
    me = os.geteuid()
    with monkeypatch.context() as another:
        another.setattr(os, "geteuid", lambda: me + 1)
        (kept,) = (one for one in clean(job).decisions if one.directory.location == job.checkpoint)
    assert kept.directory.ours and kept.directory.number == 1, "the records name it, at its declared place"
    assert (kept.state, kept.to_dict()["code"]) == ("kept", "not-this-users")
    assert kept.why == kept.to_dict()["error"] and "into which everybody may write" in kept.why
    assert (place / "metadata").exists()
    assert states(clean(job))[job.checkpoint] == "removed", "its owner can"


# Records of generations.


@pytest.mark.parametrize("where", ["elsewhere", "ck.g0009", "ck.g0002/state", "payments.g0002", "ckx.g0002"])
def test_a_generation_is_what_is_declared_and_nothing_that_a_record_names(tmp_path: Path, where: str) -> None:
    job = in_memory(tmp_path)
    victim = victim_at(f"memory://{tmp_path.name}/{where}")
    second = job.records().generation()
    assert second is not None
    record(job, 2, victim)
    record(job, 3, second.location, again=2)
    report = clean(job)
    assert intact(victim) and victim not in {one.directory.location for one in report.having("removed")}
    assert any(victim in why for _, why in report.unread), "it is said by name"
    record(job, 2, second.location)
    assert job.checkpoint in {one.directory.location for one in clean(job).having("removed")}


def test_a_record_sends_no_driver_and_no_restore_elsewhere(tmp_path: Path) -> None:
    job = declare(tmp_path, batches=2)
    next_generation(job, save(job), sink="accept")
    record(job, 3, (tmp_path / "standby/ck.g0003").as_uri())
    for act in (lambda: prepare_launch(job, job.records(), by=BY), lambda: next_generation(job, "latest")):
        with pytest.raises(RefusedError) as caught:
            act()
        assert caught.value.code == "foreign-generation" and "standby/ck.g0003" in caught.value.message
    (tmp_path / "repository.control/flights/generation/main/0000000003.json").unlink()
    prepare_launch(job, job.records(), by=BY)


@pytest.mark.parametrize("way", ["moved", "link"])
@pytest.mark.parametrize("restores", [0, 1])
def test_a_checkpoint_that_is_declared_elsewhere_by_now_is_no_forgery(
    tmp_path: Path, way: str, restores: int
) -> None:
    job = declare(tmp_path, batches=2)
    prepare_launch(job, job.records(), by=BY)
    saved = save(job)
    for _ in range(restores):
        next_generation(job, saved, sink="accept")
    (tmp_path / "link").symlink_to(tmp_path)
    place = job.checkpoint.replace(str(tmp_path), f"{tmp_path}/{way}")
    assert place != job.checkpoint
    other = replace(job, checkpoint=place, queries={"main": place})
    for act in (
        lambda: prepare_launch(other, job.records(), by=BY),
        lambda: next_generation(other, saved, sink="accept"),
    ):
        with pytest.raises(RefusedError) as caught:
            act()
        assert caught.value.code == "checkpoint-changed" and place in caught.value.message
    report = clean_job(other, jobs={other.name: other}, policy=AT_ONCE, dry_run=False, by=BY)
    assert [(where, "began in" in why) for where, why in report.unread] == [(place, True)]
    next_generation(job, saved, sink="accept")


# What holds something alive.


@pytest.mark.parametrize("spelling", ["ck/copies", "./ck/copies", "/ck/copies", "ck/./copies", "CK"])
def test_one_place_is_one_place_by_every_spelling(tmp_path: Path, spelling: str) -> None:
    job = in_memory(tmp_path)
    replica = f"{'Memory' if spelling != 'CK' else 'memory'}://{tmp_path.name}/{spelling}"
    report = clean(replace(job, replicate=replace(job.replicate, to=(replica,))))
    assert states(report) == {job.checkpoint: "removed" if spelling == "CK" else "failed"}


@pytest.mark.parametrize("what", ["checkpoint", "repository", "control", "standby", "copy", "apart"])
def test_nothing_goes_in_which_another_job_of_the_file_lives(tmp_path: Path, what: str) -> None:
    job = in_memory(tmp_path)
    inside = f"memory://{tmp_path.name}/ck/theirs"
    places = {
        "checkpoint": f'checkpoint = "{inside}/ck"',
        "control": f'checkpoint = "ck"\ncontrol = "{inside}"',
        "standby": f'checkpoint = "ck"\n[jobs.other.standby]\ncheckpoint = "sb"\n'
        f'repository = "sr"\ncontrol = "{inside}"\n[jobs.other.replicate]\nto = ["sr"]',
        "copy": f'checkpoint = "ck"\n[jobs.other.copies.x]\ncheckpoint = "{inside}/ck"',
        "repository": f'checkpoint = "ck"\n[jobs.other.replicate]\nto = ["{inside}"]',
        "apart": 'checkpoint = "ck"',
    }
    file = tmp_path / "theirs.toml"
    file.write_text(f'repository = "theirs"\n[jobs.other]\napplication = "app.py"\n{places[what]}\n')
    jobs = {job.name: job, **load_jobs(file).jobs}
    now = utc_now() + timedelta(days=5)
    report = clean_job(job, jobs=jobs, policy=AT_ONCE, now=now, dry_run=False, by=BY)
    if what == "apart":
        assert states(report) == {job.checkpoint: "removed"}
        return
    (failed,) = report.having("failed")
    assert failed.error is not None and failed.error.code == "not-apart"
    assert inside in failed.error.message and "other" in failed.error.message
    assert open_store(job.checkpoint).exists("metadata")


@pytest.mark.parametrize("on", ["", "@standby", "@staging"])
def test_what_is_the_jobs_own_goes_at_each_site_and_on_each_copy(tmp_path: Path, on: str) -> None:
    place = f"memory://{tmp_path.name}"
    (tmp_path / "app.py").write_text("")
    file = tmp_path / "jobs.toml"
    file.write_text(
        f'repository = "{place}/r"\n[jobs.orders]\napplication = "app.py"\ncheckpoint = "{place}/ck"\n'
        f'queries = ["left", "right"]\nstate = {{ work = "{place}/work" }}\n'
        f'replicate = {{ to = ["{place}/rr"] }}\n'
        f'[jobs.orders.standby]\ncheckpoint = "{place}/sb"\nrepository = "{place}/rr"\n'
        f'[jobs.orders.copies.staging]\ncheckpoint = "{place}/copy"\n'
        f'outputs = {{ "{place}/out" = "{place}/copied" }}\n'
    )
    declared = load_jobs(file)
    job = declared.job(f"orders{on}") if on != "@staging" else declared.job("orders").as_copy("staging")
    records = job.records()
    records.check_site = tuple
    for name, checkpoint in job.queries.items():
        records.generations(name).ensure_first(checkpoint, by=BY)
        note = {NOTE: {"job": job.savepoint_name(name), "token": "t", "owner": {}, "files": []}}
        open_store(f"{checkpoint}.g0007").write("metadata", json.dumps(note).encode())
        open_store(f"{job.work_location(name)}/{checkpoint_name()}").write(
            "metadata", json.dumps(note).encode()
        )
    now = utc_now() + timedelta(days=5)
    report = clean_job(
        job, jobs=declared.jobs, policy=AT_ONCE, now=now, dry_run=False, by=BY, control=records
    )
    assert [one.state for one in report.decisions] == ["removed"] * 4, report
    assert not report.unread


# Quarantines.


@pytest.mark.parametrize("where", ["elsewhere", "beside"])
def test_a_quarantine_that_only_an_event_names_stays(tmp_path: Path, where: str) -> None:
    job = declare(tmp_path)
    write_with_garbage(open_store(job.checkpoint))
    save(job)
    place = str(tmp_path / "elsewhere") if where == "elsewhere" else None
    quarantine = compact_job(job, label="x", by=BY, quarantine=place)["main"].quarantine
    go_on(job)
    assert states(clean(job)) == {quarantine: "kept" if where == "elsewhere" else "removed"}


# Copies.


def other_job_at(folder: Path) -> Path:
    """The live checkpoint of another job, in its second generation."""
    folder.mkdir()
    live = folder / "pay.g0002"
    victim_at(str(live))
    (folder / "pay.streambank.json").write_text(json.dumps({
        "format": 1, "job": "payments", "query": "main", "generation": 2, "location": live.as_uri(),
        "control": folder.as_uri(),
    }))  # fmt: skip
    return live


def test_a_refresh_removes_only_directories_of_its_own_places(tmp_path: Path) -> None:
    made = CopiedJob(tmp_path, f"{STAGING}keep = 1\n")
    made.refresh()
    live = other_job_at(tmp_path / "prod")
    records = made.on().records()
    (first,) = (one.path for one in records.store.list("refreshes"))
    said = json.loads(records.store.read(first))
    said["directories"].append(live.as_uri())
    records.store.write(first, json.dumps(said).encode())
    claim = {
        "format": 1, "job": records.name, "query": "main", "generation": 2, "location": live.as_uri(),
        "control": records.store.uri.rpartition("/")[0], "by": {}, "at": "",
    }  # fmt: skip
    live.with_name("pay.g0002.streambank.json").write_text(json.dumps(claim))
    report = made.refresh()
    assert intact(str(live)) and live.as_uri() not in report.removed
    assert {Path(one).name for one in report.removed} == {"ck.g0002", "out.g0002"}, "its own go"
    assert any("pay.g0002" in one for one in report.warnings)


# Drills.


def drilled(job: Job, control: Any, token: str) -> Path:
    place = scratch_of(job, left.name_of(utc_now() - timedelta(days=9), token))
    if control is not None:
        left.mark(place, control)
    open_store(place).write("file", b"x")
    return Path(place.removeprefix("file://"))


def test_two_installations_with_one_scratch_leave_each_others_copies(tmp_path: Path) -> None:
    jobs = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        jobs.append(declare(tmp_path / name, more=f'[jobs.flights.drill]\nscratch = "{tmp_path}/scratch"'))
    one, other = jobs
    own = drilled(one, one.records(), "a" * 6)
    theirs = drilled(other, other.records(), "b" * 6)
    nobodys = drilled(one, None, "c" * 6)
    assert own.parent == theirs.parent
    done = states(clean(one))
    assert done[own.as_uri()] == "removed"
    assert [done.pop(each.as_uri()) for each in (theirs, nobodys)] == ["kept", "kept"]
    own = drilled(one, one.records(), "d" * 6)
    gone = left.clean_up(one, str(own.parent), timeout_s=1.0, by=BY, launcher=launcher_for(one))
    assert gone == [own.as_uri()] and theirs.exists() and nobodys.exists()
