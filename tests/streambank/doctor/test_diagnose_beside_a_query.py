"""Looks at a query that commits fifty batches a second: none of them says that something is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from streambank.checkpoint.position import batches_in
from streambank.checkpoint.reader import CheckpointReader
from streambank.control.processes import this_process
from streambank.core.finding import Finding
from streambank.declaration.declaration import Job
from streambank.doctor.checks import installation
from streambank.doctor.diagnose import diagnose_checkpoint, diagnose_job
from streambank.driver.damage import damaged_query
from streambank.job.status import job_status
from streambank.recovery.foresee import foresee
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.sinks.file.capture import FileSinkCapture
from streambank.sla.assess import assess_job
from streambank.storage import open_store
from tests.support.checkpoint.busy_query import BusyQuery
from tests.support.checkpoint.doctor_inputs import check_checkpoint
from tests.support.checkpoint.file_sink import FileSinkWriter
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.declared import declare

LOOKS = 100
WAYS_BACK = ("restore", "rollback", "roll back", "stop")


@pytest.fixture(autouse=True)
def nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed here is not what these tests are about."""
    monkeypatch.setattr(installation, "check_installation", lambda: [])


class Watched:
    """The job `flights` with its records and one savepoint; a busy query writes its checkpoint and output."""

    def __init__(self, folder: Path) -> None:
        self.job: Job = declare(folder)
        self.checkpoint = open_store(folder / "checkpoints/flights")
        self.output = open_store(folder / "out")

    def begin(self) -> None:
        """Record what its driver would have, and take a savepoint."""
        records = self.job.records()
        records.generations().ensure_first(self.job.checkpoint, by={"user": "test"})
        query_id = CheckpointReader(self.checkpoint).query_id()
        records.record_query(None, {"sink": f"FileSink[{self.output.uri}]", "query_id": query_id})
        records.lease.acquire([this_process("python")])
        self.repository = Repository.open(open_store(self.job.repository), create=True)
        self.savepoint = self.take()

    def take(self) -> str:
        sinks = [FileSinkCapture(self.output.uri, self.output)]
        return take(TakeRequest(self.checkpoint, self.repository, "flights", sinks=sinks)).savepoint


def errors(findings: Iterable[Finding]) -> list[str]:
    return [f"{one.code}: {one.cause}" for one in findings if one.severity == "error"]


def checked(watched: Watched) -> list[str]:
    return errors(check_checkpoint(watched.checkpoint, {"out": watched.output}))


def diagnosed(watched: Watched) -> list[str]:
    (found,) = diagnose_job(watched.job)
    return errors(found.findings)


def assessed(watched: Watched) -> list[str]:
    verdicts = assess_job(watched.job).verdicts
    return [f"{one.objective}: {one.why}" for one in verdicts if one.level not in ("ok", "unknown")]


def taken(watched: Watched) -> list[str]:
    watched.take()
    return []


def planned(watched: Watched) -> list[str]:
    request = RestoreRequest(
        watched.repository, watched.savepoint, job="flights", generation=watched.job.records()
    )
    plan = plan_restore(request)
    return [
        str(one["says"])
        for one in plan.sinks
        if one["standing"] != "ahead" or one["log_gap"] or one["missing_files"]
    ]


def foreseen(watched: Watched) -> list[str]:
    foresee(watched.job, None, {"operation": "rewrite", "where": "key.a = 1"})
    found = damaged_query(watched.job, "main", watched.checkpoint.uri)
    return [] if found is None else [one.cause for one in found.damages]


def status(watched: Watched) -> list[str]:
    query = job_status(watched.job).queries["main"]
    assert query.batch is not None and query.planned_batch is not None
    return [] if query.planned_batch >= query.batch else ["committed before it was planned"]


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    ("look", "retain"),
    [
        (checked, 10),
        *(
            pytest.param(look, retain, marks=pytest.mark.storm)
            for look, retain in [
                (checked, 100),
                (diagnosed, 100),
                (diagnosed, 10),
                (assessed, 100),
                (assessed, 10),
                (taken, 100),
                (planned, 100),
                (planned, 10),
                (foreseen, 100),
                (foreseen, 10),
                (status, 10),
            ]
        ),
    ],
)
def test_a_query_that_goes_on_meanwhile_is_not_called_broken(
    tmp_path: Path, look: Callable[[Watched], list[str]], retain: int
) -> None:
    watched = Watched(tmp_path)
    with BusyQuery(tmp_path / "checkpoints/flights", tmp_path / "out", retain=retain) as query:
        watched.begin()
        looks, begun = 0, batches_in(watched.checkpoint).committed or 0
        while looks < LOOKS or (batches_in(watched.checkpoint).committed or 0) < begun + LOOKS:
            looks += 1
            assert look(watched) == [], f"look {looks}"
    assert query.batches >= LOOKS
    assert 0 < query.quickest_s <= 1 / 50


def write(folder: Path, batches: int, sunk: int) -> Watched:
    """A query that has committed some batches, and whose sink has others."""
    watched = Watched(folder)
    LiveCheckpoint(watched.checkpoint).run(batches)
    sink = FileSinkWriter(watched.output)
    for batch in range(sunk):
        sink.write(batch, [{"batch": batch}])
    return watched


@pytest.mark.parametrize(("batches", "sunk", "code"), [(3, 4, "sink-ahead"), (4, 3, "sink-behind")])
def test_a_sink_that_is_really_elsewhere_is_an_error_and_the_driver_is_left_alone(
    tmp_path: Path, batches: int, sunk: int, code: str
) -> None:
    watched = write(tmp_path, batches, sunk)
    watched.job.records().generations().ensure_first(watched.job.checkpoint, by={"user": "test"})
    watched.job.records().record_query(None, {"sink": f"FileSink[{watched.output.uri}]", "query_id": "q"})

    def found() -> Finding:
        (diagnosis,) = diagnose_job(watched.job)
        (one,) = [one for one in diagnosis.findings if one.code == code]
        assert one.severity == "error"
        return one

    (bare,) = [
        one
        for one in diagnose_checkpoint(watched.checkpoint.uri, sinks={"out": watched.output}).findings
        if one.code == code
    ]
    assert bare.severity == "error"
    assert not any(word in bare.hint.lower() for word in WAYS_BACK), "it was written a moment ago"
    claim = watched.job.records().lease.acquire([this_process("python")])
    assert not any(word in found().hint.lower() for word in WAYS_BACK)
    assert "leave it running" in found().hint
    claim.release()
    assert "Restore a savepoint" in found().hint
