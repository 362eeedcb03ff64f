"""Where a key may still be: directories in which a query's checkpoint lives, or has lived."""

from __future__ import annotations

import shutil
from pathlib import Path

from streambank.savepoint.take import TakeRequest, take
from streambank_spark.rewrite.key_places import live_places
from tests.support.jobs.simulated_job import JOB, SimulatedJob


def test_a_place_in_which_there_is_nothing_does_not_hold_it(tmp_path: Path) -> None:
    shop = SimulatedJob(tmp_path).run(2)
    take(TakeRequest(shop.checkpoint, shop.repository, JOB))
    (there,) = live_places(shop.repository, JOB, None)
    assert (there.location, there.empty) == (shop.checkpoint.uri, False)
    assert there.to_dict()["found"].startswith("unknown: it may hold the key")
    shutil.rmtree(tmp_path / "ck")
    (gone,) = live_places(shop.repository, JOB, None)
    assert gone.empty and gone.to_dict()["found"].startswith("no: there is nothing in this place")
