"""Output whose log lacks an entry: what Spark does not go on over, no choice lets through."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.core.errors import RefusedError
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore
from tests.support.jobs.simulated_job import SimulatedJob
from tests.support.refuses import refuses
from tests.support.storage.contents import contents

LOG = "_spark_metadata"


@pytest.fixture
def shop(tmp_path: Path) -> SimulatedJob:
    return SimulatedJob(f"memory://{tmp_path.name}")


def lose(shop: SimulatedJob, what: str) -> None:
    """Lose a part of the output's log, which had batches 0 to 4."""
    names = {"newest": ["4"], "first": ["0"], "middle": ["2"], "all": list("01234")}[what]
    for name in names:
        shop.sink_store.delete(f"{LOG}/{name}")


@pytest.mark.parametrize("what", ["newest", "first", "middle", "all"])
def test_a_log_with_a_gap_is_not_accepted(shop: SimulatedJob, what: str) -> None:
    taken = shop.run(5).take()
    lose(shop, what)
    before = contents(shop.sink_store)

    with refuses(RefusedError, "sink-log-gap", match="BATCH_METADATA_NOT_FOUND") as refused:
        shop.restore(taken.savepoint, sink="accept")

    assert f"--new-sink {shop.sink_store.uri}=DIR" in refused.value.hint
    assert contents(shop.sink_store) == before
    assert contents(shop.open("restored")) == {}


def test_the_plan_names_the_entry_that_is_missing(shop: SimulatedJob) -> None:
    taken = shop.run(5).take()
    lose(shop, "newest")

    plan = plan_restore(
        RestoreRequest(shop.repository, taken.savepoint, into=shop.open("restored"), sink="accept")
    )

    assert [error.code for error in plan.refusals] == ["sink-log-gap"]
    assert "4 is missing" in str(plan.sinks[0]["log_gap"])


@pytest.mark.parametrize("what", ["newest", "all"])
def test_a_rollback_writes_what_is_missing(shop: SimulatedJob, what: str) -> None:
    taken = shop.run(5).take()
    before = contents(shop.sink_store)
    lose(shop, what)

    with pytest.raises(RefusedError) as refused:
        shop.restore(taken.savepoint, sink="accept")
    assert "--sink rollback" in refused.value.hint
    shop.restore(taken.savepoint, sink="rollback")

    after = contents(shop.sink_store)
    assert {path: data for path, data in after.items() if not path.startswith("_streambank_aside")} == before


def test_a_new_output_helps(shop: SimulatedJob) -> None:
    taken = shop.run(5).take()
    lose(shop, "newest")

    new = {shop.sink_store.uri: shop.open("new").uri}

    assert shop.restore(taken.savepoint, sink="accept", new_sinks=new).new_outputs[0]["batch"] == 4


def test_an_entry_that_spark_reads_no_more_may_be_damaged(shop: SimulatedJob) -> None:
    taken = shop.run(12).take()
    shop.sink_store.write(f"{LOG}/3", b"not an entry")

    report = shop.restore(taken.savepoint, sink="accept")

    assert report.plan.sinks[0]["standing"] == "damaged"
    assert report.plan.sinks[0]["log_gap"] is None


def test_later_batches_are_accepted_where_their_log_is_whole(shop: SimulatedJob) -> None:
    taken = shop.run(5).take()
    shop.run(7)
    assert shop.restore(taken.savepoint, sink="accept").plan.sinks[0]["standing"] == "ahead"
    shop.sink_store.delete(f"{LOG}/10")

    with refuses(RefusedError, "sink-log-gap"):
        shop.restore(taken.savepoint, "again", sink="accept")
