"""A job that was restored to write elsewhere is not started as long as its arguments name the old output."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streambank.core.errors import RefusedError
from streambank.declaration.declaration import Job
from streambank.driver.prepare import prepare_launch
from streambank.job.start import start_job
from tests.support.jobs.declared import BY, declare, fake_launcher
from tests.support.refuses import refuses


def move_on(job: Job, old: str, new: str) -> None:
    """Do what a restore with a new sink does to the job's records."""
    records = job.records()
    generations = records.generations()
    generations.ensure_first(job.checkpoint, by=BY)
    with records.operation("restore", by=BY) as operation:
        proposed = generations.propose(taken=lambda location: False)
        generations.switch(replace(proposed, new_sinks={old: new}), operation=operation)


@pytest.mark.parametrize(
    "argument", ["{folder}/out", "--output={folder}/out/", "file://{folder}/out", "file:{folder}/out", "out"]
)
def test_an_argument_that_names_the_old_output_is_refused(folder: Path, argument: str) -> None:
    job = declare(folder, "--batches", "5", argument.format(folder=folder))
    move_on(job, f"file://{folder}/out", f"file://{folder}/new")

    with refuses(RefusedError, "old-sink", match="generation 2 was restored to write to"):
        start_job(job, by=BY, launcher=fake_launcher(folder))

    assert job.records().lease.view() is None


@pytest.mark.parametrize(
    "argument", ["{folder}/new", "{folder}/out2", "{folder}/out/input", "--x=s3://", "="]
)
def test_other_arguments_are_none_of_its_business(folder: Path, argument: str) -> None:
    job = declare(folder, argument.format(folder=folder))
    move_on(job, f"file://{folder}/out", f"file://{folder}/new")

    spec = prepare_launch(job, job.records(), by=BY)

    assert spec.queries["main"].generation == 2


def test_the_next_generation_says_anew_where_it_writes(folder: Path) -> None:
    job = declare(folder, f"{folder}/out")
    move_on(job, f"file://{folder}/out", f"file://{folder}/new")
    records = job.records()
    with records.operation("restore", by=BY) as operation:
        records.generations().switch(
            records.generations().propose(taken=lambda location: False), operation=operation
        )

    assert prepare_launch(job, records, by=BY).queries["main"].generation == 3
