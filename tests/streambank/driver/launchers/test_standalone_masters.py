"""Several masters, of which one leads; and masters that recover, break off, or are something else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from streambank.core.errors import StorageError
from streambank.driver.launcher import DriverState, Handle
from streambank.driver.launchers import http, standalone
from streambank.driver.launchers.choose import launcher_for
from streambank.driver.launchers.standalone import StandaloneLauncher
from streambank.job.start import start_job
from streambank.job.status import job_status
from streambank.job.stop import stop_job
from tests.streambank.driver.launchers.test_standalone import in_cluster, master, submitted
from tests.support.jobs.declared import BY, launched
from tests.support.refuses import refuses
from tests.support.spark.fake_master import FakeMaster, fake_master

pytestmark = pytest.mark.storm

__all__ = ["master"]

NOT_LEADING = ("STANDBY", "RECOVERING", "COMPLETING_RECOVERY")


@contextmanager
def full_host() -> Iterator[str]:
    """An address where a connection is neither made nor refused, as on a host that is gone."""
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        for one in waiting:
            one.close()


@contextmanager
def mute_host() -> Iterator[tuple[str, list[bytes]]]:
    """An address where whatever is sent is taken, and nothing is answered."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        taken: list[bytes] = []

        def run() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    taken.append(connection.recv(65_536))

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", taken
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("says", NOT_LEADING)
def test_one_that_does_not_lead_says_nothing_about_drivers(
    folder: Path, master: FakeMaster, says: str
) -> None:
    job, control, spec = submitted(folder, master)
    launcher = launcher_for(job)
    handle = launcher.submit(job, control, spec)
    master.status = says
    for ask in (
        lambda: launcher.status(handle),
        lambda: launcher.kill(handle),
        lambda: launcher.find(control),
        lambda: launcher.submit(job, control, spec),
    ):
        with refuses(StorageError, "cluster-refused", match=says):
            ask()
    assert (master.killed, len(master.submitted)) == ([], 1)


@pytest.mark.parametrize("says", NOT_LEADING)
def test_the_leader_is_asked_for_everything(folder: Path, master: FakeMaster, says: str) -> None:
    with fake_master() as other:
        other.status = says
        both = f"{other.url},{master.url}"
        job, control, spec = submitted(folder, master, rest=both, web=both)
        launcher = launcher_for(job)
        handle = launcher.submit(job, control, spec)
        assert launcher.status(handle).state == "running"
        assert [one.launch_id for one in launcher.find(control)] == [spec.launch_id]
        launcher.kill(handle)
        assert (master.states, other.submitted) == ({"driver-0001": "KILLED"}, [])


def test_a_change_of_the_master_is_no_end_of_a_driver(folder: Path, master: FakeMaster) -> None:
    job = in_cluster(folder, master)

    class Failover(StandaloneLauncher):
        def status(self, handle: Handle) -> DriverState:
            master.status = "RECOVERING"
            return super().status(handle)

    with refuses(StorageError, "start-timeout"):
        start_job(job, by=BY, timeout_s=0.3, launcher=Failover(job.launch))
    with refuses(StorageError, "cluster-refused"):
        stop_job(job, by=BY)
    assert job.records().last_event("stopped") is None, "it runs"
    assert master.states == {"driver-0001": "RUNNING"}


def test_a_host_that_is_gone_is_passed_over(
    folder: Path, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "TIMEOUT_S", 0.2)
    with full_host() as gone:
        with pytest.raises(StorageError) as caught:
            http.send_json(f"{gone}/v1", {})
        assert caught.value.code == "cluster-unreachable", "nothing can have been sent"
        both = f"{gone},{master.url}"
        job, control, spec = submitted(folder, master, rest=both, web=both)
        launcher = launcher_for(job)
        handle = launcher.submit(job, control, spec)
        assert launcher.status(handle).state == "running"
        launcher.kill(handle)
        assert (launcher.status(handle).state, len(master.submitted)) == ("ended", 1)


def test_only_a_submission_ends_where_no_answer_comes(folder: Path, master: FakeMaster) -> None:
    with mute_host() as (mute, taken):
        both = f"{mute},{master.url}"
        job, control, spec = submitted(folder, master, rest=both, web=both)
        launcher = StandaloneLauncher(job.launch, {}, search_s=0.1)
        with pytest.raises(StorageError) as caught:
            launcher.submit(job, control, spec)
        assert (caught.value.code, master.submitted) == ("submit-unanswered", [])
        assert any(one.startswith(b"POST /v1/submissions/create") for one in taken)
        driver = master.submit({"appArgs": []})
        handle = Handle(spec.launch_id, (), None, driver)
        assert launcher.status(handle).state == "running"
        launcher.kill(handle)
        assert master.states == {driver: "KILLED"}


@pytest.mark.parametrize("fault", ["cut", "garbage", "shapeless"])
def test_an_answer_that_cannot_be_read_makes_no_second_driver(
    folder: Path, master: FakeMaster, fault: str
) -> None:
    with fake_master() as other:
        master.fault = fault
        job = in_cluster(folder, master, rest=f"{master.url},{other.url}")
        control, spec = launched(job)
        handle = launcher_for(job).submit(job, control, spec)
        assert (master.fired, len(master.submitted), other.submitted) == (1, 1, [])
        assert (handle.launch_id, handle.submission) == (spec.launch_id, "driver-0001")


def test_what_cannot_be_looked_for_may_have_been_taken(folder: Path, master: FakeMaster) -> None:
    job, control, spec = submitted(folder, master)
    master.fault = "lost"
    master.page = '{"status": "RECOVERING"}'
    with pytest.raises(StorageError) as caught:
        StandaloneLauncher(job.launch, {}, search_s=0.1).submit(job, control, spec)
    assert (caught.value.code, master.fired, len(master.submitted)) == ("submit-unanswered", 1, 1)


@pytest.mark.parametrize(
    "page",
    [
        "[]",
        "null",
        "7",
        '{"a": 1}',
        '{"status": "ALIVE", "activedrivers": [{"state": "RUNNING"}]}',
        '{"status": "ALIVE", "activedrivers": [5]}',
        '{"status": "ALIVE", "workers": {}}',
    ],
)
def test_what_is_no_master_is_told(folder: Path, master: FakeMaster, page: str) -> None:
    job = in_cluster(folder, master)
    control, _ = launched(job)
    master.page = page
    with refuses(StorageError, "cluster-refused"):
        launcher_for(job).find(control)
    assert "it is not known whether a driver is starting" in job_status(job).why


@pytest.mark.parametrize("answer", [{}, {"a": 1}, {"success": None}])
def test_a_rest_server_that_is_no_master_says_of_no_driver_that_it_ended(
    folder: Path, master: FakeMaster, monkeypatch: pytest.MonkeyPatch, answer: dict[str, object]
) -> None:
    monkeypatch.setattr(standalone, "get_json", lambda url: answer)
    with pytest.raises(StorageError, match="not in the expected form"):
        launcher_for(in_cluster(folder, master)).status(Handle("launch-1", (), None, "driver-0001"))
