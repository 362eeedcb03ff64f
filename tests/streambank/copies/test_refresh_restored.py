"""A copy that is restored to a savepoint of the copy itself: which outputs it goes on in."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from streambank.control.generations import Generations
from streambank.control.marker import records_root
from streambank.control.records import RecordStream
from streambank.core.errors import InputError, RefusedError, StreambankError
from streambank.driver.outputs import FILES, Output, check_output
from streambank.driver.preflight import launched_query
from streambank.driver.prepare import prepare_launch
from streambank.driver.redirected import redirected
from streambank.job.savepoint import savepoint_job
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore, restore
from streambank.repository.repository import Repository
from streambank.sinks.file.log import list_log
from streambank.storage import open_store
from tests.support.jobs.copied_job import STAGING, CopiedJob
from tests.support.jobs.simulated_job import BY
from tests.support.refuses import refuses
from tests.support.storage.faulty_store import killed_at

TABLE = STAGING.replace('"./out" = "staging/out"', 'sums = "staging/sums"')


def saved(made: CopiedJob) -> str:
    """A savepoint of the copy."""
    return savepoint_job(made.on(), by=BY).savepoints["main"].savepoint


def request_of(made: CopiedJob, savepoint: str) -> RestoreRequest:
    job = made.on()
    return RestoreRequest(
        Repository.open(open_store(job.repository), create=True),
        savepoint,
        job="orders-staging",
        generation=job.records(),
        checkpoint=job.checkpoint,
        by=BY,
    )


def goes_on_in(made: CopiedJob, output: Output) -> str:
    """Where the application would write that is started on the copy now."""
    job = made.on()
    records = job.records()
    launch = prepare_launch(job, records, by=BY)
    redirect = launch.queries["main"].redirect
    assert redirect is not None
    to = redirected(redirect, output, "main")
    generation = records.generation()
    assert generation is not None
    assert check_output(launched_query(launch, "main", records), generation, to) is None
    assert to.path is not None
    return to.path


def test_a_savepoint_of_an_earlier_copy_goes_on_in_the_outputs_of_that_copy(tmp_path: Path) -> None:
    """The log of the newest copy has later batches: Spark would skip what it writes again."""
    made = CopiedJob(tmp_path)
    made.refresh()
    made.ran_on_copy()
    savepoint = saved(made)
    made.run(3).take()
    made.refresh()
    made.ran_on_copy()
    restore(request_of(made, savepoint))
    place = goes_on_in(made, Output(FILES, (tmp_path / "out").as_uri()))
    assert place == (tmp_path / "staging/out.g0002").as_uri()
    assert max(one.batch for one in list_log(open_store(place))) == 2
    newest = open_store((tmp_path / "staging/out.g0003").as_uri())
    assert max(one.batch for one in list_log(newest)) == 7, "there it would not go on"


def test_so_it_does_in_what_stands_for_a_table(tmp_path: Path) -> None:
    made = CopiedJob(tmp_path, TABLE)
    made.control().record_query(None, {"output": {"kind": "kafka", "name": "sums"}})
    made.refresh()
    savepoint = saved(made)
    made.run(3).take()
    made.refresh()
    restore(replace(request_of(made, savepoint), sink="accept"))
    assert goes_on_in(made, Output("kafka", name="sums")) == (tmp_path / "staging/sums.g0002").as_uri()


def test_an_output_of_the_saved_copy_that_is_gone_is_refused(tmp_path: Path) -> None:
    made = CopiedJob(tmp_path, f"{STAGING}keep = 1\n")
    made.refresh()
    made.ran_on_copy()
    savepoint = saved(made)
    made.run(3).take()
    assert any(one.endswith("out.g0002") for one in made.refresh().removed)
    plan = plan_restore(request_of(made, savepoint))
    assert [one.code for one in plan.refusals] == ["sink-would-lose-rows"]


@pytest.mark.parametrize("kind", [FILES, "kafka"])
def test_after_a_refresh_whose_generation_was_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    made = CopiedJob(tmp_path, STAGING if kind == FILES else TABLE)
    if kind != FILES:
        made.control().record_query(None, {"output": {"kind": kind, "name": "sums"}})
    made.refresh()
    savepoint = saved(made)
    made.run(3).take()
    with killed_at(monkeypatch, Generations, "switch"):
        made.refresh()
    restore(request_of(made, savepoint))
    named = Output(FILES, (tmp_path / "out").as_uri()) if kind == FILES else Output(kind, name="sums")
    place = goes_on_in(made, named)
    assert place == (tmp_path / f"staging/{'out' if kind == FILES else 'sums'}.g0002").as_uri()


def test_where_it_is_not_known_which_outputs_it_had_the_restore_is_refused(tmp_path: Path) -> None:
    """The records of the copy were lost, and its savepoints were not."""
    made = CopiedJob(tmp_path)
    made.refresh()
    made.ran_on_copy()
    savepoint = saved(made)
    shutil.rmtree(records_root(made.on().records()).removeprefix("file://"))
    made.run(3).take()
    made.refresh()
    with refuses(RefusedError, "copy-not-made"):
        restore(request_of(made, savepoint))


def test_one_that_was_made_without_its_outputs_is_not_started(tmp_path: Path) -> None:
    made = CopiedJob(tmp_path)
    made.refresh()
    made.ran_on_copy()
    restore(request_of(made, saved(made)))
    records = made.on().records()
    stream = RecordStream(records.store, "generation/main")
    record = json.loads(records.store.read(stream.key(3)))
    del record["new_sinks"]
    records.store.write(stream.key(3), json.dumps(record).encode())
    with refuses(StreambankError, "copy-not-made"):
        prepare_launch(made.on(), records, by=BY)


def test_a_savepoint_of_the_live_job_is_no_savepoint_of_its_copy(tmp_path: Path) -> None:
    made = CopiedJob(tmp_path)
    made.refresh()
    request = replace(request_of(made, made.saved), repository=made.repository, job=None)
    with refuses(InputError, "another-job", hint="`streambank fork orders staging`"):
        plan_restore(request)
