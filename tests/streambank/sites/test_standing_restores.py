"""What changes a checkpoint or its sinks at a site that is not the active one is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streambank.cleaning.clean import clean_job
from streambank.compaction.job import compact_job, purge_job, undo_job
from streambank.core.errors import RefusedError
from streambank.core.names import PRIMARY, STANDBY
from streambank.core.units import utc_now
from streambank.core.verb_options import CompactOptions
from streambank.declaration.maintenance import GenerationsPolicy
from streambank.job.restart import restart_job
from streambank.job.savepoint import savepoint_job
from streambank.job.stop import stop_job
from streambank.recovery.exchange_state import exchange
from streambank.recovery.reinstate import reinstate
from streambank.recovery.request import RestoreRequest, TogetherRequest
from streambank.recovery.together import restore_together
from streambank.savepoint.materialize import materialize
from streambank.sites.records import SiteRecord, Sites
from streambank.storage import open_store
from streambank.upgrade.declared import choose_declared
from streambank.upgrade.plan import UpgradeRequest
from tests.support.checkpoint.with_garbage import write_with_garbage
from tests.support.cli import streambank
from tests.support.jobs.declared import BY, end_drivers
from tests.support.jobs.two_sites import NAME, two_sites
from tests.support.storage.contents import contents


def test_a_passive_site_is_neither_restored_nor_changed(tmp_path: Path) -> None:
    with two_sites(tmp_path) as sites:
        sites.start()
        job, records = sites.at(PRIMARY), sites.at(PRIMARY).records()
        savepoint = savepoint_job(job, by=BY).savepoints["main"].savepoint
        end_drivers(records)
        at_other = Sites(sites.at(STANDBY).records())
        assert at_other.write(SiteRecord(3, "active", STANDBY, PRIMARY, True, BY, "", utc_now()))
        before = records.generation()

        whole = TogetherRequest(
            RestoreRequest(job.open_repository(), "latest-good", generation=records, by=BY), job
        )
        changes: list[Callable[[], object]] = [
            partial(restore_together, whole),
            partial(compact_job, job, CompactOptions(stopped=True), label="now", by=BY),
            partial(exchange, job, lambda *_: None, by=BY, launcher=sites.launcher),
            partial(clean_job, job, jobs={}, by=BY, policy=GenerationsPolicy(), dry_run=False),
            partial(restart_job, job, by=BY, launcher=sites.launcher),
            partial(reinstate, job.open_repository(), NAME, savepoint, generation=1, control=records, by=BY),
            partial(choose_declared, UpgradeRequest(job, by=BY)),
        ]
        for change in changes:
            with pytest.raises(RefusedError) as refused:
                change()
            assert refused.value.code == "failed-over"
        for sink in ("refuse", "rollback"):
            ways: list[list[str]] = [["--generation"], ["--generation", "--dry-run"]]
            for more in (*ways, ["--into", f"{tmp_path}/copy"]):
                command = ("restore", savepoint, "--job", NAME, "--jobs", str(sites.jobs), "--sink", sink)
                result = streambank(*command, *more)
                copies = sink == "refuse" and more[0] == "--into"  # that changes nothing of the job
                assert (result.code == 0) == copies, result
                assert copies or "the standby is the active site" in result.out + result.err
        assert records.generation() == before


def test_what_was_quarantined_at_a_passive_site_is_kept(tmp_path: Path) -> None:
    with two_sites(tmp_path) as sites:
        job = sites.at(PRIMARY)
        write_with_garbage(open_store(job.checkpoint))
        done = compact_job(job, label="x", by=BY)["main"]
        assert done.quarantine is not None and done.files
        before = contents(open_store(done.quarantine))
        at_other = Sites(sites.at(STANDBY).records())
        assert at_other.write(SiteRecord(3, "active", STANDBY, PRIMARY, True, BY, "", utc_now()))
        for change in (purge_job, undo_job):
            with pytest.raises(RefusedError) as refused:
                change(job, done.quarantine, by=BY)
            assert refused.value.code == "failed-over"
        result = streambank("compact", "--job", NAME, "--jobs", str(sites.jobs), "--purge", done.quarantine)
        assert result.code == 8 and "the standby is the active site" in result.err
        assert contents(open_store(done.quarantine)) == before
        assert stop_job(job, by=BY).how == "none", "a stop is allowed at any site"


@pytest.mark.parametrize("way", ["job restore", "restore"])
def test_a_site_that_is_deposed_while_files_are_written_is_not_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """It was the active one when the restore began: that is asked again before anything counts."""
    with two_sites(tmp_path) as sites:
        sites.start()
        job, records = sites.at(PRIMARY), sites.at(PRIMARY).records()
        savepoint_job(job, by=BY)
        end_drivers(records)
        before, fired = records.generation(), list[str]()

        def late(*args: Any, **options: Any) -> Any:
            other = Sites(sites.at(STANDBY).records())
            assert other.write(SiteRecord(3, "active", STANDBY, PRIMARY, True, BY, "", utc_now()))
            fired.append("deposed")
            return materialize(*args, **options)

        monkeypatch.setattr("streambank.recovery.restore.materialize", late)
        command = ("job", "restore", NAME) if way == "job restore" else (
            "restore", "latest-good", "--generation", "--job", NAME
        )  # fmt: skip
        result = streambank(*command, "--jobs", str(sites.jobs))
        assert fired and result.code and "the standby is the active site" in result.err
        assert records.generation() == before
