"""Who may make a link, or a record, where a removal looks: what it leads to is not what work has left.

In the same run each removal here does remove what is honestly left: it was not too careful to do anything.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from streambank.cleaning.clean import CleanReport, clean_job
from streambank.control.copies import begin_refresh
from streambank.control.generations import Generation
from streambank.copies.claims import claim
from streambank.core.units import utc_now
from streambank.declaration.declaration import Job
from streambank.declaration.maintenance import GenerationsPolicy
from streambank.drills.copy_of_job import scratch_of
from streambank.drills.left import clean_up, name_of
from streambank.driver.launchers.choose import launcher_for
from streambank.storage import local_path
from streambank.work.staging import TEMPORARY, checkpoint_name
from streambank.work.target import NOTE
from tests.support.jobs.copied_job import STAGING, CopiedJob
from tests.support.jobs.declared import BY
from tests.support.jobs.left_behind import restored_job

AT_ONCE = GenerationsPolicy(keep=1, keep_for_s=0.001)
"""Whatever nothing needs."""
OLD = utc_now() - timedelta(days=30)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job with an earlier generation that nothing needs: a cleaning removes it."""
    return restored_job(tmp_path, monkeypatch)


@pytest.fixture
def victim(tmp_path: Path, job: Job) -> Iterator[Path]:
    """A directory of somebody else, which says what what was laid out for Spark says; whole at the end."""
    victim = tmp_path / "victim"
    (victim / "deep").mkdir(parents=True)
    (victim / "metadata").write_bytes(staged(job))
    (victim / "deep/rows.csv").write_text("1,2,3", encoding="utf-8")
    before = sorted(victim.rglob("*"))
    yield victim
    assert sorted(victim.rglob("*")) == before, "something of somebody else was removed"
    assert (victim / "deep/rows.csv").read_text(encoding="utf-8") == "1,2,3"


def staged(job: Job) -> bytes:
    """What says of a directory that it is the job's own, and may go."""
    note = {"token": "t", "job": job.name, "owner": {}, "files": []}
    return json.dumps({"id": "x", NOTE: note}).encode()


def clean(job: Job) -> CleanReport:
    """Remove what is left, in a week; the earlier generation is."""
    assert Path(local_path(job.checkpoint) or "").exists()
    report = clean_job(
        job, jobs={job.name: job}, by=BY, policy=AT_ONCE, dry_run=False, now=utc_now() + timedelta(days=7)
    )
    assert not Path(local_path(job.checkpoint) or "").exists(), "the cleaning did its work"
    return report


def removed(report: CleanReport) -> set[str]:
    return {one.directory.location for one in report.having("removed")}


def temporary(name: str) -> Path:
    """A folder as a command of ours makes it for what it lays out."""
    folder = Path(tempfile.gettempdir()) / f"{TEMPORARY}{name}"
    folder.mkdir(mode=0o700)
    return folder


def test_a_link_among_what_was_laid_out_for_spark_is_not_followed(job: Job, victim: Path) -> None:
    honest = temporary("honest") / checkpoint_name()
    honest.mkdir(mode=0o700)
    (honest / "metadata").write_bytes(staged(job))
    (temporary("evil") / checkpoint_name()).symlink_to(victim)
    report = clean(job)
    assert honest.as_uri() in removed(report) and not honest.exists()
    assert victim.as_uri() not in {one.directory.location for one in report.decisions}


@pytest.mark.parametrize("place", ["generation", "staging"])
def test_of_links_inside_only_the_links_go(job: Job, victim: Path, place: str) -> None:
    if place == "generation":
        folder = Path(local_path(job.checkpoint) or "")
    else:
        folder = temporary("evil") / checkpoint_name()
        folder.mkdir(mode=0o700)
        (folder / "metadata").write_bytes(staged(job))
    (folder / "state-of-another").symlink_to(victim)
    (folder / "offsets").mkdir(exist_ok=True)
    (folder / "offsets/rows").symlink_to(victim / "deep/rows.csv")
    (folder / "offsets/deep").symlink_to(victim / "deep")
    assert folder.as_uri() in removed(clean(job))
    assert not os.path.lexists(folder)


def test_a_copy_of_a_drill_that_is_a_link_is_not_followed(job: Job, victim: Path) -> None:
    scratch = Path(local_path(scratch_of(job, name_of(OLD, "a" * 6))) or "")
    scratch.parent.mkdir(parents=True)
    scratch.symlink_to(victim)
    clean(job)
    clean_up(job, scratch_of(job, ""), timeout_s=1.0, by=BY, launcher=launcher_for(job))


def test_an_event_and_the_facts_of_a_query_remove_nothing(key: Path, job: Job, victim: Path) -> None:
    """Drivers write them, so they are not signed; and what they name is not the job's own for that."""
    records = job.records()
    records.record_event("compacted", query="main", quarantine=victim.as_uri())
    records.record_query(None, {"sink": f"FileSink[{victim.as_uri()}]", "query_id": "x"})
    report = clean(job)
    (named,) = (one for one in report.decisions if one.directory.location == victim.as_uri())
    assert (named.state, named.directory.ours) == ("kept", False)
    assert "remove it yourself" in named.why


@pytest.mark.parametrize("way", ["not-claimed", "link"])
def test_a_refresh_removes_neither_what_it_has_not_claimed_nor_where_a_link_leads(
    tmp_path: Path, way: str
) -> None:
    made = CopiedJob(tmp_path, f"{STAGING}keep = 1\n")
    made.refresh()
    records = made.on().records()
    victim, named = tmp_path / "victim", tmp_path / "staging/ck.g0009"
    (victim if way == "link" else named).mkdir()
    if way == "link":
        named.symlink_to(victim)
        claim(named.as_uri(), "main", Generation(9, named.as_uri(), None, OLD, BY), records)
    (named / "metadata").write_text('{"id": "x"}', encoding="utf-8")
    begin_refresh(records, [named.as_uri()], by=BY)
    report = made.refresh()
    assert [Path(one).name for one in report.removed] == ["ck.g0002", "out.g0002"], "what it made goes"
    assert (named / "metadata").exists()
    said = " ".join(report.warnings)
    assert ("is not claimed" if way == "not-claimed" else "symbolic link") in said, said
