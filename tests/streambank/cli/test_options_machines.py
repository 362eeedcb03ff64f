"""Which machines a verb works on: by size where a master is named, or as it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from streambank.cli import options
from streambank.cli.options import Machines
from streambank.core.choices import WorkPlace
from streambank.core.errors import InputError
from streambank.driver.installed import Installation
from streambank.storage import open_store
from streambank.work.executor import FAR_BYTES, FAR_FILES, BySize, Threads, Work
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.cli import streambank, succeed
from tests.support.paths import ROOT
from tests.support.refuses import refuses

MASTER = "spark://there:7077"


@dataclass
class Spark:
    """Stands where streambank_spark.submit.executor does, and notes what is asked of it."""

    master: str
    conf: Mapping[str, str]
    properties: Path | None
    parallel: int
    say: Callable[[str], None]
    own: Callable[[], Installation | None]
    asked: ClassVar[list[Spark]] = []
    kinds: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.asked.append(self)

    def run(self, work: Work[Any, Any], tasks: Sequence[Any], done: Callable[[Any, Any], None]) -> None:
        self.kinds.append(work.kind)
        Threads(1).run(work, tasks, done)


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Spark]]:
    import streambank_spark.submit.executor

    monkeypatch.setattr(streambank_spark.submit.executor, "SparkExecutor", Spark)
    Spark.asked.clear()
    yield Spark.asked


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    LiveCheckpoint(open_store(tmp_path / "ck")).run(6)
    return tmp_path / "repository"


def test_every_verb_sends_its_work_where_it_is_told(tmp_path: Path, repository: Path) -> None:
    on = ("--on", "spark", "--master", MASTER, "--parallel", 3)
    conf = (
        "--spark-conf",
        "spark.a=b=c",
        "--spark-conf",
        "spark.d=",
        "--spark-properties",
        tmp_path / "mine",
    )
    taken = succeed(
        "take", tmp_path / "ck", "-r", repository, "--job", "orders", "--json", *on, *conf
    ).document
    succeed("verify", taken["savepoint"], "-r", repository, "--level", "full", *on)
    succeed("restore", "latest-good", "-r", repository, "--job", "orders", "--into", tmp_path / "new", *on)
    replica = tmp_path / "replica"
    succeed("replicate", "-r", repository, "--to", replica, *on)
    succeed("repair", "-r", repository, "--from", replica, *on)
    kinds = [["copy"], ["check"], ["check", "place"], ["move"], ["check"]]
    assert [each.kinds for each in Spark.asked] == kinds
    first = Spark.asked[0]
    assert (first.master, first.parallel) == (MASTER, 3)
    assert first.conf == {"spark.a": "b=c", "spark.d": ""}
    assert first.properties == tmp_path / "mine"


def test_little_stays_here_though_a_master_is_named(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMBANK_SPARK_MASTER", MASTER)
    succeed("take", tmp_path / "ck", "-r", repository, "--job", "orders")
    (spark,) = Spark.asked
    assert spark.kinds == []


def test_the_threshold_is_the_documented_one() -> None:
    chosen = Machines(master=MASTER).executor(parallel=2)
    assert isinstance(chosen, BySize)
    assert (chosen.far_bytes, chosen.far_files) == (64 << 30, 200_000) == (FAR_BYTES, FAR_FILES)
    page = (ROOT / "docs/howto/scale.md").read_text()
    assert "64 GiB or 200,000 files" in page


@pytest.mark.parametrize(("on", "master"), [("here", MASTER), ("auto", None), ("here", None)])
def test_one_machine_is_the_default(on: WorkPlace, master: str | None) -> None:
    assert isinstance(Machines(on=on, master=master).executor(parallel=2), Threads)
    assert Spark.asked == []


def test_spark_without_a_master(tmp_path: Path, repository: Path) -> None:
    answer = streambank("take", tmp_path / "ck", "-r", repository, "--job", "orders", "--on", "spark")
    assert answer.code == 2 and "STREAMBANK_SPARK_MASTER" in answer.err
    assert not repository.exists(), "nothing was made for a call that is wrong"


def test_a_rate_is_kept_by_one_machine(tmp_path: Path, repository: Path) -> None:
    assert isinstance(Machines(master=MASTER).executor(max_bytes_per_s=50_000_000), Threads)
    on = ("--on", "spark", "--master", MASTER, "--max-rate", "50MB/s")
    answer = streambank("take", tmp_path / "ck", "-r", repository, "--job", "orders", *on)
    assert answer.code == 2 and "--max-rate" in answer.err
    assert not repository.exists(), "nothing was made for a call that is wrong"
    assert Spark.asked == []


def test_a_share_is_hashed_here(tmp_path: Path, repository: Path) -> None:
    succeed("take", tmp_path / "ck", "-r", repository, "--job", "orders")
    share = ("verify", "--all", "-r", repository, "--sample", "50%", "--master", MASTER)
    succeed(*share)
    assert [each.kinds for each in Spark.asked] == [[]]
    answer = streambank(*share, "--on", "spark")
    assert answer.code == 2 and "--sample" in answer.err


@pytest.mark.parametrize("wrong", ["spark.executor.memory", "executor.memory=2g", "=x"])
def test_what_is_no_spark_property(wrong: str) -> None:
    with refuses(InputError, "usage"):
        Machines(on="spark", master=MASTER, spark_conf=(wrong,)).executor()


def test_where_spark_is_looked_for() -> None:
    assert options.SPARK == "streambank_spark.submit.executor"
