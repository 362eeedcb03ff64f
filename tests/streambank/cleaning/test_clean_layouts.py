"""A declared place that holds the checkpoint, too: an earlier generation goes from there all the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from streambank.cleaning.clean import Decision, clean_job
from streambank.core.units import utc_now
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.declaration.maintenance import GenerationsPolicy
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.declared import BY
from tests.support.jobs.left_behind import go_on, next_generation, save

TABLE = '[[jobs.{job}.sinks]]\nkind = "delta"\ntable = "{place}"'
WORK = '[jobs.{job}.state]\nwork = "{place}"'
SCRATCH = '[jobs.{job}.drill]\nscratch = "{place}"'
OTHER = '[jobs.payments]\napplication = "app.py"\ncheckpoint = "{checkpoint}"\n'


def clean(job: Job, jobs: Mapping[str, Job]) -> Decision:
    """What becomes of the only directory that is left."""
    policy, now = GenerationsPolicy(keep=1, keep_for_s=0.001), utc_now() + timedelta(days=5)
    (decision,) = clean_job(job, jobs=jobs, policy=policy, now=now, dry_run=False, by=BY).decisions
    return decision


@pytest.mark.parametrize("owner", ["orders", "payments"])
@pytest.mark.parametrize(
    ("place", "checkpoint"),
    [(TABLE, "data/_checkpoints/orders"), (WORK, "data/orders"), (SCRATCH, "data/orders")],
    ids=["table", "work", "scratch"],
)
def test_a_generation_goes_beside_its_checkpoint_in_a_declared_place(
    tmp_path: Path, place: str, checkpoint: str, owner: str
) -> None:
    space = f"memory://{tmp_path.name}"
    (tmp_path / "app.py").write_text("")
    file = tmp_path / "jobs.toml"
    file.write_text(
        f'repository = "{space}/repository"\n'
        f'[jobs.orders]\napplication = "app.py"\ncheckpoint = "{space}/{checkpoint}"\n'
        + OTHER.format(checkpoint=f"{space}/payments")
        + place.format(job=owner, place=f"{space}/data")
    )
    declared = load_jobs(file)
    job = declared.job("orders")
    LiveCheckpoint(open_store(job.checkpoint)).run(2)
    next_generation(job, save(job), sink="accept")
    go_on(job)
    open_store(f"{space}/data").write("part-0.parquet", b"rows")
    inside = replace(job, name="inside", replicate=replace(job.replicate, to=(f"{job.checkpoint}/replica",)))
    error = clean(job, {**declared.jobs, "inside": inside}).error
    assert error is not None and error.code == "not-apart"
    gone = clean(job, declared.jobs)
    assert (gone.state, gone.directory.location) == ("removed", job.checkpoint)
    assert open_store(f"{space}/data").exists("part-0.parquet")
    assert open_store(f"{job.checkpoint}.g0002").exists("metadata")
