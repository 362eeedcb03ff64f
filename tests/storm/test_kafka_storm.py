"""A job from Kafka to Kafka, by real Spark on a real broker: saved, destroyed, restored, exact."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import RefusedError, StreambankError
from streambank.kafka.settings import ASK_TIMEOUT_S
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore, restore
from tests.support.cli import succeed
from tests.support.jobs.declared import BY
from tests.support.kafka.flights_job import DELAYS, FLIGHTS, Origins, origins
from tests.support.kafka.real_broker import Kafka, running
from tests.support.refuses import refuses

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3000)]

OUTAGE_S = 60
"""How long the broker is away; by then its clients have given up more than once."""


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
    where = ("-r", job.job.repository)
    (listed,) = succeed("list", *where, "--replay", "--json").document
    assert listed["replay"]["state"] == "for-ever"
    shown = succeed("show", saved.savepoint, *where, "--job", "origins")
    assert "replay for ever" in " ".join(shown.out.split())
    # The same checkpoint as somebody takes it who has declared nothing, while the query runs.
    servers = ("--kafka", job.kafka.bootstrap, "--kafka-sink", DELAYS)
    taken = succeed("take", job.checkpoint, *where, "--job", "by-hand", *servers, "--json").document
    by_hand = job.repository.load("by-hand", taken["savepoint"])
    assert by_hand.sources[0]["kafka"]["topics"][FLIGHTS]["topic_id"] == told["topics"][FLIGHTS]["topic_id"]
    assert by_hand.sinks[0]["topics"][DELAYS]["topic_id"] == sink["topics"][DELAYS]["topic_id"]

    job.wait_committed(saved.batch + 3)  # the output is further than the savepoint
    job.lose_checkpoint()
    before = len(job.values())

    plan = plan_restore(
        RestoreRequest(job.repository, saved.savepoint, job="origins", generation=job.job.records())
    )
    assert [refusal.code for refusal in plan.refusals] == ["sink-would-repeat-rows"]
    foretold = plan.sinks[0]["repeated_records"]
    assert 0 < foretold <= before
    with pytest.raises(RefusedError, match=f"got (about )?{foretold} records after batch {saved.batch}"):
        restore(
            RestoreRequest(
                job.repository, saved.savepoint, job="origins", generation=job.job.records(), by=BY
            )
        )
    report = restore(
        RestoreRequest(
            job.repository, saved.savepoint, job="origins", generation=job.job.records(), sink="accept", by=BY
        )
    )
    assert any(f"{foretold} records after batch" in warning for warning in report.warnings)

    job.start()
    done = job.finish()
    assert done.equal, (done.missing[:5], done.wrong[:5])
    assert done.expected > 50
    assert foretold <= done.again <= foretold + plan.sinks[0]["uncertain_records"]


def test_a_broker_that_is_away_stops_neither_a_take_nor_the_query_but_a_restore(job: Origins) -> None:
    job.feed(2000)
    job.start()
    job.wait_committed(2)
    job.kafka.kill()
    began = time.monotonic()
    saved = job.savepoint()
    (source,), (sink,) = saved.sources, saved.sinks
    assert "cannot be asked" in source["kafka"]["not_asked"] and "cannot be asked" in sink["not_asked"]
    assert source["kafka"]["topics"][FLIGHTS]["partitions"]["0"]["next"] >= 0
    # It waits for the cluster once, whatever else there is to ask; the rest is this machine's own pace.
    assert saved.stats["seconds"] < ASK_TIMEOUT_S + 60
    plan = plan_restore(
        RestoreRequest(job.repository, saved.savepoint, job="origins", generation=job.job.records())
    )
    assert {"source-not-known", "sink-not-known"} <= {refusal.code for refusal in plan.refusals}
    while time.monotonic() < began + OUTAGE_S:
        time.sleep(1)
    at = job.committed
    job.kafka.start()
    job.feed(1000)
    job.wait_committed(at + 1)
    assert job.start().state == "already-running", "it is the same driver"

    job.lose_checkpoint()
    generation = job.job.records()
    plan = plan_restore(RestoreRequest(job.repository, saved.savepoint, job="origins", generation=generation))
    assert [refusal.code for refusal in plan.refusals] == ["sink-would-repeat-rows"]
    foretold = plan.sinks[0]["repeated_records"]
    assert plan.sinks[0]["counted"] == "by-time", "the savepoint itself could not count"
    restore(
        RestoreRequest(
            job.repository, saved.savepoint, job="origins", generation=generation, sink="accept", by=BY
        )
    )
    job.start()
    done = job.finish()
    assert done.equal, (done.missing[:5], done.wrong[:5])
    assert done.again >= foretold, "more only where the producer itself wrote twice when the broker died"


def test_partitions_that_were_added_since_are_read_by_the_restored_query(job: Origins) -> None:
    job.feed(1500)
    job.start()
    job.wait_committed(1)
    job.wait_all_read()
    saved = job.savepoint()
    job.lose_checkpoint()
    job.kafka.add_partitions(FLIGHTS, 4)
    job.feed(500)
    report = restore(
        RestoreRequest(
            job.repository, saved.savepoint, job="origins", generation=job.job.records(), sink="accept", by=BY
        )
    )
    assert report.plan.sources[0]["added"] == [f"{FLIGHTS}/2", f"{FLIGHTS}/3"]
    assert any("read from their beginning" in warning for warning in report.warnings)
    assert {2, 3} <= {partition for partition, end in job.kafka.ends(FLIGHTS).items() if end > 0}
    job.start()
    done = job.finish()
    assert done.equal, (done.missing[:5], done.wrong[:5])


def test_what_a_refused_restore_would_have_cost(job: Origins) -> None:
    """The other way round: accepted all the same, Spark fails in its first batch, as the refusal says."""
    job.feed(1500)
    job.start()
    job.wait_committed(1)
    job.wait_all_read()
    saved = job.savepoint()
    job.feed(500)
    job.wait_all_read()
    job.lose_checkpoint()
    job.kafka.delete_before(FLIGHTS, job.kafka.ends(FLIGHTS))
    choices: dict[str, Any] = {"job": "origins", "generation": job.job.records(), "sink": "accept"}
    with refuses(RefusedError, "source-would-lose-records", match="deleted"):
        restore(RestoreRequest(job.repository, saved.savepoint, by=BY, **choices))
    report = restore(RestoreRequest(job.repository, saved.savepoint, by=BY, source="accept", **choices))
    assert report.plan.sources[0]["lost_records"] == 550, "500 departures, one in ten of them twice"
    with pytest.raises(StreambankError, match="Some data may have been lost"):
        job.start()
