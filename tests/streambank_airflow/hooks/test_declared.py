"""Jobs on a copy of their state: every part of the hook finds them and their savepoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.core.errors import InputError, NotFoundError, StreambankError
from streambank.core.names import PRIMARY, STANDBY, QueryRef
from streambank.core.units import utc_now
from streambank.declaration.load import load_jobs
from streambank.doctor.checks import installation
from streambank.sites.records import SiteRecord, Sites
from streambank_airflow.hooks.streambank import StreambankHook
from tests.support.cli import succeed
from tests.support.jobs.copied_job import CopiedJob
from tests.support.jobs.declared import write_jobs
from tests.support.jobs.simulated_job import BY
from tests.support.jobs.two_sites import NAME, two_sites

pytestmark = pytest.mark.airflow


@pytest.mark.parametrize("name", ["orders@staging", "orders-staging"])
def test_savepoints_of_a_copy_are_taken_verified_pinned_and_restored(tmp_path: Path, name: str) -> None:
    made = CopiedJob(tmp_path)
    made.refresh()
    hook = StreambankHook(jobs_file=str(made.jobs))
    assert hook.declared.find(name) == (made.on(), None)
    assert hook.declared.get(name) == made.on()
    taken = hook.savepoints.take(name, by=BY)
    assert taken.job == "orders-staging"
    assert hook.savepoints.pin(name, "latest", pinned=True, note="", by=BY) == taken.savepoint
    assert hook.repository.verify(name, "100%", by=BY).savepoints[0].savepoint == taken.savepoint
    plan = hook.recovery.plan(name, savepoint="latest")
    assert plan.plans["main"].savepoint == taken.savepoint


def test_what_is_no_job_on_a_copy_stays_as_it_is(tmp_path: Path) -> None:
    made = CopiedJob(tmp_path)
    declared = StreambankHook(jobs_file=str(made.jobs)).declared
    assert declared.saved_as("orders@staging/main") == "orders-staging/main"
    for ref in ("orders", "orders@other", "trains@staging", "s3://bucket@x/y"):
        assert declared.saved_as(ref) == ref
    with pytest.raises(NotFoundError) as caught:
        declared.find("orders@other")
    assert caught.value.code == "no-such-copy"


def test_commands_know_the_name_that_hints_print(tmp_path: Path) -> None:
    made = CopiedJob(tmp_path)
    made.refresh()
    assert load_jobs(made.jobs).job("orders-staging") == made.on()
    succeed("job", "status", "orders-staging", "--jobs", made.jobs)
    with pytest.raises(InputError, match="savepoints and records") as caught:
        QueryRef.parse("orders@staging")
    assert caught.value.code == "bad-name" and "orders-staging" in caught.value.hint


def test_several_jobs_are_at_their_active_sites_as_one_is(tmp_path: Path) -> None:
    with two_sites(tmp_path) as sites:
        hook = StreambankHook(jobs_file=str(sites.jobs))
        record = SiteRecord(3, "active", STANDBY, PRIMARY, False, BY, "", utc_now())
        assert Sites(sites.at(STANDBY).records()).write(record)
        several = hook.slas.find_all(None)[NAME]
        assert not isinstance(several, StreambankError) and several.job == hook.declared.job(NAME)
    assert several.job is not None and several.job.site == STANDBY


def test_a_mistake_in_another_job_is_named_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "check_job_installation", lambda python, spark_home: [])
    file = write_jobs(tmp_path, more='[jobs.flights.airflow]\nowner = "ann"')
    with file.open("a", encoding="utf-8") as end:
        end.write('[jobs.trains]\napplication = "app.py"\ncheckpiont = "c"\n')
    hook = StreambankHook(jobs_file=str(file))

    (owned,) = hook.declared.owners(str(tmp_path / "checkpoints" / "flights"))
    found = hook.jobs.diagnose("flights")

    assert (owned[0].name, owned[1]) == ("flights", "main")
    (skipped,) = (one for one in found if "trains of another owner" in one["effect"])
    assert skipped["code"] == "not-checked" and "jobs.trains.checkpiont" in skipped["cause"]
