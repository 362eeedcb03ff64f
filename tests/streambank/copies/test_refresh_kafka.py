"""A copy of a job that reads from and writes to a real broker, with the real application on real Spark."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyarrow.parquet import read_table

from streambank.checkpoint.reader import CheckpointReader
from streambank.copies.refresh import RefreshRequest, plan_refresh, refresh
from streambank.core.errors import RefusedError
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.job.start import start_job
from streambank.job.stop import stop_job
from streambank.kafka.offsets import parse_offsets
from streambank.storage import local_path, open_store
from tests.support.jobs.declared import BY, end_drivers
from tests.support.kafka.flights_job import DELAYS, FLIGHTS, PATIENCE_S, Origins, origins
from tests.support.kafka.real_broker import Kafka, running
from tests.support.refuses import refuses
from tests.support.waiting import poll

pytestmark = [pytest.mark.storm, pytest.mark.spark, pytest.mark.timeout(1800)]

STAGING = f"""
[jobs.origins.copies.staging]
checkpoint = "staging/checkpoint"
outputs = {{ {DELAYS} = "staging/delays" }}
"""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with running(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


def hashes(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def counted(values: list[Any]) -> Counter[str]:
    return Counter(json.dumps(value, sort_keys=True) for value in values)


def has_read(copy: Job, ends: Mapping[int, int]) -> bool:
    generation = copy.records().generation()
    assert generation is not None
    closure = CheckpointReader(open_store(generation.location)).inspect().closure
    offsets = None if closure is None else parse_offsets(closure.sources[0].offset)
    return offsets is not None and dict(offsets[FLIGHTS]) == ends


def rows(output: str) -> list[Any]:
    folder = local_path(output)
    assert folder is not None
    files = (path for path in folder.rglob("*.parquet"))
    return [json.loads(value) for path in files for value in read_table(path)["value"].to_pylist()]


def declare_copy(live: Origins, folder: Path) -> Job:
    jobs = folder / "jobs.toml"
    jobs.write_text(f"{jobs.read_text()}{STAGING}")
    live.job = load_jobs(jobs).job("origins")
    return load_jobs(jobs).job("origins@staging")


def test_it_reads_on_from_the_topic_and_writes_to_a_folder_instead_of_one(
    kafka: Kafka, tmp_path: Path
) -> None:
    with origins(kafka, tmp_path) as live:
        copy = declare_copy(live, tmp_path)
        live.feed(1200)
        live.start()
        live.wait_all_read()
        stop_job(live.job, by=BY)
        live.savepoint()
        earlier = counted(live.values())
        live.feed(800)
        live.start()
        live.wait_all_read()
        stop_job(live.job, by=BY)
        later = counted(live.values()) - earlier
        assert earlier and later
        before, ends = hashes(tmp_path / "checkpoints"), kafka.ends(DELAYS)

        (query,) = refresh(RefreshRequest(live.job, "staging", by=BY)).queries
        assert query.source_effect.startswith("Kafka has everything after the savepoint: ")
        (output,) = query.outputs.values()
        try:
            start_job(copy, by=BY, timeout_s=PATIENCE_S)
            poll(lambda: has_read(copy, kafka.ends(FLIGHTS)), timeout_s=PATIENCE_S)
            poll(lambda: counted(rows(output)) >= later, timeout_s=PATIENCE_S)
            stop_job(copy, by=BY)
        finally:
            end_drivers(copy.records())
        assert counted(rows(output)) == later, "what the live query wrote after the savepoint, once"
        assert (hashes(tmp_path / "checkpoints"), kafka.ends(DELAYS)) == (before, ends)

        # The broker lets go of what the copy would read next.
        kafka.delete_before(FLIGHTS, kafka.ends(FLIGHTS))
        plan = plan_refresh(RefreshRequest(live.job, "staging", by=BY))
        assert [one.code for one in plan.refusals] == ["source-would-lose-records"]
        with refuses(RefusedError, "source-would-lose-records"):
            refresh(RefreshRequest(live.job, "staging", by=BY))
        (query,) = refresh(RefreshRequest(live.job, "staging", source="accept", by=BY)).queries
        assert query.source_effect.endswith("This is accepted.")
