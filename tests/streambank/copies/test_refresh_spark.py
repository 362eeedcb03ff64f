"""A copy of production state beside a running job, with the real application on real Spark."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyarrow.parquet import read_table

from streambank.declaration.load import load_jobs
from tests.support.cli import streambank
from tests.support.jobs.declared import end_drivers
from tests.support.jobs.drill_story import hashes, story_in
from tests.support.jobs.release_story import APPLICATION, NAME, ReleaseStory
from tests.support.json_examples import examples, mismatches
from tests.support.waiting import poll

pytestmark = [pytest.mark.storm, pytest.mark.spark, pytest.mark.timeout(1800)]

COPY = f"{NAME}@staging"
STAGING = f"""
[jobs.{NAME}.copies.staging]
checkpoint = "staging/checkpoint"
outputs = {{ "./out" = "staging/out" }}
keep = 1
"""


def records_of(folder: Path) -> dict[str, str]:
    """The live job's records, but for what its own driver goes on writing."""
    grows = ("lease/", "progress/", "logs/")
    found = hashes(folder / "savepoints.control" / NAME)
    return {name: one for name, one in found.items() if not any(f"/{part}" in name for part in grows)}


def job(verb: str, story: ReleaseStory, *options: str, code: int = 0) -> Any:
    answer = streambank("job", verb, COPY, "--jobs", story.jobs, *options, "--json")
    assert answer.code == code, f"{answer.out}{answer.err}"
    return answer.document if code == 0 else answer.err


def fork(story: ReleaseStory, *options: str, code: int = 0) -> Any:
    answer = streambank("fork", NAME, "staging", "--jobs", story.jobs, *options, "--json")
    assert answer.code == code, f"{answer.out}{answer.err}"
    return answer.document if code == 0 else answer.err


def path(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))


def rows(output: Path) -> Counter[str]:
    found: set[str] = set()
    log = output / "_spark_metadata"
    for entry in log.glob("[0-9]*"):
        found |= {json.loads(line)["path"] for line in entry.read_text().splitlines()[1:]}
    lines = [line for one in found for line in path(one).read_text().splitlines()]
    return Counter(str(json.loads(line)["k"]) for line in lines)


def test_the_application_goes_on_on_a_copy_and_the_live_job_notices_nothing(tmp_path: Path) -> None:
    with story_in(tmp_path, more=STAGING) as story:
        story.until_written()
        copy = load_jobs(story.jobs).job(COPY)
        try:
            live = (story.source, story.out, tmp_path / "checkpoint")
            before, records = hashes(*live), records_of(tmp_path)
            made = fork(story)
            (query,) = made["queries"]
            saved = query["batch"]
            expected = story.expected() - Counter(f"k{n}" for n in range((saved + 2) * 10))
            assert expected and query["location"].endswith("/staging/checkpoint.g0002")
            assert list(mismatches(examples()["fork"], made)) == []

            # The copy goes on from the savepoint, in an output that has nothing before it.
            job("start", story)
            output = tmp_path / "staging/out.g0002"
            poll(lambda: rows(output).keys() >= expected.keys(), timeout_s=300)
            assert rows(output) == expected, "each key that came after the savepoint, once"
            assert hashes(*live) == before
            assert records_of(tmp_path) == records
            status = job("status", story)
            assert status["state"] == "running"
            assert (tmp_path / "staging/checkpoint.g0002/metadata").read_text() != (
                tmp_path / "checkpoint/metadata"
            ).read_text()

            # Both go on with what arrives, each in its own output.
            story.feed(1)
            story.until_written()
            expected = story.expected() - Counter(f"k{n}" for n in range((saved + 2) * 10))
            poll(lambda: rows(output) == expected, timeout_s=300)
            assert story.rows() == story.expected()

            # A driver on the copy is not harmed by a refresh.
            assert "job stop orders@staging" in fork(story, code=8)
            assert fork_plan(story) == ["copy-in-use"]
            assert job("status", story)["state"] == "running"
            job("stop", story)

            # The next copy begins again, from a newer savepoint, and the old one goes.
            story.do("savepoint")
            again = fork(story)
            assert again["queries"][0]["batch"] > saved
            assert {path(one).name for one in again["removed"]} == {"checkpoint.g0002", "out.g0002"}
            assert not output.exists()
            story.feed(1)
            job("start", story)
            output = tmp_path / "staging/out.g0003"
            poll(lambda: rows(output) == story_keys(story), timeout_s=300)
            story.until_written()
            assert story.rows() == story.expected()
            assert story.document("status")["state"] == "running"
            kinds = [one["kind"] for one in story.document("history", "--last", "100")]
            assert kinds.count("refreshed") == 2 and "refresh-failed" in kinds
        finally:
            end_drivers(copy.records())


def story_keys(story: ReleaseStory) -> Counter[str]:
    """What the last file has brought."""
    return Counter(f"k{n}" for n in range(story.files * 10, (story.files + 1) * 10))


def fork_plan(story: ReleaseStory) -> list[str]:
    answer = streambank("fork", NAME, "staging", "--jobs", story.jobs, "--dry-run", "--json")
    assert answer.code == 8, answer
    return [one["error"] for one in answer.document["refusals"]]


TABLE_APPLICATION = APPLICATION.replace(
    'writeStream.format("json").option("path", out)', "writeStream"
).replace("writer.start()", 'writer.toTable("orders_by_key")')


def kept(output: Path) -> Counter[str]:
    """How often each key is in the folders of batches that a copy keeps of another output than files."""
    parts = sorted(output.glob("batch=*/*.parquet"))
    return Counter(key for part in parts for key in read_table(part)["k"].to_pylist())


def test_the_rows_of_a_table_are_kept_by_batch_and_the_copy_starts_again(tmp_path: Path) -> None:
    assert "toTable" in TABLE_APPLICATION and "json" not in TABLE_APPLICATION.partition("writeStream")[2]
    staging = STAGING.replace('"./out"', "orders_by_key")
    staging += f"[jobs.{NAME}.copies.staging.hot_keys]\nsample = 1.0\n"
    with story_in(tmp_path, TABLE_APPLICATION, staging) as story:
        copy = load_jobs(story.jobs).job(COPY)
        try:
            live = hashes(tmp_path / "spark-warehouse")
            assert live, "the live query writes its table"
            (query,) = fork(story)["queries"]
            assert list(query["outputs"]) == ["orders_by_key"]
            expected = story.expected() - Counter(f"k{n}" for n in range((query["batch"] + 2) * 10))
            output = tmp_path / "staging/out.g0002"
            job("start", story)
            poll(lambda: kept(output) == expected, timeout_s=300)
            assert hashes(tmp_path / "spark-warehouse") == live
            job("stop", story)
            traffic = job("status", story)["queries"]["main"]["hot_keys"]
            assert traffic["operators"][0]["rows"] == 20 * traffic["operators"][0]["batches"] > 0
            assert story.document("status")["queries"]["main"]["hot_keys"] is None
            story.feed(1)
            job("start", story)
            poll(lambda: kept(output) == expected + story_keys(story), timeout_s=300)
        finally:
            end_drivers(copy.records())
