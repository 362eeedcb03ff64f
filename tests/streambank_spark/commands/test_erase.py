"""The right to be forgotten: what a key is taken from, what it is not taken from, and what still holds it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree
from typing import TYPE_CHECKING, Any

import pytest

from streambank.core.errors import InputError, RefusedError, StreambankError
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.replicas.replicate import newest_first, replicate_to
from streambank.repository.catalog import manifest_key
from streambank.repository.repository import Repository
from streambank.retention.expired import set_aside
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from streambank_spark.rewrite import key_locations
from streambank_spark.rewrite.expiry import KeySelection
from streambank_spark.rewrite.request import carry_out
from streambank_spark.rewrite.rewrite_request import RewriteRequest
from streambank_spark.state.staging import Staging, materialized_savepoint
from streambank_spark.state.state import QueryState
from tests.support.checkpoint.recorded import unpack
from tests.support.cli import streambank, succeed
from tests.support.declared_commands import install_commands
from tests.support.refuses import refuses
from tests.support.spark.saved_state import JOB, SavedState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.storm]

JOBS = """
repository = "{folder}/repository"

[jobs.job]
application = "app.py"
checkpoint = "{folder}/checkpoint"
replicate.to = ["{folder}/replica"]
"""


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    install_commands(monkeypatch)
    monkeypatch.delenv("STREAMBANK_JOBS", raising=False)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A deduplication by `k` and `t`, and behind it a count by window alone."""
    return unpack("4.3.0/hdfs-chain", tmp_path_factory.mktemp("recorded"))


class Site:
    """A repository with savepoints of several batches."""

    def __init__(self, recorded: Path, folder: Path) -> None:
        self.folder = folder
        self.repository = Repository.open(open_store(folder / "repository"), create=True)
        self.checkpoint = open_store(recorded / "checkpoint")
        self.names = [
            take(TakeRequest(self.checkpoint, self.repository, JOB, batch=batch)).savepoint
            for batch in (6, 7, 8)
        ]

    def replicate(self) -> str:
        """To a replica, whose location is given."""
        location = str(self.folder / "replica")
        report = replicate_to(self.repository, open_store, location, newest_first(self.repository, JOB))
        assert report.ok
        return location

    def keys(self, spark: SparkSession, savepoint: str) -> set[str]:
        """The keys of the deduplication in a savepoint, as `--key` takes them."""
        staging = Staging("local[2]", str(self.folder / "work"), print)
        with materialized_savepoint(self.repository, JOB, savepoint, staging) as laid:
            state = QueryState(spark, laid.location)
            (part,) = state.parts(state.operators(1)[0])
            rows = state.frame(part).selectExpr("key.k", "string(key.t) AS t").collect()
            return {json.dumps(row.asDict()) for row in rows}

    def erase(self, savepoint: str, *more: Any) -> dict[str, Any]:
        """What the command answers."""
        place = (savepoint, "-r", self.folder / "repository", "--work", self.folder / "work")
        found: dict[str, Any] = streambank("state", "erase", *place, *more, "--json").document
        return found


@pytest.fixture
def site(recorded: Path, tmp_path: Path) -> Iterator[Site]:
    yield Site(recorded, tmp_path)
    assert not list((tmp_path / "work").rglob("*")), "what was laid out is gone"


@pytest.mark.storm
def test_every_savepoint_is_looked_into_and_what_is_not_erased_is_named(
    spark: SparkSession, site: Site
) -> None:
    keys = {name: site.keys(spark, name) for name in site.names}
    newest = site.names[-1]
    key = sorted(keys[newest])[0]
    site.repository.pin(JOB, site.names[0])
    replica = site.replicate()
    found = site.erase(newest, "--key", key, "--replica", replica)
    (passed,) = found["passed_over"]
    assert (passed["operator"], passed["name"]) == (0, "stateStoreSave")
    assert "its fields are window" in passed["why"] and "values may still hold data" in passed["why"]
    assert found["savepoint"] not in (None, newest)
    # Of the first savepoint the erasing tells, of the new one its verification; replicas are the same.
    assert (found["searched"], found["savepoints"], found["looked_into"]) == (True, 7, 2)
    with_it = [name for name in reversed(site.names) if key in keys[name]]
    own, other = site.repository.store.uri, open_store(replica).uri
    assert [(each["repository"], each["savepoint"], each["found"]) for each in found["holding"]] == [
        *((own, name, "yes") for name in with_it), *((other, name, "yes") for name in with_it),
    ]  # fmt: skip
    assert {each["savepoint"] for each in found["holding"] if each["pinned"]} <= {site.names[0]}
    assert [each["generation"] for each in found["live"]] == [None]
    assert f"streambank sweep -r {own}" in found["deletion"]
    # These commands do what they say.
    for command in found["deletion"]:
        succeed(*command.replace("'", "").split()[1:])
    for place in (site.repository, Repository.open(open_store(replica))):
        assert [each.savepoint for each in place.manifests(JOB)] == [found["savepoint"]]


def leave_directories(job: Job, site: Site, savepoint: str, recorded: Path) -> str:
    """The declared checkpoint, from which a restore went on in another generation; beside it a quarantine."""
    first = site.folder / "checkpoint"
    copytree(recorded / "checkpoint", first)
    records = job.records()
    records.generations().ensure_first(job.checkpoint, by={})
    restore(RestoreRequest(site.repository, savepoint, job=JOB, generation=records, sink="accept"))
    copytree(f"{first}.g0002", f"{first}.g0003")
    Path(f"{first}.quarantine-1/files").mkdir(parents=True)
    Path(f"{first}.quarantine-1/files/x").write_text("x")
    return job.checkpoint


@pytest.mark.storm
def test_what_cannot_be_read_is_unknown_and_never_without_it(
    spark: SparkSession, site: Site, recorded: Path
) -> None:
    old, middle, newest = site.names
    gone = sorted(site.keys(spark, newest) - site.keys(spark, old))
    assert gone, "a key that only came later"
    path = site.folder / "repository" / manifest_key(JOB, middle)
    path.write_bytes(path.read_bytes()[:-9])
    third = take(TakeRequest(site.checkpoint, site.repository, JOB, batch=5)).savepoint
    set_aside(site.repository, JOB, third)
    site.repository.store.delete(manifest_key(JOB, third))
    jobs = site.folder / "jobs.toml"
    jobs.write_text(JOBS.format(folder=site.folder))
    declared = leave_directories(load_jobs(jobs).job(JOB), site, old, recorded)
    found = site.erase(newest, "--key", gone[0], "--jobs", jobs, "--dry-run")
    assert found["declared"] and found["replicas"] == [f"file://{site.folder}/replica"]
    answers = {each["savepoint"]: each["found"] for each in found["holding"]}
    assert answers[newest] == "yes" and old not in answers
    assert answers[middle].startswith("unknown: ") and "manifest" in answers[middle]
    assert answers[third].startswith("unknown: it is expired")
    assert answers[None].startswith("unknown: "), "the replica is not there"
    assert [(each["generation"], each["current"]) for each in found["live"]][:1] == [(2, True)]
    # What work on the job has left behind: read where it is a checkpoint, and named where it is none.
    ours = [each for each in found["left"] if each["location"].startswith(declared)]
    left = {each["location"].removeprefix(declared): each for each in ours}
    assert {at: each["found"].split(":")[0] for at, each in left.items()} == {
        "": "yes", ".g0003": "no", ".quarantine-1": "unknown",
    }  # fmt: skip
    assert "was not searched" in left[".quarantine-1"]["found"] and left[".g0003"]["next"] is None
    kept = left[""]["next"]
    assert kept.startswith("Keep it while it is needed by the way back"), "it has later batches"
    assert kept.endswith(f"Then remove it: `rm -r -- {site.folder}/checkpoint`")
    assert found["left_unread"] == [] and not {each["location"] for each in found["live"]} & {declared}
    assert site.erase(newest, "--key", gone[0], "--dry-run", "--no-search")["holding"] is None


def test_a_savepoint_that_spark_cannot_read_is_unknown(
    spark: SparkSession, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = sorted(site.keys(spark, site.names[-1]))[0]
    fired = []

    def fails(state: QueryState, *_: Any) -> str:
        fired.append(state)
        state.session.sql("SELECT raise_error('no such store')").collect()
        raise AssertionError

    monkeypatch.setattr(key_locations, "holds_key", fails)
    found = site.erase(site.names[-1], "--key", key, "--dry-run")
    assert len(fired) == 2
    unknown = [each["found"] for each in found["holding"] if each["found"] != "yes"]
    assert len(unknown) == 2 and all(each.startswith("unknown: Spark cannot read it") for each in unknown)


def test_an_operator_that_keeps_it_by_another_key_is_unknown(spark: SparkSession, site: Site) -> None:
    staging = Staging("local[2]", str(site.folder / "work"), print)
    with materialized_savepoint(site.repository, JOB, site.names[0], staging) as laid:
        state = QueryState(spark, laid.location)
        key = KeySelection(json.dumps({"k": "nobody"}))
        assert key_locations.holds_key(state, key, set()).startswith("unknown: operator 0 (stateStoreSave)")
        assert key_locations.holds_key(state, key, {(0, "stateStoreSave")}) == "no"


@pytest.mark.parametrize(
    ("name", "key", "kind", "code"),
    [
        ("hdfs-chain", '{"customer": "c-17"}', InputError, "bad-key-text"),
        ("hdfs-global", '{"k": "k1"}', RefusedError, "no-key"),
        ("stateless", '{"k": "k1"}', RefusedError, "no-state"),
    ],
)
def test_a_key_that_no_operator_has_is_an_error_that_names_them_all(
    spark: SparkSession, name: str, key: str, kind: type[StreambankError], code: str, tmp_path: Path
) -> None:
    saved = SavedState(spark, name, tmp_path)
    with refuses(kind, code) as caught:
        carry_out(saved.source(), RewriteRequest(operation="erase", key=key))
    operators = saved.manifest(saved.savepoint).operators
    assert all(f"operator {one['operator']} (" in str(caught.value) for one in operators)
