"""The job of a drill lies apart from the live one, and has another name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from streambank.core.errors import InputError
from streambank.declaration.declaration import Job
from streambank.drills.copy_of_job import check_scratch, copy_of, scratch_of
from streambank.driver.prepare import prepare_launch
from tests.support.jobs.copied_job import CopiedJob
from tests.support.jobs.declared import BY, declare
from tests.support.refuses import refuses

NAME = "drill-20261126T210000Z-0a1b2c"


def scratch_below(job: Job, folder: str | Path) -> str:
    return scratch_of(replace(job, drill=replace(job.drill, scratch=str(folder))), NAME)


def test_nothing_live_holds_the_copy_and_the_copy_holds_nothing_live(tmp_path: Path) -> None:
    job = declare(tmp_path)
    control = job.records()
    control.record_query(None, {"sink_path": f"file://{tmp_path}/out", "query_id": "q"})
    live = (
        job.checkpoint,
        job.repository,
        control.store.uri,
        f"file://{tmp_path}/out",
        f"file://{tmp_path}/replica",
    )
    replicated = replace(job, replicate=replace(job.replicate, to=(f"file://{tmp_path}/replica",)))
    for place in live:
        with refuses(InputError, "scratch-not-apart"):
            check_scratch(replicated, control, scratch_below(job, place), job.repository)
    check_scratch(replicated, control, scratch_below(job, tmp_path / "scratch"), job.repository)
    check_scratch(replicated, control, scratch_of(job, NAME), job.repository)


def test_the_copy_lies_apart_from_what_the_live_query_has_read(tmp_path: Path) -> None:
    job = CopiedJob(tmp_path, inputs=tmp_path / "in").job
    with refuses(InputError, "inside-input", match="scratch"):
        check_scratch(job, job.records(), scratch_below(job, tmp_path / "in/drills"), job.repository)
    check_scratch(job, job.records(), scratch_below(job, tmp_path / "in/_drills"), job.repository)


def test_where_a_copy_that_never_ran_will_write_is_live(tmp_path: Path) -> None:
    made = CopiedJob(tmp_path)
    made.refresh()
    job = made.on()
    generation = job.records().generation("main")
    assert generation is not None and generation.new_sinks
    assert job.records().query_facts("main") is None
    for place in generation.new_sinks.values():
        with refuses(InputError, "scratch-not-apart"):
            check_scratch(job, job.records(), scratch_below(job, place), job.repository)
    check_scratch(job, job.records(), scratch_below(job, tmp_path / "scratch"), job.repository)


def test_a_drill_does_not_sample_hot_keys(tmp_path: Path) -> None:
    job = declare(tmp_path, more="[jobs.flights.hot_keys]\n")
    assert job.hot_keys is not None
    assert copy_of(job, scratch_of(job, NAME), {}).hot_keys is None


def test_the_copy_has_another_name_and_it_fits_a_label_of_kubernetes(tmp_path: Path) -> None:
    job = declare(tmp_path)
    assert copy_of(job, scratch_of(job, NAME), {}).name == "flights-drill-0a1b2c"
    long = replace(job, name="a" * 100)
    name = copy_of(long, scratch_of(long, NAME), {}).name
    assert name.endswith("a-drill-0a1b2c")
    assert len(f"streambank-{name}") == 63


def test_a_drill_of_the_job_on_a_copy_is_launched_as_any_drill_is(tmp_path: Path) -> None:
    made = CopiedJob(tmp_path)
    made.refresh()
    drilled = copy_of(made.on(), scratch_of(made.on(), NAME), {})
    launch = prepare_launch(drilled, drilled.records(), by=BY)
    query = launch.queries["main"]
    scratch = tmp_path / "staging/ck.drills/orders-staging" / NAME
    assert query.checkpoint == (scratch / "checkpoint/main").as_uri()
    assert query.redirect is not None and query.redirect.scratch and not query.redirect.outputs


def test_two_jobs_share_a_scratch_location_and_no_folder(tmp_path: Path) -> None:
    job = declare(tmp_path)
    other = replace(job, name="orders")
    found = {scratch_below(one, tmp_path / "scratch") for one in (job, other)}
    assert found == {f"file://{tmp_path}/scratch/{name}/{NAME}" for name in ("flights", "orders")}


def test_s3_has_the_name_by_which_the_jobs_spark_knows_it(tmp_path: Path) -> None:
    job = replace(declare(tmp_path), checkpoint="s3a://lake/checkpoint")
    assert scratch_below(job, "s3://lake/scratch") == f"s3a://lake/scratch/flights/{NAME}"
