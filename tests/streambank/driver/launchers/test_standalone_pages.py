from __future__ import annotations

from collections.abc import Iterator

import pytest

from streambank.core.errors import StorageError
from streambank.driver.launchers.standalone_pages import ClusterDriver, MasterPage, nobody_leads
from tests.support.spark.fake_master import FakeMaster, fake_master


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    with fake_master() as found:
        yield found


def submit(master: FakeMaster, *arguments: str) -> str:
    return master.submit({"appArgs": list(arguments)})


def test_drivers_that_run_are_told_from_those_that_have_ended(master: FakeMaster) -> None:
    page = MasterPage([master.url])
    first, second = submit(master, "one"), submit(master, "two")
    master.states[first] = "FINISHED"
    assert page.active() == {second: ClusterDriver(second, "RUNNING", master.url, master.main)}
    ended = page.driver(first)
    assert ended is not None and ended.state == "FINISHED"
    assert page.driver("driver-9999") is None


def test_the_workers_log_says_how_a_driver_was_launched(master: FakeMaster) -> None:
    page = MasterPage([master.url])
    driver = submit(master, "--launch", "/jobs/1.json", "--password=hunter2hunter2")
    command = page.command(page.active()[driver])
    assert command.startswith("Launch Command:") and "/jobs/1.json" in command
    lines = page.log_lines(driver, 10)
    assert "of Spark" in lines and "of Python" in lines
    assert "hunter2" not in "".join(lines), "the log is shown to more people than may see the settings"


def test_a_driver_without_a_worker_has_neither_command_nor_log(master: FakeMaster) -> None:
    master.workerless = True
    page = MasterPage([master.url])
    driver = submit(master, "one")
    waiting = page.active()[driver]
    assert (waiting.worker, waiting.log, page.command(waiting), page.log_lines(waiting.id, 5)) == (
        None, None, "", [],
    )  # fmt: skip


def test_a_worker_that_is_away_tells_nothing() -> None:
    assert MasterPage([]).command(ClusterDriver("driver-1", "RUNNING", "http://127.0.0.1:9")) == ""


def test_of_several_masters_the_one_that_leads_answers(master: FakeMaster) -> None:
    driver = submit(master, "one")
    with fake_master() as standby:
        standby.status = "STANDBY"
        for addresses in ([standby.url, master.url], ["http://127.0.0.1:9", master.url]):
            assert list(MasterPage(addresses).active()) == [driver]
        with pytest.raises(StorageError, match="says STANDBY") as caught:
            MasterPage([standby.url, "http://127.0.0.1:9"]).active()
        assert "No master of the cluster is the leader" in caught.value.message


@pytest.mark.parametrize("page", ["<html>", "[]", '{"status": "ALIVE", "activedrivers": [{"id": 5}]}'])
def test_what_no_master_says_is_an_error(master: FakeMaster, page: str) -> None:
    master.page = page
    with pytest.raises(StorageError):
        MasterPage([master.url]).active()


def test_where_nobody_answers_the_error_is_why() -> None:
    silent = StorageError("It does not answer.", code="cluster-unreachable", hint="Look.")
    assert nobody_leads([], silent) is silent
    assert "It does not answer." in nobody_leads(["one says STANDBY"], silent).message


@pytest.mark.parametrize("more", ["x" * 70_000, "of two\nlines", "\u2028"], ids=["long", "lines", "mark"])
def test_a_command_is_read_to_its_end(master: FakeMaster, more: str) -> None:
    """Behind all settings stands the launch: without it a driver would count as another one's."""
    driver = submit(master, more, "/jobs/1.json")
    page = MasterPage([master.url])
    assert "/jobs/1.json" in page.command(page.active()[driver])


def test_of_a_command_without_an_end_nothing_is_known(
    master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = submit(master, "x" * 70_000, "/jobs/1.json")
    monkeypatch.setattr("streambank.driver.launchers.standalone_pages._COMMAND_BYTES", (65_536,))
    page = MasterPage([master.url])
    assert page.command(page.active()[driver]) == ""
