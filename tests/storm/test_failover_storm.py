"""Fail-over with real Spark and two S3 servers: one ended with kill -9, and a network that is cut."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import StorageError
from streambank.declaration.load import load_jobs
from tests.support.cli import streambank
from tests.support.jobs.declared import end_drivers
from tests.support.jobs.release_story import APPLICATION, NAME, ReleaseStory
from tests.support.storage.s3_network import Network, network
from tests.support.storage.s3_profiles import use_profiles
from tests.support.storage.s3_servers import S3Server, run_seaweedfs
from tests.support.waiting import poll

pytestmark = [pytest.mark.storm, pytest.mark.spark, pytest.mark.server, pytest.mark.timeout(900)]


TWO_QUERIES = """
import sys, time
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

source, out, slow = sys.argv[1], sys.argv[2], sys.argv[3]

def nap(n):
    with open(slow) as file:
        time.sleep(float(file.read() or 0))
    return n

def start(name, path):
    rows = spark.readStream.schema("k string, n int").option("maxFilesPerTrigger", 1).json(source)
    rows = rows.coalesce(1).withColumn("n", udf(nap, "int")("n")).dropDuplicates(["k"])
    writer = rows.writeStream.queryName(name).format("json").option("path", path)
    writer.trigger(processingTime="200 milliseconds").start()

spark = SparkSession.builder.getOrCreate()
start("first", out)
start("second", out + "-second")
spark.streams.awaitAnyTermination()
"""


class Story(ReleaseStory):
    """The story of a job with a primary on one S3 server and a standby on another.

    Args:
        own_outputs: The standby writes to a separate directory; else to that of the primary.
    """

    def __init__(self, folder: Path, *, own_outputs: bool, two_queries: bool = False) -> None:
        super().__init__(folder, "", application=TWO_QUERIES if two_queries else APPLICATION)
        queries = 'queries = ["first", "second"]' if two_queries else ""
        self.there = folder / "out-there" if own_outputs else self.out
        arguments = json.dumps([str(self.source), str(self.there), str(self.slow)])
        more = f'"{self.out}" = "{self.there}"' if own_outputs else ""
        spark = {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}
        own = json.dumps([str(self.source), str(self.out), str(self.slow)])
        settings = "".join(f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in spark.items())
        self.jobs.write_text(
            f"""
repository = "s3://site-a/savepoints"
[jobs.{NAME}]
application = "app.py"
args = {own}
checkpoint = "a/checkpoint"
control = "s3://site-a/control"
{queries}
master = "local[2]"
[jobs.{NAME}.lease]
beat = "500ms"
ttl = "20s"
[jobs.{NAME}.spark]
{settings}
[jobs.{NAME}.replicate]
to = ["s3://site-b/savepoints"]
[jobs.{NAME}.standby]
checkpoint = "b/checkpoint"
repository = "s3://site-b/savepoints"
control = "s3://site-b/control"
args = {arguments}
[jobs.{NAME}.standby.outputs]
{more}
""",
            encoding="utf-8",
        )

    def at(self, site: str) -> Mapping[str, Any]:
        answer = streambank("job", "status", f"{NAME}@{site}", "--jobs", self.jobs, "--json")
        assert answer.code == 0, answer.err
        found: Mapping[str, Any] = answer.document
        return found

    def batch(self, site: str) -> int:
        """The newest batch that each query has committed there; -1 before the first."""
        found = [one["batch"] for one in self.at(site)["queries"].values()]
        return min(-1 if one is None else one for one in found)

    def until_in_batch(self, site: str) -> None:
        """Wait until each query is in the middle of a batch there."""

        def planned() -> bool:
            found = self.at(site)["queries"].values()
            return all((one["planned_batch"] or 0) > (one["batch"] or 0) for one in found)

        poll(planned, timeout_s=60)

    def kill_in_batch(self, service: S3Server) -> None:
        """Kill the primary with its storage, in the middle of a batch."""
        status = self.at("primary")
        self.nap(0.5)
        self.feed()
        self.until_in_batch("primary")
        for pid in (service.pid, status["jvm_pid"], status["pid"]):
            os.kill(pid, signal.SIGKILL)
        self.nap(0)

    def second_rows(self) -> Counter[str]:
        own, self.out = self.out, self.out.with_name(f"{self.out.name}-second")
        try:
            return self.rows()
        finally:
            self.out = own

    def fail_over(self, *options: str, code: int = 0) -> Any:
        """Fail over; the report, or the error."""
        answer = streambank("failover", NAME, "--jobs", self.jobs, "--json", *options)
        assert answer.code == code, f"{answer.out}{answer.err}"
        return answer.document

    def save(self) -> None:
        """Take a savepoint at the primary, and bring it to the standby."""
        self.do("savepoint")
        answer = streambank(
            "replicate", "-r", "s3://site-a/savepoints", "--to", "s3://site-b/savepoints", "--json"
        )
        assert answer.code == 0, f"{answer.out}{answer.err}"

    def all_rows(self) -> Counter[str]:
        """How often each key is in the outputs of both sites together."""
        found, own = self.rows(), self.out
        if self.there != own and self.there.exists():
            self.out = self.there
            found += self.rows()
            self.out = own
        return found


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Mapping[str, S3Server]]:
    with ExitStack() as stack:
        found = {}
        for bucket in ("site-a", "site-b"):
            (tmp_path / f"server-{bucket}").mkdir()
            found[bucket] = stack.enter_context(run_seaweedfs(tmp_path / f"server-{bucket}"))
            with found[bucket].client() as client:
                client.create_bucket(Bucket=bucket)
        yield found


@contextmanager
def running_job(
    folder: Path,
    servers: Mapping[str, S3Server],
    patch: pytest.MonkeyPatch,
    *,
    own_outputs: bool,
    two_queries: bool = False,
    profiles: bool = False,
) -> Iterator[tuple[Story, Network, Network]]:
    """A running job with a savepoint at the standby and some batches after it; the networks of both sites."""
    patch.setenv("XDG_STATE_HOME", str(folder / "state"))
    with network(servers) as here, network(servers) as there:
        here.use(patch)
        if profiles:
            use_profiles(servers, folder, patch)
            patch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        story = Story(folder / "story", own_outputs=own_outputs, two_queries=two_queries)
        try:
            story.feed(3)
            story.do("start")
            poll(lambda: story.batch("primary") >= 2, timeout_s=120)
            story.save()
            story.feed(3)
            poll(lambda: story.batch("primary") >= 5, timeout_s=120)
            yield story, here, there
        finally:
            here.cut.clear()
            there.cut.clear()
            there.use(patch)  # with profiles, these count
            job = load_jobs(story.jobs).job(NAME)
            for site in ("primary", "standby"):
                with suppress(StorageError):  # its server was ended, and its driver with it
                    end_drivers(job.at_site(site).records())


def test_a_site_that_is_killed_in_the_middle_of_a_batch_leaves_the_output_of_a_run_without_disaster(
    tmp_path: Path, servers: Mapping[str, S3Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_job(tmp_path, servers, monkeypatch, own_outputs=False) as (story, _, there):
        story.kill_in_batch(servers["site-a"])
        there.use(monkeypatch)

        refused = story.fail_over(code=8)
        assert refused["error"] == "site-not-fenced"
        refused = story.fail_over("--is-down", "primary", code=8)
        assert refused["error"] == "sink-would-lose-rows", "the shared sink is ahead of the savepoint"
        assert story.at("standby")["site"]["number"] == 1, "nothing was recorded"
        report = story.fail_over("--is-down", "primary", "--sink", "rollback", "--why", "it burnt down")
        assert (report["site"], report["fenced"], report["rto_s"] is not None) == ("standby", False, True)
        assert report["rpo_s"] > 0
        story.feed(2)
        poll(lambda: story.rows() == story.expected(), timeout_s=180)
        assert story.at("standby")["site"]["unfenced"] == "primary"
        print("RPO and RTO in s:", report["rpo_s"], report["rto_s"], report["steps"])


def test_a_job_with_two_queries_goes_on_at_the_standby_after_its_site_was_killed(
    tmp_path: Path, servers: Mapping[str, S3Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_job(tmp_path, servers, monkeypatch, own_outputs=False, two_queries=True) as (
        story,
        _,
        there,
    ):
        story.kill_in_batch(servers["site-a"])
        there.use(monkeypatch)
        report = story.fail_over("--is-down", "primary", "--sink", "rollback")
        assert (report["site"], sorted(report["savepoints"])) == ("standby", ["first", "second"])
        story.feed(2)
        poll(lambda: story.rows() == story.second_rows() == story.expected(), timeout_s=180)
        print("RPO and RTO in s:", report["rpo_s"], report["rto_s"], report["steps"])


def test_a_planned_fail_over_of_two_queries_and_the_way_back(
    tmp_path: Path, servers: Mapping[str, S3Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_job(tmp_path, servers, monkeypatch, own_outputs=False, two_queries=True) as (story, _, _):
        report = story.fail_over()
        assert (report["fenced"], report["rpo_s"], sorted(report["batches"])) == (
            True,
            0,
            ["first", "second"],
        )
        story.feed(2)
        poll(lambda: story.rows() == story.second_rows() == story.expected(), timeout_s=180)
        back = story.fail_over("--to", "primary")
        assert (back["site"], back["rpo_s"]) == ("primary", 0)
        story.feed(2)
        poll(lambda: story.rows() == story.second_rows() == story.expected(), timeout_s=180)


def test_a_site_on_another_service_goes_on_after_the_primarys_was_killed(
    tmp_path: Path, servers: Mapping[str, S3Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each bucket has a profile with its endpoint and its credentials: no proxy is between."""
    with running_job(tmp_path, servers, monkeypatch, own_outputs=False, profiles=True) as (story, _, _):
        story.kill_in_batch(servers["site-a"])
        assert story.fail_over(code=8)["error"] == "site-not-fenced"
        report = story.fail_over("--is-down", "primary", "--sink", "rollback")
        assert (report["site"], report["fenced"], report["rto_s"] is not None) == ("standby", False, True)
        story.feed(2)
        poll(lambda: story.rows() == story.expected(), timeout_s=180)
        print("RPO and RTO in s:", report["rpo_s"], report["rto_s"], report["steps"])


def test_sites_that_are_cut_off_from_each_other(
    tmp_path: Path, servers: Mapping[str, S3Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_job(tmp_path, servers, monkeypatch, own_outputs=True) as (story, here, there):
        here.cut.add("site-b")
        there.cut.add("site-a")
        there.use(monkeypatch)
        refused = story.fail_over(code=8)
        assert refused["error"] == "site-not-fenced"
        assert there.refused > 0, "the network was cut"
        report = story.fail_over("--is-down", "primary")
        assert not report["fenced"]
        assert any("was not fenced" in one for one in report["warnings"])

        here.use(monkeypatch)
        before = story.at("primary")
        assert before["state"] == "running", "both are alive, and the primary does not know"
        here.cut.clear()
        poll(lambda: story.at("primary")["state"] != "running", timeout_s=60)
        assert story.at("primary")["site"]["active"] == "standby"
        answer = streambank("job", "start", NAME, "--jobs", story.jobs, "--json")
        assert (answer.code, answer.document["error"]) == (8, "failed-over")
        there.cut.clear()
        there.use(monkeypatch)
        fenced = streambank("failover", NAME, "--jobs", story.jobs, "--fence", "--json")
        assert (fenced.code, fenced.document["active"]) == (0, "standby"), fenced.err
        poll(lambda: story.at("standby")["site"]["unfenced"] is None, timeout_s=60)
        # The driver that found out leaves that behind, too, where its storage answers within a second.
        assert story.at("primary")["desired"] == "stopped"


def test_a_planned_fail_over_to_separate_outputs_loses_and_repeats_nothing(
    tmp_path: Path, servers: Mapping[str, S3Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_job(tmp_path, servers, monkeypatch, own_outputs=True) as (story, _, _):
        report = story.fail_over()
        assert (report["fenced"], report["fence"], report["rpo_s"]) == (True, "boundary", 0)
        story.feed(2)
        poll(lambda: story.all_rows() == story.expected(), timeout_s=180)
        print("RTO in s:", report["rto_s"], report["steps"])
