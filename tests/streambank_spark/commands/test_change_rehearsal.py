"""The first batches of the real application on a copy of a savepoint that was made, beside the live job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.cli import Answer, streambank
from tests.support.declared_commands import install_commands
from tests.support.jobs.drill_story import story_in
from tests.support.jobs.release_story import NAME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.storm, pytest.mark.spark, pytest.mark.timeout(1200)]


def test_the_jobs_own_application_goes_on_from_what_was_made(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_commands(monkeypatch)
    with story_in(tmp_path) as story:

        def ask(*more: str | int | Path) -> Answer:
            place = ("-r", tmp_path / "savepoints", "--jobs", story.jobs, "--work", tmp_path / "work")
            return streambank("state", *more, *place, "--job", NAME, "--rehearse", "--json")

        done = ask("transform", "latest", "--delete-where", "key.k in ('k1', 'k2')")
        assert done.code == 0, f"{done.out}{done.err}"
        report = done.document["rehearsal"]
        (query,) = report["queries"]
        assert report["passed"] and query["savepoint"] == done.document["savepoint"]
        assert len(query["batches"]) == 3 and query["state_equal"] is False
        assert {one["live_state_rows"] - one["state_rows"] for one in query["batches"]} == {2}
        table = tmp_path / "table.json"
        table.write_text('{"k": "k3"}\n')
        made = ask("bootstrap", query["savepoint"], "--from", table, "--existing", "replace", "--batches", 1)
        assert made.code == 0, f"{made.out}{made.err}"
        (query,) = made.document["rehearsal"]["queries"]
        assert len(query["batches"]) == 1 and query["state"]["parts"][0]["rows"] == 1

        history = streambank("drill", NAME, "--jobs", story.jobs, "--history", "--json").document
        assert history["drills"] == []
        assert story.document("status")["state"] == "running"

        # The control: an application that cannot go on from it.
        (application,) = tmp_path.glob("*.py")
        text = application.read_text()
        application.write_text('raise RuntimeError("not on a copy")\n')
        failed = ask("transform", "latest", "--delete-where", "key.k = 'k3'", "--batches", 1)
        application.write_text(text)
        assert failed.code == 1 and failed.document["savepoint"] is not None
        assert failed.document["rehearsal"]["passed"] is False
        assert failed.document["rehearsal"]["failed_step"] in ("launch", "state", "batches")
