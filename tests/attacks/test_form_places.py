"""Who may trigger a restore, and nothing else, lays files where something else is, or will be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from streambank.compaction.quarantine import quarantine_location
from streambank.control.marker import SUFFIX as MARKER
from streambank.control.place import SUFFIX as RECORDS
from streambank.core.errors import InputError
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.declaration.places.copies import SAVEPOINTS
from streambank.declaration.shared import why_taken
from streambank.drills.copy_of_job import scratch_of
from streambank.recovery.report import REPORT_SUFFIX
from streambank.sinks.file.comparison import ASIDE_DIRECTORY
from streambank.storage.names import TEMPORARY_PREFIX
from streambank_airflow.choices import check_form_places
from tests.support.refuses import refuses

DECLARED = """
repository = "state/repository"

[jobs.orders]
application = "app.py"
checkpoint = "state/orders"
[[jobs.orders.sinks]]
kind = "delta"
table = "{folder}/state/table"

[jobs.payments]
application = "app.py"
checkpoint = "state/payments"
control = "state/of-payments"
drill.scratch = "state/rehearsed"
state.work = "state/staged"
replicate.to = ["state/replica"]
[jobs.payments.standby]
checkpoint = "state/elsewhere"
repository = "state/replica"
[jobs.payments.copies.test]
checkpoint = "state/copied"
"""


@pytest.fixture
def jobs(tmp_path: Path) -> Sequence[Job]:
    (tmp_path / "jobs.toml").write_text(DECLARED.format(folder=tmp_path))
    return list(load_jobs(tmp_path / "jobs.toml").jobs.values())


def into(jobs: Sequence[Job], place: str, below: tuple[str, ...] | None = None) -> None:
    """A restore of `orders` into a directory that a form names."""
    job = replace(jobs[0], restore=replace(jobs[0].restore, into=below))
    check_form_places(job, None, place, {}, jobs)


def output(jobs: Sequence[Job], place: str) -> None:
    """A restore of it to a new output that a form names."""
    check_form_places(jobs[0], None, None, {f"{place.rpartition('/')[0]}/out": place}, jobs)


OURS = (
    "orders.g0002",
    "orders.g0002.work",
    "other.g12345",
    "orders.drills",
    "orders.work",
    "copied.savepoints",
    "repository.control",
    "orders.streambank.json",
    "orders.streambank.JSON",
    "other.restored.json",
    "orders.quarantine-20261122-101500",
    "_streambank_aside",
    ".streambank-tmp",
)
TAKEN = (
    "payments",
    "repository",
    "table",
    "elsewhere",
    "copied",
    "replica",
    "rehearsed",
    "staged",
    "of-payments",
)


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("field", [into, output])
def test_a_name_of_ours_is_no_place_of_a_form(jobs: Sequence[Job], name: str, field: object) -> None:
    assert callable(field)
    with refuses(InputError, "place-not-allowed", match="gives such names"):
        field(jobs, f"{jobs[0].checkpoint.rpartition('/')[0]}/{name}")


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("field", [into, output])
def test_a_place_of_any_job_is_none_either(jobs: Sequence[Job], name: str, field: object) -> None:
    assert callable(field)
    with refuses(InputError, "place-not-allowed", match="not apart from"):
        field(jobs, f"{jobs[0].checkpoint.rpartition('/')[0]}/{name}")


@pytest.mark.parametrize("name", ["orders-again", "orders2", "g0002", "drills", "streambank", "x.json"])
@pytest.mark.parametrize("field", [into, output])
def test_an_empty_place_beside_it_is_taken(jobs: Sequence[Job], name: str, field: object) -> None:
    assert callable(field)
    field(jobs, f"{jobs[0].checkpoint.rpartition('/')[0]}/{name}")


def test_below_a_declared_place_the_same_holds(jobs: Sequence[Job]) -> None:
    above = jobs[0].checkpoint.rpartition("/")[0]
    into(jobs, f"{above}/a/b", (above,))
    for name in ("payments/state", "repository/objects/x", "a.drills/b", "a/b.g0002", "of-payments/orders"):
        with pytest.raises(InputError):
            into(jobs, f"{above}/{name}", (above,))
    with pytest.raises(InputError, match="not apart from"):
        into(jobs, above, (above.rpartition("/")[0],))


def test_what_holds_the_declared_place_speaks_against_nothing(jobs: Sequence[Job]) -> None:
    """As where drills write to the disk on which the checkpoints are."""
    above = jobs[0].checkpoint.rpartition("/")[0]
    wide = [replace(one, drill=replace(one.drill, scratch=above)) for one in jobs]
    into(wide, f"{above}/again")
    into(wide, f"{above}/restored.work/again", (f"{above}/restored.work",))
    with pytest.raises(InputError):
        into(wide, f"{above}/payments")


def test_a_bucket_is_no_other_thing(jobs: Sequence[Job]) -> None:
    lake = [replace(one, queries={"main": f"s3://lake/{one.name}"}, checkpoint="") for one in jobs]
    into(lake, "s3a://lake/again")
    for name in ("payments", "orders.g0002", "orders.drills", "./payments", "x/../payments"):
        with pytest.raises(InputError):
            into(lake, f"s3a://lake/{name}")


def test_a_service_by_another_name_is_no_other_thing(jobs: Sequence[Job]) -> None:
    lake = "abfs{}://data@Account.dfs.core.windows.net"
    named = [lake.format("s"), lake.format("").lower()]
    azure = [
        replace(
            one, queries={"main": f"{at}/{one.name}"}, checkpoint="", control=None, repository=f"{at}/repo"
        )
        for one, at in zip(jobs, named, strict=True)
    ]
    for at in named:
        into(azure, f"{at}/again")
        for name in ("payments", "orders.g0002", "repo", "repo/x"):
            with pytest.raises(InputError):
                into(azure, f"{at}/{name}")


def test_every_name_that_is_given_is_known(jobs: Sequence[Job], tmp_path: Path) -> None:
    job, within = jobs[0], f"file://{tmp_path}/state"
    given = [
        f"{job.checkpoint}{MARKER}",
        f"{job.checkpoint}{REPORT_SUFFIX}",
        f"{job.repository}{RECORDS}",
        f"{job.checkpoint}{SAVEPOINTS}",
        f"{within}/{ASIDE_DIRECTORY}",
        f"{within}/{TEMPORARY_PREFIX}x",
        job.work_location(None),
        scratch_of(job, "drill-1"),
        quarantine_location(job.checkpoint, "1"),
        f"{job.checkpoint}.g0002",
    ]
    assert [one for one in given if "such names" not in str(why_taken(one, jobs, within))] == []
