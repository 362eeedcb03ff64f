"""Where the sinks of a query are found that nobody named for its savepoint."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from streambank.control.marker import renew_marker
from streambank.core.errors import NotFoundError, RefusedError
from streambank.declaration.load import load_jobs
from streambank.job.savepoint import owners_of, savepoint_job, with_found_sinks
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.sinks.file.capture import NEAR, FileSinkCapture
from tests.support.checkpoint.file_sink import FileSinkWriter
from tests.support.cli import succeed
from tests.support.jobs.simulated_job import BY, JOB, SimulatedJob
from tests.support.refuses import refuses
from tests.support.storage.contents import contents
from tests.support.storage.faulty_store import FaultyStore


@pytest.fixture
def shop(tmp_path: Path) -> SimulatedJob:
    """A query at batch 4 that writes files, in directories where no look finds these."""
    return SimulatedJob(tmp_path / "one" / "two" / "three").run(5)


def far(shop: SimulatedJob, tmp_path: Path) -> str:
    """The output, moved to where it is not near: its log keeps its times."""
    place = tmp_path / "elsewhere" / "out"
    place.parent.mkdir()
    Path(shop.sink_store.uri.removeprefix("file://")).rename(place)
    for entry in sorted((place / "_spark_metadata").iterdir()):
        at = entry.stat().st_mtime_ns
        entry.write_text(entry.read_text().replace(shop.sink_store.uri, f"file://{place}"))
        os.utime(entry, ns=(at, at))
    return f"file://{place}"


def found(shop: SimulatedJob, jobs: Path | None = None) -> list[tuple[str, str]]:
    request = TakeRequest(shop.checkpoint, shop.repository, JOB)
    owners = [] if jobs is None else owners_of(load_jobs(jobs).jobs.values(), shop.checkpoint.uri)
    return [(one.kind, one.path) for one in with_found_sinks(request, owners).sinks]


def declare(shop: SimulatedJob, tmp_path: Path, more: str = "", name: str = "another") -> Path:
    jobs = tmp_path / "jobs.toml"
    (tmp_path / "app.py").write_text("")
    jobs.write_text(
        f'repository = "{shop.repository_store.uri}"\n[jobs.{name}]\napplication = "app.py"\n'
        f'checkpoint = "{shop.checkpoint.uri}"\n{more}'
    )
    return jobs


class TestFoundSinks:
    def test_nothing_is_known(self, shop: SimulatedJob, tmp_path: Path) -> None:
        far(shop, tmp_path)
        assert found(shop) == []

    def test_the_declared_job_that_owns_the_checkpoint_whatever_the_savepoint_is_called(
        self, shop: SimulatedJob, tmp_path: Path
    ) -> None:
        far(shop, tmp_path)
        jobs = declare(shop, tmp_path, '[[jobs.another.sinks]]\nkind = "append"\n')
        assert found(shop, jobs) == [("append", "foreachBatch")]

    def test_the_declared_job_by_whichever_name_the_checkpoint_is_reached(
        self, shop: SimulatedJob, tmp_path: Path
    ) -> None:
        jobs = load_jobs(declare(shop, tmp_path)).jobs.values()
        (tmp_path / "link").symlink_to(shop.checkpoint.uri.removeprefix("file://"))
        assert [one.name for one, _ in owners_of(jobs, f"file://{tmp_path}/link")] == ["another"]

    def test_what_its_last_driver_recorded(self, shop: SimulatedJob, tmp_path: Path) -> None:
        output = far(shop, tmp_path)
        jobs = declare(shop, tmp_path)
        control = load_jobs(jobs).job("another").records()
        control.record_query(None, {"query_id": shop.live.query_id, "sink": f"FileSink[{output}]"})
        assert found(shop, jobs) == [("file", output)]
        control.record_query(None, {"query_id": "of another", "sink": f"FileSink[{output}]"})
        assert found(shop, jobs) == []

    @pytest.mark.parametrize("sink", ["FileSink", "ConsoleTable"])
    def test_the_marker_beside_the_checkpoint(self, shop: SimulatedJob, tmp_path: Path, sink: str) -> None:
        output = far(shop, tmp_path)
        said = {"query_id": shop.live.query_id, "sink": sink}
        why = renew_marker(
            shop.checkpoint.uri,
            job=JOB,
            query="main",
            generation=shop.control().generations().ensure_first(shop.checkpoint.uri, by=BY),
            control=shop.control(),
            by=BY,
            facts=said | ({"sink_path": output} if sink == "FileSink" else {}),
        )
        assert why is None
        assert found(shop) == [("file", output) if sink == "FileSink" else (sink, sink)]

    def test_the_last_savepoint_of_the_query(self, shop: SimulatedJob, tmp_path: Path) -> None:
        shop.take()
        shop.run(1)
        assert found(shop) == [("file", shop.sink_store.uri)]
        assert shop.sink is not None
        shop.sink = FileSinkWriter(shop.open("another"))
        shop.sink_store = shop.sink.store
        for batch in range(6):
            shop.sink.write(batch, [{}])
        shop.run(1)
        assert found(shop) == [], "the query has left that output"

    def test_of_many_savepoints_without_sinks_a_few_are_looked_at(self, tmp_path: Path) -> None:
        shop = SimulatedJob(tmp_path / "one" / "two" / "three", sink=False)
        for _ in range(12):
            take(TakeRequest(shop.run(1).checkpoint, shop.repository, JOB))
        store = FaultyStore(shop.repository_store)
        request = TakeRequest(shop.run(1).checkpoint, Repository.open(store), JOB)
        assert not take(with_found_sinks(request)).already_there
        read = [call.key for call in store.calls if call.operation in ("read", "open")]
        assert len({key for key in read if key.startswith("savepoints/")}) <= 6

    def test_a_savepoint_that_is_there_without_is_no_conflict(self, tmp_path: Path) -> None:
        shop = SimulatedJob(tmp_path / "near")
        for _ in range(4):
            shop.run(1)
            time.sleep(0.01)  # the clock of a disk moves on
        request = TakeRequest(shop.checkpoint, shop.repository, JOB)
        bare = take(request)
        again = take(with_found_sinks(request))
        assert again.already_there and again.savepoint == bare.savepoint
        assert again.warnings[0].startswith("No sink is known")

    def test_one_that_no_longer_tells_of_the_batch_stops_no_take(self, tmp_path: Path) -> None:
        shop = SimulatedJob(tmp_path / "near")
        for _ in range(11):
            shop.run(1)
            time.sleep(0.01)
        request = with_found_sinks(TakeRequest(shop.checkpoint, shop.repository, JOB, batch=6))
        taken = take(request)
        manifest = shop.repository.load(JOB, taken.savepoint)
        assert manifest.sinks == () and manifest.sink_candidates == (shop.sink_store.uri,)
        assert taken.warnings[0].startswith("No sink is known") and shop.sink_store.uri in taken.warnings[0]

    def test_one_that_was_compacted_meanwhile_stops_no_take(
        self, shop: SimulatedJob, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shop.run(2).take()
        shop.run(1)
        with monkeypatch.context() as patch:
            patch.setattr(FileSinkCapture, "capture", lambda *_: pytest.fail("its log was read"))
            request = with_found_sinks(TakeRequest(shop.checkpoint, shop.repository, JOB, batch=7))
        assert [one.path for one in request.sinks] == [shop.sink_store.uri]
        shop.run(4)
        taken = take(request)
        assert taken.warnings == (
            "No sink is known: a restore cannot protect the output; add --file-sink DIR "
            f"({shop.sink_store.uri} may be it)",
        )
        named = replace(request, batch=8, sinks_found=False)
        with pytest.raises(NotFoundError, match="no longer tells"):
            take(named)

    def test_one_of_two_that_cannot_be_saved_is_said(self, shop: SimulatedJob) -> None:
        gone = FileSinkCapture(shop.open("gone").uri)
        good = FileSinkCapture(shop.sink_store.uri)
        request = TakeRequest(shop.checkpoint, shop.repository, JOB, sinks=[gone, good], sinks_found=True)
        taken = take(request)
        assert taken.warnings == (
            f"{gone.path} may be a sink, too: a restore cannot protect it; add --file-sink DIR",
        )
        manifest = shop.repository.load(JOB, taken.savepoint)
        assert [one["path"] for one in manifest.sinks] == [good.path] and manifest.sinks[0]["files"]

    def test_the_command_line_and_a_declared_job(self, tmp_path: Path) -> None:
        shop = SimulatedJob(tmp_path / "near")
        for _ in range(4):
            shop.run(1)
            time.sleep(0.01)
        ck, where = shop.checkpoint.uri, tmp_path / "other"
        answer = succeed("take", ck, "-r", where, "--job", "orders", "--json").document
        assert "was not named: it was found near the checkpoint" in answer["warnings"][0]
        shown = succeed("show", "latest", "-r", where, "--json").document
        assert shown["sinks_known"] is True and shown["sinks"][0]["found"]
        job = load_jobs(declare(shop, tmp_path, name="orders")).job("orders")
        (taken,) = savepoint_job(job, by=BY).savepoints.values()
        assert "was not named" in taken.warnings[0]


class TestFoundNearIsAGuess:
    """Two queries of one driver run in step, so the log may be another query's."""

    @pytest.fixture
    def taken(self, shop: SimulatedJob) -> str:
        """A savepoint of batch 4 whose sink was found near the checkpoint; two batches follow."""
        first = take(with_found_sinks(TakeRequest(shop.checkpoint, shop.repository, JOB)))
        second = take(with_found_sinks(TakeRequest(shop.checkpoint, shop.repository, JOB, batch=3)))
        shop.run(2)
        for one in (first, second):  # the second was found by the first, which makes it no better
            (record,) = shop.repository.load(JOB, one.savepoint).sinks
            assert record["found"] == NEAR and record["path"] == shop.sink_store.uri
        return first.savepoint

    def test_no_rollback_of_it_without_a_persons_word(self, shop: SimulatedJob, taken: str) -> None:
        before, output = contents(shop.sink_store), shop.sink_store.uri
        with refuses(RefusedError, "sink-would-lose-rows", hint=f"--file-sink {output}"):
            shop.restore(taken)
        with refuses(RefusedError, "sink-not-named", hint=f"--file-sink {output}"):
            shop.restore(taken, sink="rollback")
        assert contents(shop.sink_store) == before

    @pytest.mark.parametrize("by_path", [False, True])
    def test_with_it_there_is(self, shop: SimulatedJob, taken: str, by_path: bool) -> None:
        output = shop.sink_store.uri
        if by_path:
            report = shop.restore(taken, sink_of={output: "rollback"})
        else:
            report = shop.restore(taken, sink="rollback", file_sinks=(output,))
        assert report.rolled_back[0]["files_aside"] == 2
