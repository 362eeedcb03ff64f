"""Records of one job have `clean` delete the checkpoint in use, or what a rollback of another job set aside."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from streambank.control.records import encode_json
from streambank.core.units import to_json_time, utc_now
from streambank.storage import open_store
from tests.attacks.test_clean import clean, restored, states
from tests.attacks.test_clean import temporary_folder as temporary_folder
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.declared import BY, declare
from tests.support.jobs.left_behind import go_on, next_generation, save


@pytest.mark.parametrize("numbers", [(3,), (3, 4), (3, 4, 5, 6)])
def test_the_checkpoint_in_use_stays_where_records_name_newer_ones(
    tmp_path: Path, numbers: tuple[int, ...]
) -> None:
    job = restored(declare(tmp_path))
    records, live = job.records(), tmp_path / "checkpoints/flights.g0002"
    for number in numbers:
        at = open_store(f"{job.checkpoint}.g{number:04d}").uri
        made_at = to_json_time(utc_now() + timedelta(minutes=1))
        records.store.write(
            f"generation/main/{number:010d}.json",
            encode_json(
                {"generation": number, "location": at, "from_savepoint": None, "by": BY, "made_at": made_at}
            ),
        )
    found = {one.directory.location: one.why for one in clean(job).decisions}
    assert "which has not committed a later batch yet" in found[live.as_uri()]
    assert (live / "offsets").is_dir() and (live / "commits").is_dir()


def test_an_earlier_generation_goes_once_the_query_is_ahead_of_it(tmp_path: Path) -> None:
    """Of two that were left at batch 5, by a restore of batch 1."""
    job = declare(tmp_path)
    LiveCheckpoint(open_store(job.checkpoint)).run(2)
    early = save(job)
    for _ in range(4):
        go_on(job)
    for _ in range(2):
        next_generation(job, early, sink="accept")
    go_on(job)
    second = f"{job.checkpoint}.g0002"
    assert states(clean(job)) == {job.checkpoint: "kept", second: "removed"}, "2 was left at batch 1"
    for _ in range(4):
        go_on(job)
    assert states(clean(job)) == {job.checkpoint: "removed"}
