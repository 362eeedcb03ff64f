"""State operations on a real cluster, whose Python has nothing of ours: the same comes of them as here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streambank.core.signing import VARIABLE, new_key
from streambank.repository.repository import Repository
from streambank.savepoint.sign import sign_savepoint
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from streambank_spark.change.carry_out import carry_out as change
from streambank_spark.change.request import BootstrapRequest, TransformRequest, request_of
from streambank_spark.rewrite.derive import SourceSavepoint
from streambank_spark.rewrite.request import carry_out
from streambank_spark.rewrite.rewrite_request import RewriteRequest
from streambank_spark.state.digest import digest_of
from streambank_spark.state.staging import Staging, materialized_savepoint
from streambank_spark.state.state import QueryState
from tests.support.bare.python import make_bare_python
from tests.support.checkpoint.recorded import unpack
from tests.support.drivers.real_driver import submit
from tests.support.paths import ROOT
from tests.support.spark.standalone_cluster import Cluster, running_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

JOB = "job"
LAYOUTS = ["hdfs-dedup", "rocksdb-changelog-window", "ids-changelog-join3"]
"""Each provider, each version of the format, one store and several; the kinds of state are elsewhere."""
WHERE = {
    "hdfs-dedup": "key.k < 'k5'",
    "rocksdb-changelog-window": "key.k < 'k5'",
}
BY_JOIN_KEY = "key.field0 < 'k5'"


@dataclass(frozen=True)
class There:
    cluster: Cluster
    python: Path

    @property
    def conf(self) -> dict[str, str]:
        driver = {"spark.pyspark.driver.python": sys.executable}
        return {**self.cluster.conf, "spark.pyspark.python": str(self.python), **driver}

    @property
    def environment(self) -> dict[str, str]:
        """Of a driver; executors have that of their workers."""
        path = os.pathsep.join([str(ROOT / "provider"), str(ROOT)])
        return {**os.environ, "PYTHONPATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}

    def ask(self, *arguments: str, cwd: Path, work: Path | str | None = None) -> tuple[int, dict[str, Any]]:
        """What the command line answers: its exit code, and its JSON."""
        conf = [part for name, value in self.conf.items() for part in ("--spark-conf", f"{name}={value}")]
        asked = [*arguments, "--master", self.cluster.master, "--json", *conf]
        if work is not None:
            asked += ["--work", str(work)]
        done = subprocess.run(
            [sys.executable, "-m", "streambank", *asked],
            cwd=cwd, env=self.environment, stdout=subprocess.PIPE, timeout=600, check=False,
        )  # fmt: skip
        return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[There]:
    python = make_bare_python(tmp_path_factory.mktemp("python") / "venv")
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield There(cluster, python)


@pytest.fixture
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Repository, str]:
    unpack(f"4.3.0/{request.param}", tmp_path)
    repository = Repository.open(open_store(str(tmp_path / "repository")), create=True)
    return repository, take(TakeRequest(open_store(str(tmp_path / "checkpoint")), repository, JOB)).savepoint


def here(
    spark: SparkSession,
    repository: Repository,
    order: RewriteRequest | TransformRequest | BootstrapRequest,
    savepoint: str,
    folder: Path,
) -> str | None:
    """The same on this machine."""
    staging = Staging("local[2]", str(folder / "here"), print)
    source = SourceSavepoint(spark, repository, JOB, savepoint, staging)
    if isinstance(order, RewriteRequest):
        return carry_out(source, order).savepoint
    made: str | None = change(source, order)["savepoint"]
    return made


def digests(spark: SparkSession, repository: Repository, savepoint: str | None, folder: Path) -> list[Any]:
    assert savepoint is not None
    staging = Staging("local[2]", str(folder / "here"), print)
    with materialized_savepoint(repository, JOB, savepoint, staging) as laid:
        return [each.to_dict() for each in digest_of(QueryState(spark, laid.location))]


def test_executors_find_nothing_of_ours_by_themselves(there: There, tmp_path: Path) -> None:
    """The control: without what comes along, the other tests could not pass."""
    program = tmp_path / "program.py"
    program.write_text(
        "from importlib.util import find_spec\n"
        "from pyspark import SparkContext\n"
        "found = SparkContext.getOrCreate().parallelize(['streambank_spark', 'lz4', 'xxhash', 'json'], 4)\n"
        "print('FOUND', sorted(found.filter(lambda name: find_spec(name) is not None).collect()))\n"
    )
    conf = [part for name, value in there.conf.items() for part in ("--conf", f"{name}={value}")]
    command = submit(program)
    done = subprocess.run(
        [command[0], "--master", there.cluster.master, *conf, str(program)],
        cwd=tmp_path, env=there.environment, stdout=subprocess.PIPE, text=True, timeout=300, check=True,
    )  # fmt: skip
    assert "FOUND ['json']" in done.stdout


@pytest.mark.parametrize("saved", LAYOUTS, indirect=True, ids=LAYOUTS)
def test_a_compaction_is_the_same_as_on_one_machine(
    spark: SparkSession,
    there: There,
    saved: tuple[Repository, str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    repository, savepoint = saved
    where = WHERE.get(request.node.callspec.params["saved"], BY_JOIN_KEY)
    code, found = there.ask(
        "state", "compact", savepoint, "-r", repository.store.uri, "--where", where,
        cwd=tmp_path, work=tmp_path / "shared",
    )  # fmt: skip
    assert code == 0, found
    assert sum(each["rows"] for each in found["operators"]) > 0
    model = here(spark, repository, RewriteRequest(operation="compact", where=where), savepoint, tmp_path)
    made = digests(spark, repository, found["savepoint"], tmp_path)
    assert made == digests(spark, repository, model, tmp_path)
    assert made != digests(spark, repository, savepoint, tmp_path)
    assert not list((tmp_path / "shared").iterdir()), "what was laid out is gone"


@pytest.mark.parametrize("saved", ["hdfs-dedup"], indirect=True)
def test_what_a_cluster_rewrites_is_signed_here_and_no_executor_gets_the_key(
    there: There, saved: tuple[Repository, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, savepoint = saved
    new_key(tmp_path / "keys")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "keys"))
    signed = Repository.open(repository.store)
    assert sign_savepoint(signed, JOB, savepoint).signed
    asked = ("state", "compact", savepoint, "-r", repository.store.uri, "--where", WHERE["hdfs-dedup"])
    place: dict[str, Any] = {"cwd": tmp_path, "work": tmp_path / "shared"}
    with monkeypatch.context() as patch:
        patch.delenv(VARIABLE)
        code, found = there.ask(*asked, **place)
    assert (code, found["error"]) == (8, "signing-key-missing")

    code, found = there.ask(*asked, **place)

    assert code == 0, found
    assert signed.load(JOB, found["savepoint"]).batch == signed.load(JOB, savepoint).batch
    key = (tmp_path / "keys").read_text().split()[-1].encode()
    given = [path for path in there.cluster.folder.rglob("*") if path.is_file()]
    assert given and not [path for path in given if key in path.read_bytes()]


@pytest.mark.parametrize("saved", ["ids-changelog-join3"], indirect=True)
def test_state_is_spread_anew_and_read_and_compared(
    spark: SparkSession, there: There, saved: tuple[Repository, str], tmp_path: Path
) -> None:
    repository, savepoint = saved
    place: dict[str, Any] = {"cwd": tmp_path, "work": tmp_path / "shared"}
    of = ("-r", repository.store.uri)
    code, wide = there.ask("rescale", savepoint, *of, "--partitions", "5", **place)
    assert code == 0, wide
    assert {store["partitions"] for store in wide["stores"]} == {5}
    model = digests(spark, repository, savepoint, tmp_path)
    assert digests(spark, repository, wide["savepoint"], tmp_path) == model
    code, digest = there.ask("state", "digest", wide["savepoint"], *of, **place)
    assert (code, digest["operators"]) == (0, model)
    code, diff = there.ask("state", "diff", savepoint, wide["savepoint"], *of, **place)
    assert code == 0 and all(part["same"] and not part["changed"] for part in diff["parts"])


def submitted(
    there: There, repository: Repository, savepoint: str, order: dict[str, Any], folder: Path
) -> dict[str, Any]:
    """The report of the program that spark-submit runs."""
    plan, report = folder / "plan.json", folder / "report.json"
    asked = {"repository": repository.store.uri, "job": JOB, "savepoint": savepoint, "order": order}
    plan.write_text(json.dumps(asked | {"work": str(folder / "shared")}))
    entry = ROOT / "spark_jobs/rewrite_state.py"
    conf = [part for name, value in there.conf.items() for part in ("--conf", f"{name}={value}")]
    done = subprocess.run(
        [submit(entry)[0], "--master", there.cluster.master, *conf, str(entry),
         "--plan", str(plan), "--report", str(report)],
        cwd=folder, env=there.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    found: dict[str, Any] = json.loads(report.read_text())
    return found


@pytest.mark.parametrize("saved", ["hdfs-dedup"], indirect=True)
def test_spark_submit_carries_out_a_plan(
    spark: SparkSession, there: There, saved: tuple[Repository, str], tmp_path: Path
) -> None:
    repository, savepoint = saved
    order = RewriteRequest(operation="compact", where=WHERE["hdfs-dedup"])
    made = submitted(there, repository, savepoint, order.to_dict(), tmp_path)["savepoint"]
    model = here(spark, repository, order, savepoint, tmp_path)
    assert digests(spark, repository, made, tmp_path) == digests(spark, repository, model, tmp_path)


AT = "timestamp '2024-01-01 02:00:00'"
WINDOWS = (
    f"SELECT concat('new', n) AS k, struct({AT} AS start, {AT} + interval 20 minutes AS end) AS window, "
    "n AS sum FROM source"
)
MADE: dict[str, dict[str, Any]] = {
    "hdfs-window": {"query": WINDOWS},
    "rocksdb-changelog-window": {"query": WINDOWS},
    "ids-changelog-window": {"query": WINDOWS},
    "ids-changelog-transform": {"part": "seen", "keys": ["k = concat('new', n)"]},
}
"""Of each layout how a table of numbers becomes state."""


def _asked(name: str, folder: Path) -> dict[str, dict[str, Any]]:
    """A transformation and a bootstrap of a layout, as JSON."""
    (folder / "table.json").write_text("".join(f'{{"n": {number}}}\n' for number in range(200)))
    part = MADE[name].get("part")
    column = "n" if part else "sum"
    return {
        "transform": {
            "operation": "transform",
            "part": part,
            "sets": [f"value.{column} = value.{column} * 2 + 1"],
            "where": f"value.{column} % 2 = 0",
            "delete_where": "key.k in ('k1', 'k2')",
        },
        "bootstrap": {
            "operation": "bootstrap",
            "table": str(folder / "table.json"),
            "existing": "overwrite",
            **MADE[name],
        },
    }


@pytest.mark.parametrize(
    "saved", ["hdfs-window", "rocksdb-changelog-window", "ids-changelog-transform"], indirect=True
)
def test_state_that_a_cluster_makes_and_changes_is_the_same_as_on_one_machine(
    spark: SparkSession,
    there: There,
    saved: tuple[Repository, str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    repository, savepoint = saved
    before = digests(spark, repository, savepoint, tmp_path)
    names = {"sets": "--set", "query": "--sql", "keys": "--key", "table": "--from"}
    for verb, asked in _asked(request.node.callspec.params["saved"], tmp_path).items():
        options = [
            text
            for name, value in asked.items()
            if name != "operation" and value is not None
            for one in (value if isinstance(value, list) else [value])
            for text in (names.get(name, f"--{name.replace('_', '-')}"), one)
        ]
        code, found = there.ask(
            "state", verb, savepoint, "-r", repository.store.uri, *options,
            cwd=tmp_path, work=tmp_path / "shared",
        )  # fmt: skip
        assert code == 0, found
        order = request_of(asked)
        assert isinstance(order, (TransformRequest, BootstrapRequest))
        model = here(spark, repository, order, savepoint, tmp_path)
        made = digests(spark, repository, found["savepoint"], tmp_path)
        assert made == digests(spark, repository, model, tmp_path) != before
    assert not list((tmp_path / "shared").iterdir()), "what was staged is gone"


@pytest.mark.parametrize("operation", ["transform", "bootstrap"])
@pytest.mark.parametrize("saved", ["ids-changelog-window"], indirect=True)
def test_spark_submit_makes_and_changes_state(
    spark: SparkSession, there: There, saved: tuple[Repository, str], operation: str, tmp_path: Path
) -> None:
    """What `hook.state.rewrite` sends, by the program that it submits."""
    repository, savepoint = saved
    asked = _asked("ids-changelog-window", tmp_path)[operation]
    order = request_of(asked)
    assert isinstance(order, (TransformRequest, BootstrapRequest))
    report = submitted(there, repository, savepoint, asked, tmp_path)
    model = here(spark, repository, order, savepoint, tmp_path)
    assert report["operation"] == operation
    assert digests(spark, repository, report["savepoint"], tmp_path) == digests(
        spark, repository, model, tmp_path
    )


@pytest.mark.parametrize("saved", ["rocksdb-changelog-window"], indirect=True)
def test_a_work_place_that_executors_do_not_see_is_refused(
    there: There, saved: tuple[Repository, str], tmp_path: Path
) -> None:
    repository, savepoint = saved
    of = ("-r", repository.store.uri)
    code, said = there.ask("state", "digest", savepoint, *of, cwd=tmp_path)
    assert (code, said["error"]) == (2, "usage")
    # To each process another folder: that of the driver is not that of an executor.
    unseen = "/proc/self/cwd/unseen"
    for asked in (
        ("state", "digest", savepoint),
        ("rescale", savepoint, "--partitions", "3"),
        ("verify", savepoint, "--level", "deep"),
    ):
        code, said = there.ask(*asked, *of, cwd=tmp_path, work=unseen)
        assert (code, said["error"]) == (8, "paths-not-shared"), said
    assert not list((tmp_path / "unseen").iterdir())
    assert len(list(repository.manifests(JOB))) == 1
