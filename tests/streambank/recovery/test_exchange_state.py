"""Exchanging a job's state: whatever goes wrong, or dies, leaves a job that goes on with what it had."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streambank.control.control import JobControl
from streambank.core.errors import InputError, RefusedError, StorageError, StreambankError
from streambank.driver.launcher import Handle
from streambank.driver.launchers.local import LocalLauncher
from streambank.driver.spec import LaunchSpec
from streambank.job.start import start_job
from streambank.recovery import exchange_state
from streambank.recovery.exchange_state import ExchangeResult, exchange
from streambank.repository.repository import Repository
from streambank.storage import open_store
from tests.support.jobs.managed_job import BY, Managed, managed_job
from tests.support.paths import ROOT
from tests.support.repository.derived_savepoint import derive
from tests.support.waiting import poll


@pytest.fixture
def managed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Managed]:
    with managed_job(tmp_path, monkeypatch) as job:
        yield job


def run(managed: Managed, make: exchange_state.Make = derive, **options: Any) -> ExchangeResult:
    return exchange(managed.job, make, by=BY, why="a test", **options)


def generation(managed: Managed) -> tuple[int, int | None]:
    """The number of the generation that counts, and the one in whose directory it is."""
    found = managed.control.generation()
    assert found is not None
    return found.number, found.again


def state_of(location: Path, version: int) -> list[bytes]:
    return [path.read_bytes() for path in sorted((location / "state" / "0" / "0").glob(f"{version}.*"))]


def test_a_running_job_goes_on_with_the_other_state(managed: Managed) -> None:
    managed.start()
    managed.wait_for_batch(3)
    old = managed.checkpoint

    done = run(managed)

    assert (done.job, done.state, done.generation, done.left, done.running) == (
        "flights", "exchanged", 2, 1, True,
    )  # fmt: skip
    made = managed.repository.load("flights", str(done.savepoint))
    assert made.derived_from == done.before and made.batch == done.batch
    managed.wait_for_batch(done.batch + 2)
    version = done.batch + 1
    assert state_of(managed.checkpoint, version) and state_of(old, version)
    assert state_of(managed.checkpoint, version)[0] != state_of(old, version)[0]
    desired = managed.control.desired()
    assert desired is not None and desired.state == "running"


def test_a_job_that_is_meant_to_be_stopped_stays_so(managed: Managed) -> None:
    managed.start()
    managed.wait_for_batch(1)
    managed.stop()
    done = run(managed)
    assert (done.state, done.running, managed.driver_lives()) == ("exchanged", False, False)
    managed.start()
    managed.wait_for_batch(done.batch + 1)
    assert generation(managed) == (2, None)


def test_where_nothing_is_to_be_done_the_job_goes_on(managed: Managed) -> None:
    managed.start()
    managed.wait_for_batch(1)
    done = run(managed, lambda repository, job, savepoint: None)
    assert (done.state, done.savepoint, done.generation, done.running) == ("nothing-to-do", None, 1, True)
    managed.wait_for_batch(done.batch + 1)


def test_of_several_queries_one_has_to_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with managed_job(tmp_path, monkeypatch, queries=("enrich", "count")) as managed:
        managed.start()
        managed.wait_for_batch(2, "count")
        with pytest.raises(InputError) as caught:
            run(managed)
        assert caught.value.code == "which-query"
        assert managed.driver_lives(), "nothing was touched"
        done = run(managed, query="count")
        assert (done.job, done.generation) == ("flights/count", 2)
        managed.wait_for_batch(done.batch + 1, "count")
        other = managed.control.generation("enrich")
        assert other is not None and other.number == 1


def fail(error: BaseException) -> Callable[..., Any]:
    def failing(*args: Any, **options: Any) -> Any:
        raise error

    return failing


class Breaking(LocalLauncher):
    """Starts no driver in the second generation."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = 0

    def submit(self, job: Any, control: JobControl, launch: LaunchSpec) -> Handle:
        if launch.queries["main"].generation == 2:
            self.refused += 1
            raise StorageError("It does not start.", code="driver-died")
        return super().submit(job, control, launch)


class TestItGoesOnAsItWas:
    @pytest.mark.parametrize("wanted", [True, False])
    def test_where_the_other_state_cannot_be_made(self, managed: Managed, wanted: bool) -> None:
        managed.start()
        managed.wait_for_batch(1)
        if not wanted:
            managed.stop()
        with pytest.raises(RefusedError) as caught:
            run(managed, fail(RefusedError("It holds too much.", code="hdfs-backed", hint="Wait.")))
        assert (caught.value.code, caught.value.hint) == ("hdfs-backed", "Wait.")
        assert ("goes on" if wanted else "stays stopped") in caught.value.message
        assert managed.driver_lives() is wanted
        assert generation(managed) == (1, None)

    def test_where_it_cannot_be_restored(self, managed: Managed, monkeypatch: pytest.MonkeyPatch) -> None:
        managed.start()
        monkeypatch.setattr(exchange_state, "restore", fail(StorageError("The disk is full.")))
        with pytest.raises(StorageError, match=r"full\. The job goes on with the state that it had"):
            run(managed)
        assert managed.driver_lives()

    def test_where_the_query_does_not_start_with_it(self, managed: Managed) -> None:
        managed.start()
        managed.wait_for_batch(2)
        old = managed.checkpoint
        launcher = Breaking()
        with pytest.raises(
            StorageError, match=r"does not start\. The job goes on with the state that it had"
        ):
            run(managed, launcher=launcher)
        assert launcher.refused == 1
        assert generation(managed) == (3, 1)
        assert managed.checkpoint == old
        managed.wait_for_batch(managed.last_batch() + 2)

    @pytest.mark.storm
    def test_where_it_hangs_with_it(self, managed: Managed) -> None:
        """A driver lives and gets nowhere: it is stopped, and the other one is given its place."""
        managed.jobs_file.write_text(managed.jobs_file.read_text().replace('"30s"', '"3s"'))
        managed.start()
        managed.wait_for_batch(2)

        def make(repository: Repository, job: str, savepoint: str) -> str:
            managed.hangs.write_text("0")
            return derive(repository, job, savepoint)

        class Healing(LocalLauncher):
            def submit(self, job: Any, control: JobControl, launch: LaunchSpec) -> Handle:
                if launch.queries["main"].generation == 3:
                    managed.hangs.unlink()
                return super().submit(job, control, launch)

        with pytest.raises(StorageError) as caught:
            run(managed, make, launcher=Healing())
        assert caught.value.code == "start-timeout"
        assert "The job goes on with the state that it had" in caught.value.message
        assert generation(managed) == (3, 1)

    def test_where_it_is_interrupted(self, managed: Managed) -> None:
        managed.start()
        with pytest.raises(KeyboardInterrupt) as caught:
            run(managed, fail(KeyboardInterrupt()))
        assert caught.value.__notes__ == ["The job goes on with the state that it had."]
        assert managed.driver_lives()


class TestItGoesOnWithTheOtherState:
    """Where going back would lose or repeat rows, the job is not left standing still."""

    @pytest.mark.storm
    def test_where_it_has_committed_a_batch_its_driver_is_left_alone(
        self, managed: Managed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        managed.start()
        managed.wait_for_batch(2)

        epochs = []

        def slow(*args: Any, **options: Any) -> Any:
            epochs.append(start_job(*args, **options).epoch)
            managed.wait_for_batch(managed.last_batch() + 1)
            raise StorageError("It took too long.", code="start-timeout")

        monkeypatch.setattr(exchange_state, "start_job", slow)
        with pytest.raises(StorageError, match=r"could not be brought back .* has gone on") as caught:
            run(managed)
        assert caught.value.code == "start-timeout"
        assert generation(managed) == (2, None)
        view = managed.control.lease.view()
        assert view is not None and (view.state, [view.epoch]) == ("live", epochs)

    def test_where_it_may_have_given_rows_to_its_sink_it_is_started_again(self, managed: Managed) -> None:
        managed.start()
        managed.wait_for_batch(2)
        facts = managed.control.query_facts(None)
        assert facts is not None
        managed.control.record_query(None, {**facts, "sink": "ForeachBatchSink"})
        begun: list[int] = []

        class Dying(LocalLauncher):
            """Its first driver in the second generation dies within its first batch."""

            def submit(self, job: Any, control: JobControl, launch: LaunchSpec) -> Handle:
                if launch.queries["main"].generation == 2 and not begun:
                    batch = managed.last_batch()
                    log = managed.checkpoint / "offsets"
                    (log / str(batch + 1)).write_bytes((log / str(batch)).read_bytes())
                    begun.append(batch + 1)
                    raise StorageError("It died.", code="driver-died")
                return super().submit(job, control, launch)

        with pytest.raises(StorageError, match=r"could not be brought back .* is not known") as caught:
            run(managed, launcher=Dying())
        assert caught.value.code == "driver-died" and begun
        assert generation(managed) == (2, None)
        managed.wait_for_batch(begun[0])


def test_no_other_state_for_a_batch_that_was_begun(managed: Managed) -> None:
    """What a driver that was killed has given to the sink is not known: first it has to finish its batch."""
    managed.start()
    managed.wait_for_batch(1)
    managed.kill()
    begun = open_store(str(managed.checkpoint))
    begun.write(f"offsets/{managed.last_batch() + 1}", begun.read(f"offsets/{managed.last_batch()}"))
    with pytest.raises(RefusedError) as caught:
        run(managed)
    assert caught.value.code == "batch-begun"
    assert generation(managed) == (1, None)


def test_who_starts_the_job_in_between_has_the_last_word(managed: Managed) -> None:
    managed.start()
    managed.wait_for_batch(1)

    def make(repository: Repository, job: str, savepoint: str) -> str:
        made = derive(repository, job, savepoint)
        managed.start()
        managed.wait_for_batch(managed.last_batch() + 1)
        managed.stop()
        return made

    with pytest.raises(RefusedError) as caught:
        run(managed, make)
    assert caught.value.code == "query-went-on"
    assert generation(managed) == (1, None)
    assert managed.driver_lives()


def test_what_cannot_be_brought_back_is_said(managed: Managed, monkeypatch: pytest.MonkeyPatch) -> None:
    managed.start()
    monkeypatch.setattr(exchange_state, "reinstate", fail(RefusedError("It has gone on.", hint="Look.")))
    with pytest.raises(StreambankError) as caught:
        run(managed, launcher=Breaking())
    assert (
        "its earlier state: It has gone on. Nor did it start: It does not start. Look."
        in caught.value.message
    )
    assert "streambank job status flights" in caught.value.message
    assert generation(managed) == (2, None)


KILLED = """
import os, pathlib, sys
from streambank.control import generations
from streambank.declaration.load import load_jobs
from streambank.driver.launchers.local import LocalLauncher
from streambank.driver.installed import Installation
from streambank.recovery import exchange_state
from tests.support.repository.derived_savepoint import derive

folder, step = pathlib.Path(sys.argv[1]), sys.argv[2]
root = pathlib.Path(sys.argv[3])

def die(*args, **options):
    (folder / "died").write_text(step)
    os._exit(9)

def make(*args):
    if step == "make":
        die()
    return derive(*args)

switch = generations.Generations.switch
def switch_and_die(*args, **options):
    switch(*args, **options)
    die()

if step == "stop":
    exchange_state.check_stands_at = die
elif step == "restore":
    generations.Generations.switch = die
elif step == "switch":
    generations.Generations.switch = switch_and_die
elif step == "start":
    exchange_state.start_job = die
job = load_jobs(folder / "streaming_jobs.toml").job("flights")
exchange_state.exchange(job, make, by={"user": "tester"})
"""


@pytest.mark.parametrize(
    ("step", "counts"),
    [
        ("stop", 1),
        pytest.param("make", 1, marks=pytest.mark.storm),
        ("restore", 1),
        ("switch", 2),
        pytest.param("start", 2, marks=pytest.mark.storm),
    ],
)
def test_a_process_that_is_killed_leaves_a_job_that_starts(
    managed: Managed, tmp_path: Path, step: str, counts: int
) -> None:
    managed.start()
    managed.wait_for_batch(2)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), step, str(ROOT)],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT / 'provider'}:{ROOT}", "PATH": ""},
        timeout=120,
        check=False,
    )
    assert done.returncode == 9 and (tmp_path / "died").read_text() == step, "it was killed there"
    assert not managed.driver_lives()
    stood = managed.last_batch()
    assert generation(managed) == (counts, None)
    assert start_job(managed.job, by=BY).state == "started"
    poll(lambda: managed.last_batch() > stood, timeout_s=30)
    # And the exchange can be asked for again.
    again = run(managed)
    assert (again.state, again.left) == ("exchanged", counts)
