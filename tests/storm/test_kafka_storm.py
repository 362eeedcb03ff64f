"""A job from Kafka to Kafka, by real Spark on a real broker: saved, destroyed, restored, exact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streambank.errors import RefusedError
from streambank.recovery.restore import plan_restore, restore
from tests.support.jobs import BY
from tests.support.kafka import Kafka, running
from tests.support.kafka_flights import DELAYS, FLIGHTS, Origins, origins

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3000)]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with running(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def job(kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Origins]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with origins(kafka, tmp_path) as found:
        yield found


def test_a_job_goes_on_from_a_savepoint_and_repeats_what_was_foretold(job: Origins) -> None:
    job.feed(2500)
    job.start()
    job.wait_committed(3)
    saved = job.savepoint()
    (source,), (sink,) = saved.sources, saved.sinks
    told = source["kafka"]
    assert (told["bootstrap"], told["subscribe"], told["not_asked"]) == (job.kafka.bootstrap, FLIGHTS, None)
    assert told["topics"][FLIGHTS]["topic_id"]
    assert all(one["latest"] >= one["next"] for one in told["topics"][FLIGHTS]["partitions"].values())
    assert (sink["kind"], sink["not_asked"], sink["batch"]) == ("kafka", None, saved.batch)
    assert sink["topics"][DELAYS]["topic_id"]

    job.wait_committed(saved.batch + 3)  # the output is further than the savepoint
    job.lose_checkpoint()
    before = len(job.values())

    plan = plan_restore(job.repository, saved.savepoint, job="origins", generation=job.job.records())
    assert [refusal.code for refusal in plan.refusals] == ["sink-would-repeat-rows"]
    foretold = plan.sinks[0]["repeated_records"]
    assert 0 < foretold <= before
    with pytest.raises(RefusedError, match=f"got {foretold} records after batch {saved.batch}"):
        restore(job.repository, saved.savepoint, job="origins", generation=job.job.records(), by=BY)
    report = restore(
        job.repository, saved.savepoint, job="origins", generation=job.job.records(), sink="accept", by=BY
    )
    assert any(f"got {foretold} records" in warning for warning in report.warnings)

    job.start()
    done = job.finish()
    assert done.equal, (done.missing[:5], done.wrong[:5])
    assert done.expected > 50
    assert done.again == foretold
