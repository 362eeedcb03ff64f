"""A rollback of an output that other queries read."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from streambank.code.code import Code
from streambank.core.choices import SinkChoice
from streambank.core.errors import RefusedError
from streambank.declaration.load import load_jobs, using_variables
from streambank.job.savepoint import savepoint_job
from streambank.recovery.plan import RestorePlan
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore
from streambank.recovery.sinks import readers
from streambank.recovery.sinks.readers import READERS, readers_of, reads, said_of_readers
from streambank.storage import open_store
from streambank.upgrade import undo
from tests.support.checkpoint.file_sink import FileSinkWriter
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.cli import streambank, succeed
from tests.support.jobs.simulated_job import BY, SimulatedJob


@pytest.mark.parametrize(
    ("description", "output", "expected"),
    [
        ("FileStreamSource[file:/data/out]", "file:///data/out", True),
        ("FileStreamSource[file:/data/out/*/day=*]", "file:///data/out", True),
        ("FileStreamSource[file:/data/*]", "file:///data/out", True),
        ("FileStreamSource[file:/data/out2]", "file:///data/out", False),
        ("FileStreamSource[file:/data/in/*]", "file:///data/out", False),
        ("FileStreamSource[s3a://lake/out]", "s3://lake/out", True),
        ("FileStreamSource[file:/data]", "file:///data/out", None),
        ("FileStreamSource[file:/data]", "file:///database/out", False),
        ("DeltaSource[file:/data/table]", "file:///data/table", True),
        ("IcebergStream(shop.orders)", "shop.orders", True),
        ("IcebergStream(shop.orders_old)", "shop.orders", False),
        ("KafkaV2[Subscribe[orders]]", "file:///data/out", False),
    ],
)
def test_by_what_spark_says_of_a_source(description: str, output: str, expected: bool | None) -> None:
    assert reads(description, output) is expected


def test_every_rollback_says_it(tmp_path: Path) -> None:
    shop = SimulatedJob(tmp_path).run(3)
    taken = shop.take()

    def warned(sink: SinkChoice) -> bool:
        request = RestoreRequest(shop.repository, taken.savepoint, into=shop.open("restored"), sink=sink)
        return READERS in plan_restore(request).warnings

    assert not warned("rollback"), "there is nothing to take back"
    shop.run(2)
    assert warned("rollback") and warned("rollback-accept")
    assert not warned("refuse") and not warned("accept")
    assert READERS in shop.restore(taken.savepoint, sink="rollback").warnings


class KnownElsewhere(dict[str, str]):
    def look_up(self, name: str) -> str | None:
        return "prod" if name == "var:stage" else None


@dataclass
class Pair:
    """A job `orders` that writes files, and a job `reports` that reads them."""

    jobs_file: Path
    output: FileSinkWriter
    live: dict[str, LiveCheckpoint]

    def run(self, name: str, batches: int) -> None:
        live = self.live[name]
        for _ in range(batches):
            live.plan()
            if name == "orders":
                self.output.write(live.next_batch, [{"batch": live.next_batch}])
            live.commit()

    def take(self, name: str) -> str:
        return savepoint_job(load_jobs(self.jobs_file).job(name), by=BY).savepoints["main"].savepoint

    def generation(self, name: str) -> str | None:
        found = load_jobs(self.jobs_file).job(name).records().generation(None)
        return None if found is None else found.from_savepoint


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pair:
    (tmp_path / "app.py").write_text("")
    jobs_file = tmp_path / "jobs.toml"
    jobs_file.write_text(
        'repository = "repository"\n'
        + "".join(
            f'[jobs.{name}]\napplication = "app.py"\ncheckpoint = "ck-{name}"\n'
            for name in ("orders", "reports")
        )
    )
    monkeypatch.setenv("STREAMBANK_JOBS", str(jobs_file))
    output = FileSinkWriter(open_store(tmp_path / "out"))
    live = {}
    declared = load_jobs(jobs_file)
    for name in ("orders", "reports"):
        job = declared.job(name)
        live[name] = LiveCheckpoint(open_store(job.queries["main"]))
        facts = {"query_id": live[name].query_id, "sources": ["KafkaV2[Subscribe[events]]"]}
        if name == "orders":
            facts["sink"] = f"FileSink[{output.store.uri}]"
        else:
            facts |= {"sources": [f"FileStreamSource[file:{tmp_path}/out]"], "sink": "ConsoleTable"}
        job.records().record_query(None, facts)
    return Pair(jobs_file, output, live)


def test_declared_readers_are_named_and_restored_together(pair: Pair) -> None:
    pair.run("orders", 3)
    pair.run("reports", 2)
    before, writer = pair.take("reports"), pair.take("orders")
    pair.run("orders", 2)
    pair.run("reports", 2)
    later = pair.take("reports")
    planned = succeed("job", "restore", "orders", writer, "--sink", "rollback", "--dry-run").out
    assert "Query reports reads file://" in planned and "--with reports" in planned
    both = ("job", "restore", "orders", writer, "--with", "reports", "--sink", "rollback")
    planned = succeed(*both, "--dry-run").out
    assert planned.index(f"would restore savepoint {before} of reports") < planned.index(writer)
    found = succeed(*both, "--json").document
    assert found["queries"]["main"]["savepoint"] == writer
    assert found["readers"][0]["queries"]["main"]["savepoint"] == before != later
    said = " ".join(found["queries"]["main"]["warnings"])
    assert "Query reports" not in said and READERS not in said, "it was restored before"
    assert (pair.generation("orders"), pair.generation("reports")) == (writer, before)
    assert pair.output.latest() == 2


@pytest.mark.parametrize("folder", ["out", "out/day=1", "in"])
def test_a_reader_of_the_directory_above_is_one_if_it_has_read_there(
    pair: Pair, tmp_path: Path, folder: str
) -> None:
    """By `recursiveFileLookup` or directories of partitions, which only the source's log shows."""
    facts = {"query_id": pair.live["reports"].query_id, "sources": [f"FileStreamSource[file:{tmp_path}]"]}
    load_jobs(pair.jobs_file).job("reports").records().record_query(None, facts)
    line = json.dumps({"path": f"file://{tmp_path}/{folder}/a.json", "timestamp": 1, "batchId": 0})
    pair.live["reports"].store.write("sources/0/0", f"v1\n{line}".encode())
    found = readers_of([pair.output.store.uri], str(pair.jobs_file), "orders")
    assert [one.job for one in found] == ([] if folder == "in" else ["reports"])


def test_readers_that_cannot_be_asked_in_time_are_not_left_out(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "_PATIENCE_S", -1)
    outputs = [pair.output.store.uri]
    found = readers_of(outputs, str(pair.jobs_file), "orders")
    assert list(said_of_readers(outputs, found, "orders")) == [READERS]


def test_readers_are_found_in_a_file_with_values_from_elsewhere(pair: Pair) -> None:
    with pair.jobs_file.open("a") as file:
        file.write('args = ["${var:stage}"]\n')
    outputs = [pair.output.store.uri]
    assert readers_of(outputs, str(pair.jobs_file), "orders") == [], "nobody knows what it stands for"
    with using_variables(lambda: KnownElsewhere({})):
        (found,) = readers_of(outputs, str(pair.jobs_file), "orders")
    assert found.job == "reports"


def test_the_way_back_of_an_upgrade_names_them(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.run("orders", 3)
    writer = pair.take("orders")
    pair.run("orders", 2)
    job = load_jobs(pair.jobs_file).job("orders")
    said: list[str] = []

    def planned(request: RestoreRequest) -> RestorePlan:
        said.extend(plan_restore(replace(request, sink="rollback")).warnings)
        raise RefusedError("That is enough.", code="enough")

    monkeypatch.setattr(undo, "plan_restore", planned)
    code = Code.declared(job)
    given: Any = {"launcher": None, "sink": None, "by": BY, "why": "", "say": print}
    undo.go_back(job, job.records(), {"main": writer}, code, **given)
    assert any("Query reports reads" in one and "--with reports" in one for one in said)


def test_what_speaks_against_one_changes_none(pair: Pair) -> None:
    pair.run("orders", 3)
    pair.run("reports", 2)
    pair.take("reports"), pair.take("orders")
    pair.run("orders", 2)
    refused = streambank("job", "restore", "orders", "--with", "reports")
    assert refused.code == 8 and "Spark would skip" in refused.err
    assert (pair.generation("orders"), pair.generation("reports")) == (None, None)
