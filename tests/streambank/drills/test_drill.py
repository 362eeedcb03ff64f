"""A drill beside a running job, with the real application on real Spark."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from streambank.repository.catalog import listed
from streambank.repository.repository import Repository
from streambank.storage import open_store
from tests.support.cli import streambank
from tests.support.jobs.drill_story import drill, hashes, story_in
from tests.support.jobs.release_story import APPLICATION, NAME
from tests.support.json_examples import examples, mismatches
from tests.support.repository.damaged_savepoints import damage_alone

pytestmark = [pytest.mark.storm, pytest.mark.spark, pytest.mark.timeout(1200)]


def records_of(folder: Path, but: Sequence[str]) -> dict[str, str]:
    """The live job's records, but for what the live driver itself goes on writing and what a drill adds."""
    root = folder / "savepoints.control" / NAME
    return {
        name: digest for name, digest in hashes(root).items() if not any(f"/{one}" in name for one in but)
    }


def test_a_drill_executes_the_live_batches_again_and_touches_nothing(tmp_path: Path) -> None:
    with story_in(tmp_path) as story:
        live = (story.source, story.out, tmp_path / "checkpoint")
        grows = ("lease/", "progress/", "logs/", "drills/", "events/")
        before, records = hashes(*live), records_of(tmp_path, grows)
        report = drill(story, "--keep")
        assert hashes(*live) == before
        assert records_of(tmp_path, grows) == records
        assert story.document("status")["state"] == "running"
        (query,) = report["queries"]
        last = query["batch"] + 3

        assert (report["passed"], report["failed_step"], report["not_run"]) == (True, None, "")
        assert [one["batch"] for one in query["batches"]] == [last - 2, last - 1, last]
        for one in query["batches"]:
            assert one["input_rows"] == one["live_input_rows"] == 20
            assert one["state_rows"] == one["live_state_rows"]
            assert one["output"]["rows"] == one["output"]["live_rows"]
            assert (one["output"]["only_copy"], one["output"]["only_live"]) == (0, 0)
        assert any(one["output"]["rows"] for one in query["batches"])
        assert query["state_equal"] is True
        assert query["state"]["parts"][0]["rows"] >= 20
        assert (query["not_compared"], query["differences"]) == ([], [])
        assert report["rto_s"] < report["seconds"]
        assert list(mismatches(examples()["drill"], report)) == []
        assert list(report["steps"]) == [
            "choose",
            "restore",
            "stage",
            "launch",
            "state",
            "batches",
            "compare",
            "clean",
        ]
        kept = Path(report["scratch"].removeprefix("file://"))
        assert (kept / "output/main/_spark_metadata" / str(last)).exists(), "--keep leaves it"

        second = drill(story, "--batches", "1", "--savepoint", "random")
        assert second["passed"]
        assert not Path(second["scratch"].removeprefix("file://")).exists()
        history = streambank("drill", NAME, "--jobs", story.jobs, "--history", "--json").document
        assert [one["scratch"] for one in history["drills"]] == [second["scratch"], report["scratch"]]
        # Without a plan of the live query the copy goes on by itself.
        alone = drill(story, "--batches", "0")
        assert alone["passed"]
        assert alone["queries"][0]["batches"] == []
        assert alone["rto_s"] is not None


def test_each_savepoint_is_drilled_and_one_that_is_damaged_is_named(tmp_path: Path) -> None:
    with story_in(tmp_path) as story:
        for batch in (5, 6):
            story.do("savepoint")
            story.feed(1)
            story.until_batch(batch)
        repository = Repository.open(open_store(str(tmp_path / "savepoints")))
        newest, middle, oldest = sorted((one for _, one in listed(repository.store, NAME)), reverse=True)

        # The negative control: each passes, and its batches are the live query's.
        report = drill(story, "--savepoint", "each", "--batches", "1")
        assert list(mismatches(examples()["drill of each savepoint"], report)) == []
        assert (report["passed"], report["failed"], report["skipped"]) == (True, [], [])
        assert [one["queries"][0]["savepoint"] for one in report["drills"]] == [newest, middle, oldest]
        for one in report["drills"]:
            (query,) = one["queries"]
            assert query["state_equal"] is True and query["differences"] == [] and one["rto_s"] > 0

        damage_alone(repository, NAME, middle)
        report = drill(story, "--savepoint", "each", "--batches", "1", code=1)
        assert [one["passed"] for one in report["drills"]] == [True, False, True]
        (failed,) = report["failed"]
        assert failed["savepoints"] == {"main": middle}
        assert failed["failed_step"] in ("choose", "restore")
        assert middle in report["error"]
        history = streambank("drill", NAME, "--jobs", story.jobs, "--history", "--json").document["drills"]
        assert [one["passed"] for one in history] == [True, False, True] + 3 * [True]
        assert story.document("status")["state"] == "running"


def test_an_application_that_depends_on_more_than_its_input_is_found(tmp_path: Path) -> None:
    """The negative control: what is compared can differ, and a drill that finds it fails."""
    other = APPLICATION.replace(
        'rows = rows.coalesce(1).withColumn("n", udf(nap, "int")("n")).dropDuplicates(["k"])',
        'rows = rows.withColumn("n", udf(nap, "int")("n")).dropDuplicates(["k"])\n'
        "import os\nrows = rows.selectExpr('k', f'n + {os.getpid()} AS n')",
    )
    assert other != APPLICATION
    with story_in(tmp_path, other) as story:
        report = drill(story, code=1)
        assert (report["passed"], report["failed_step"], report["code"]) == (
            False,
            "compare",
            "drill-differs",
        )
        assert "rows of the live query's" in report["error"]
        assert report["queries"][0]["batches"][0]["output"]["only_live"] > 0
        text = streambank("drill", NAME, "--jobs", story.jobs, "--history").out
        assert "failed: compare" in text


def test_what_cannot_be_redirected_is_not_run_and_the_state_is_still_opened(tmp_path: Path) -> None:
    called = tmp_path / "called"
    other = APPLICATION.replace(
        'writer = rows.writeStream.format("json").option("path", out)',
        "def write(batch, number):\n"
        f"    open({str(called)!r}, 'a').write(f'{{number}}\\n')\n"
        "    batch.count()\n"
        "writer = rows.writeStream.foreachBatch(write)",
    )
    assert other != APPLICATION
    with story_in(tmp_path, other) as story:
        before = called.read_text()
        report = drill(story)
        assert called.read_text() == before, "the function of the application was not called"
        assert report["passed"] is True
        assert "may not write to foreachBatch" in report["not_run"]
        assert report["queries"][0]["state"]["parts"][0]["rows"] > 0
        assert report["rto_s"] is None


def test_a_drill_names_the_step_that_failed(tmp_path: Path) -> None:
    with story_in(tmp_path) as story:
        good = story.jobs.read_text()
        # The application fails on the copy alone.
        fails = APPLICATION.replace(
            "spark = Spark", "import os\nassert not os.path.exists(out + '/../bad')\nspark = Spark"
        )
        (tmp_path / "app.py").write_text(fails)
        (tmp_path / "bad").touch()
        report = drill(story, code=1)
        assert (report["failed_step"], report["code"]) in (
            ("launch", "driver-died"),
            ("launch", "drill-died"),
            ("state", "drill-died"),
        )
        assert "AssertionError" in report["error"]
        (tmp_path / "app.py").write_text(APPLICATION)

        # The time is over.
        report = drill(story, "--timeout", "1s", code=1)
        assert report["failed_step"] in ("launch", "state")
        assert not Path(report["scratch"].removeprefix("file://")).exists()

        # The savepoint is damaged.
        kept = tmp_path / "savepoints"
        objects = [
            path for name in ("packs", "objects") for path in (kept / name).rglob("*") if path.is_file()
        ]
        assert objects
        for path in objects:
            path.chmod(0o600)
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(bytes(data))
        report = drill(story, code=1)
        assert report["failed_step"] in ("choose", "restore")
        assert story.jobs.read_text() == good
        assert story.document("status")["state"] == "running"
        os.sync()
