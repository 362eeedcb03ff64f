"""Who can write among a job's records has code run, a process killed, a file of this machine shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from streambank.control.control import JobControl
from streambank.control.processes import ProcessId, child_process
from streambank.control.records import RecordStream, encode_json
from streambank.core.errors import ConflictError, FormatError, IntegrityError, StorageError
from streambank.declaration.declaration import Job
from streambank.driver.bundle import program, ship
from streambank.driver.launcher import Handle
from streambank.driver.launchers.local import LocalLauncher, launch_arguments
from streambank.driver.location import LOCATED, is_driver_of, launched_handle
from streambank.driver.prepare import prepare_launch
from streambank.driver.spec import new_launch_id, write_launch
from streambank.job.stop import stop_job
from streambank.storage import open_store
from streambank_spark.runner import entry
from tests.support.jobs.declared import BY, declare, fake_launcher
from tests.support.processes import child
from tests.support.refuses import refuses

WAIT = "import time; time.sleep(600)"


@pytest.fixture
def job(tmp_path: Path) -> Job:
    fake_launcher(tmp_path)
    return declare(tmp_path)


@pytest.fixture
def bystander() -> Iterator[ProcessId]:
    """A process of this user that is no driver."""
    with child(WAIT) as process:
        yield child_process(process.pid, "jvm")


def test_a_program_that_lies_where_ours_belongs_is_replaced(job: Job) -> None:
    control = job.records()
    key = ship(control).removeprefix(f"{control.store.uri}/").removeprefix("file:///")
    key = key[key.index("bundles/") :]
    control.store.write(key, b"another program")
    ship(control)
    assert control.store.read(key) == program()
    before = control.store.stat(key).identity
    ship(control)
    assert control.store.stat(key).identity == before, "what is whole is left alone"


def test_a_launch_that_was_changed_since_runs_nothing(job: Job) -> None:
    control = job.records()
    spec = prepare_launch(job, control, by=BY)
    write_launch(control, spec)
    arguments = launch_arguments(control, spec)
    assert entry.parse(arguments) == spec
    control.store.write(spec.key, encode_json(replace(spec, application="/theirs.py").to_dict()))
    with refuses(IntegrityError, "changed-launch"):
        entry.parse(arguments)


@pytest.mark.parametrize("way", ["another-file", "a-link"])
def test_no_file_of_this_machine_is_shown_as_a_log(job: Job, tmp_path: Path, way: str) -> None:
    secret = tmp_path / "credentials"
    secret.write_text("hush\n")
    launcher, launch_id = LocalLauncher(), new_launch_id()
    log = Path(launcher.log_path(job.records(), launch_id))
    log.parent.mkdir(parents=True)
    if way == "a-link":
        log.symlink_to(secret)
    named = str(log) if way == "a-link" else str(secret)
    with pytest.raises(StorageError) as caught:
        launcher.log_lines(Handle(launch_id, (), named), 10)
    assert caught.value.code == "log-not-read" and "hush" not in caught.value.message
    log.unlink(missing_ok=True)
    log.write_text("of the driver\n")
    assert launcher.log_lines(Handle(launch_id, (), str(log)), 10) == ["of the driver"]


@pytest.mark.parametrize("page", ["javascript:alert(1)", "/etc/passwd", "file:///etc/passwd", ["http://x"]])
def test_a_place_that_is_no_page_is_none(job: Job, page: object) -> None:
    control, launch_id = job.records(), new_launch_id()
    told = {"submission": "driver-1", "tracking": page, "log": page}
    control.store.write(f"{LOCATED}/{launch_id}.json", encode_json(told))
    handle = launched_handle(control, launch_id)
    assert (handle.submission, handle.tracking, handle.log) == ("driver-1", None, None)
    pages = {"submission": "driver-1", "tracking": "https://spark:8080/a", "log": "http://spark:8081/b"}
    control.store.write(f"{LOCATED}/{launch_id}.json", encode_json(pages))
    handle = launched_handle(control, launch_id)
    assert (handle.tracking, handle.log) == ("https://spark:8080/a", "http://spark:8081/b")


def test_a_process_that_is_no_driver_is_not_killed(
    job: Job, bystander: ProcessId, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambank.job.stop._MARGIN_S", 0.2)
    control = job.records()
    spec = prepare_launch(job, control, by=BY)
    write_launch(control, spec)
    details = {"launch_id": spec.launch_id, "purpose": "run", "by": BY}
    control.lease.acquire([bystander], beat_s=0.1, ttl_s=2.0, details=details)
    with pytest.raises(StorageError) as caught:
        stop_job(job, by=BY, launcher=fake_launcher(tmp_path), force_after_s=0.1)
    assert caught.value.code == "not-its-driver" and str(bystander.pid) in caught.value.message
    assert bystander.is_living()


def test_a_driver_is_known_by_its_arguments(job: Job, tmp_path: Path) -> None:
    control = job.records()
    spec = prepare_launch(job, control, by=BY)
    for arguments in (launch_arguments(control, spec), ["--job", "flights"], ["--job=flights"]):
        with child(WAIT, *arguments) as process:
            assert is_driver_of(control, spec.launch_id, child_process(process.pid, "python"))
    other = launch_arguments(control, replace(spec, launch_id=new_launch_id()))
    with child(WAIT, *other) as process:
        assert not is_driver_of(control, spec.launch_id, child_process(process.pid, "python"))


def test_the_last_number_is_an_error_and_not_the_end_of_all_changes(tmp_path: Path) -> None:
    stream = RecordStream(open_store(str(tmp_path)), "desired")
    assert stream.append({"state": "running"}) == 1
    stream.create(9_999_999_999, {"state": "stopped"})
    assert stream.append({"state": "running"}) == 2
    with refuses(FormatError, "damaged-record", match="9999999999"):
        stream.latest()


def test_who_may_only_write_savepoints_steers_no_job(job: Job, tmp_path: Path) -> None:
    """Records that are planted in the repository stop the job that has its own, and never count."""
    job.records().set_desired("stopped", by=BY)
    assert not (tmp_path / "repository" / "jobs").exists()
    planted = JobControl.open(str(tmp_path / "repository" / "jobs"), job.name)
    planted.set_desired("running", by={"user": "eve"})
    with refuses(ConflictError, "records-twice"):
        job.records()
    planted.store.write("moved.json", b'{"to": "file:///of/eve"}')
    desired = job.records().desired()
    assert desired is not None and desired.state == "stopped"
