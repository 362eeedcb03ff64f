"""What changes a checkpoint or its sinks at a site that is not the active one is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streambank.compaction.job import compact_job
from streambank.core.errors import RefusedError
from streambank.core.units import utc_now
from streambank.declaration.standby import PRIMARY, STANDBY
from streambank.job.savepoint import savepoint_job
from streambank.recovery.exchange_state import exchange
from streambank.recovery.together import TogetherRequest, restore_together
from streambank.savepoint.materialize import materialize
from streambank.sites.records import SiteRecord, Sites
from tests.support.cli import streambank
from tests.support.jobs.declared import BY, end_drivers
from tests.support.jobs.two_sites import NAME, two_sites


def test_a_passive_site_is_neither_restored_nor_changed(tmp_path: Path) -> None:
    with two_sites(tmp_path) as sites:
        sites.start()
        job, records = sites.at(PRIMARY), sites.at(PRIMARY).records()
        savepoint = savepoint_job(job, by=BY).savepoints["main"].savepoint
        end_drivers(records)
        at_other = Sites(sites.at(STANDBY).records())
        assert at_other.write(SiteRecord(3, "active", STANDBY, PRIMARY, True, BY, "", utc_now()))
        before = records.generation()

        whole = TogetherRequest(job, job.open_repository(), by=BY)
        changes: list[Callable[[], object]] = [
            partial(restore_together, whole),
            partial(compact_job, job, label="now", by=BY, stopped=True),
            partial(exchange, job, lambda *_: None, by=BY, launcher=sites.launcher),
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
