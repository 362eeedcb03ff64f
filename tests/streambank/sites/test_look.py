"""A look at two sites ends in time, and says which one was not reached."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path

import pytest

from streambank.control.control import JobControl
from streambank.core.errors import FormatError, RefusedError, StorageError
from streambank.core.names import PRIMARY, STANDBY
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.sites import look as module
from streambank.sites.look import look_at
from streambank.sites.records import Sites
from streambank.sites.standing import at_active_site
from streambank.storage import open_store
from tests.support.jobs.two_sites import NAME, TwoSites, two_sites
from tests.support.refuses import refuses


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[TwoSites]:
    with two_sites(tmp_path) as found:
        yield found


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultyJob(Job):
    """A job whose records at the site meet a fault first."""

    fault: Callable[[], object]

    def records(self) -> JobControl:
        self.fault()
        return Job.records(self)


def faulty(job: Job, fault: Callable[[], object]) -> Job:
    return FaultyJob(**{one.name: getattr(job, one.name) for one in fields(Job)}, fault=fault)


def test_both_sites_are_asked_at_the_same_time(sites: TwoSites) -> None:
    both = threading.Barrier(2)
    looks = look_at(faulty(sites.at(site), lambda: both.wait(30)) for site in (PRIMARY, STANDBY))
    assert [looks[site].silent for site in (PRIMARY, STANDBY)] == [None, None]


def test_a_site_that_hangs_is_silent_and_the_other_one_answers(
    sites: TwoSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites.start()
    monkeypatch.setattr(module, "ANSWER_S", 0.3)
    monkeypatch.setattr(module, "_SLOW_S", 0.1)
    hung, go_on, asked = threading.Event(), threading.Event(), list[str]()

    def hangs() -> None:
        asked.append("standby")
        hung.set()
        go_on.wait(60)

    try:
        jobs = (sites.at(PRIMARY), faulty(sites.at(STANDBY), hangs))
        looks = look_at(jobs)
        assert hung.is_set() and looks[STANDBY].newest is None
        silent = looks[STANDBY].silent
        assert silent is not None and silent.code == "not-reachable" and "standby" in silent.message
        assert looks[PRIMARY].newest == Sites(sites.at(PRIMARY).records()).newest()
        hurried = look_at(jobs, hurried=True)
        assert hurried[STANDBY].silent is silent and len(asked) == 1, "it was not asked again so soon"
        assert look_at(jobs)[STANDBY].silent is not None and len(asked) == 2, "what decides asks each time"
    finally:
        go_on.set()
        module._silent.clear()


def test_what_is_wrong_with_a_site_that_answers_is_raised(sites: TwoSites) -> None:
    def damaged() -> None:
        raise FormatError("A record is damaged.", code="damaged-record")

    with pytest.raises(FormatError):
        look_at([sites.at(PRIMARY), faulty(sites.at(STANDBY), damaged)])


def test_a_service_that_accepts_and_never_answers_is_asked_twice_and_never_counts_as_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The usual patience is five tries of a minute each."""
    monkeypatch.setattr(module, "REQUEST_S", 0.6)
    monkeypatch.setattr(module, "PATIENT_S", 0.3)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, "us-east-1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        sites = TwoSites(tmp_path)
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        text = sites.jobs.read_text(encoding="utf-8").replace('"primary/', '"s3://east/')
        sites.jobs.write_text(text, encoding="utf-8")
        sites.job = load_jobs(sites.jobs).job(NAME)
        look = look_at([sites.at(PRIMARY)])[PRIMARY]
        silent = look.silent
        assert isinstance(silent, StorageError) and silent.code == "not-reachable", silent
        assert look.late, "who changes something asks again"
        assert connections(server) == 2
        with refuses(RefusedError, "site-not-fenced"):
            sites.fail_over(STANDBY)
        said: list[str] = []
        assert at_active_site(sites.job, said.append).site == PRIMARY, "nothing says that it is not"
        assert len(said) == 1 and "The primary of job orders was not reached" in said[0]
        usual = open_store("s3://east/x")._service().client.meta.config  # type: ignore[attr-defined]  # its S3
        assert usual.read_timeout == 60, "only the look hurries"


def test_a_service_that_refuses_connections_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, "us-east-1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
    job = replace(TwoSites(tmp_path).at(PRIMARY), control="s3://east/control")
    look = look_at([job], patient=True)[PRIMARY]
    assert look.silent is not None and look.silent.code == "not-reachable" and not look.late


def test_two_sites_that_hang_are_waited_for_at_the_same_time(
    sites: TwoSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one has hung for as long as the first one was waited for."""
    monkeypatch.setattr(module, "ANSWER_S", 0.5)
    waited: list[float] = []
    join = threading.Thread.join

    def noted(thread: threading.Thread, timeout: float | None = None) -> None:
        if thread.name.startswith("streambank-look") and timeout is not None:
            waited.append(timeout)
        join(thread, timeout)

    go_on = threading.Event()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "join", noted)
            looks = look_at(faulty(sites.at(site), lambda: go_on.wait(60)) for site in (PRIMARY, STANDBY))
        assert all(look.late for look in looks.values())
        assert len(waited) == 2 and sum(waited) <= 0.5, waited
    finally:
        go_on.set()


def test_a_slow_site_is_asked_once_more_by_who_changes_something(
    sites: TwoSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites.start()
    monkeypatch.setattr(module, "ANSWER_S", 0.3)
    go_on, asked = threading.Event(), list[str]()

    def slow() -> None:
        asked.append("standby")
        if len(asked) == 1:
            go_on.wait(60)

    try:
        jobs = (sites.at(PRIMARY), faulty(sites.at(STANDBY), slow))
        looks = look_at(jobs, patient=True)
        assert len(asked) == 2 and looks[STANDBY].silent is None and looks[STANDBY].newest is not None
    finally:
        go_on.set()


def connections(server: socket.socket) -> int:
    """How many connections wait for an answer of a server; they are closed."""
    server.setblocking(False)
    for number in itertools.count():
        try:
            server.accept()[0].close()
        except BlockingIOError:
            return number
    raise AssertionError
