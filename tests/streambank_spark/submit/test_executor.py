"""What is submitted, and what becomes of it: with a spark-submit of the tests' own, and no JVM."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from streambank.core.errors import InputError, StorageError
from streambank.driver.spark_properties import property_lines
from streambank.replicas.replicate import newest_first, replicate_to
from streambank.repository.repository import Repository
from streambank.savepoint.verify import verify
from streambank.work.executor import Pace
from streambank.work.pace import Step
from streambank_spark.submit.bundle import write_packages
from streambank_spark.submit.executor import SparkExecutor
from tests.support.jobs.simulated_job import JOB, SimulatedJob, quick_store
from tests.support.paths import ROOT
from tests.support.refuses import refuses
from tests.support.spark.fake_spark_submit import fake_spark
from tests.support.waiting import poll

SECRET = "wJalrXUtnFEMI-very-secret"


@pytest.fixture
def shop(tmp_path: Path) -> SimulatedJob:
    return SimulatedJob(tmp_path, state_bytes=400_000).run(6)


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the fake spark-submit leaves what it was given."""
    return fake_spark(tmp_path, monkeypatch)


def left(tmp_path: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix()
        for folder in tmp_path.glob("streambank-spark-*")
        for path in folder.rglob("*")
    )


def test_a_take_by_it(shop: SimulatedJob, seen: Path, tmp_path: Path) -> None:
    said: list[str] = []
    steps: list[Step] = []
    executor = SparkExecutor("spark://there:7077", {"spark.executor.memory": "2g"}, say=said.append)
    result = shop.take(pace=Pace(executor=executor, progress=steps.append))
    assert verify(shop.repository, JOB, result.savepoint, "full").ok
    assert steps[-1].files_done == steps[-1].files_total == result.files
    arguments, _, conf, _, _ = json.loads(seen.read_text())
    assert arguments[arguments.index("--master") + 1] == "spark://there:7077"
    entry = Path(arguments[arguments.index("--plan") - 1])
    assert entry == ROOT / "spark_jobs" / "execute_plan.py" and entry.is_file()
    assert "spark.executor.memory=2g\n" in conf and "spark.submit.deployMode=client\n" in conf
    assert "spark.speculation" not in conf
    (line,) = said
    assert "spark://there:7077" in line and "spark.log" in line
    assert left(tmp_path) == [], "plan, configuration and log are gone"


def test_secrets_are_in_no_argument_and_in_no_environment_that_did_not_hold_them(
    shop: SimulatedJob, seen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = tmp_path / "mine.conf"
    properties.write_text(f"spark.executorEnv.AWS_SECRET_ACCESS_KEY {SECRET}-of-the-executors\n")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", SECRET)
    kept: list[str] = []

    def keeping(folder: Path, judged: object) -> None:
        kept.append((folder / "plan.jsonl").read_text())
        shutil.rmtree(folder)

    monkeypatch.setattr("streambank_spark.submit.executor.remove_directory", keeping)
    shop.take(pace=Pace(executor=SparkExecutor("spark://there:7077", properties=properties)))
    arguments, environment, conf, mode, _ = json.loads(seen.read_text())
    assert SECRET not in json.dumps([arguments, environment]) and SECRET not in kept[0]
    assert f"{SECRET}-of-the-executors" in conf
    assert stat.S_IMODE(mode) == 0o600


def test_what_went_away_before_an_executor_could_hold_it_is_copied_from_what_is_held_here(
    shop: SimulatedJob, seen: Path, tmp_path: Path
) -> None:
    victim = tmp_path / "ck" / "state/0/0/5.snapshot"
    data = victim.read_bytes()
    executor = SparkExecutor("spark://there:7077", {"spark.fake": "purge", "spark.victim": str(victim)})
    result = shop.take(pace=Pace(executor=executor))
    assert not victim.exists(), "the fault did not fire"
    assert result.replans == 0
    manifest = shop.repository.load(JOB, result.savepoint)
    (entry,) = [entry for entry in manifest.files if entry.path == "state/0/0/5.snapshot"]
    assert shop.repository.objects.read(entry.digest) == data
    assert verify(shop.repository, JOB, result.savepoint, "full").ok


def test_a_restore_is_never_speculative(shop: SimulatedJob, seen: Path) -> None:
    savepoint = shop.take().savepoint
    executor = SparkExecutor("spark://there:7077", {"spark.speculation": "true"})
    shop.restore(savepoint, sink="accept", pace=Pace(executor=executor))
    conf = json.loads(seen.read_text())[2]
    assert conf.rindex("spark.speculation=false") > conf.rindex("spark.speculation=true")


@pytest.mark.storm
def test_a_replica_by_it_and_never_speculative(shop: SimulatedJob, seen: Path, tmp_path: Path) -> None:
    savepoint = shop.take().savepoint
    executor = SparkExecutor("spark://there:7077", {"spark.speculation": "true"})
    place = str(tmp_path / "replica")
    report = replicate_to(
        shop.repository, quick_store, place, newest_first(shop.repository), pace=Pace(executor=executor)
    )
    assert report.ok and [each.state for each in report.savepoints] == ["copied"]
    arguments, _, conf, _, _ = json.loads(seen.read_text())
    assert arguments[arguments.index("--name") + 1] == "streambank-move"
    assert conf.rindex("spark.speculation=false") > conf.rindex("spark.speculation=true")
    for key in [info.path for info in shop.repository_store.list()]:
        shop.repository_store.delete(key)
    assert verify(Repository.open(quick_store(place)), JOB, savepoint, "full").ok


@pytest.mark.parametrize(
    ("how", "why"), [("dead", "ended with -9"), ("silent", "ended with 0")], ids=["killed", "says nothing"]
)
def test_an_application_that_did_not_do_it_is_an_error_that_names_its_log(
    shop: SimulatedJob, seen: Path, tmp_path: Path, how: str, why: str
) -> None:
    with refuses(StorageError, "spark-failed") as caught:
        shop.take(pace=Pace(executor=SparkExecutor("spark://there:7077", {"spark.fake": how})))
    assert why in caught.value.message
    assert "Files that were copied are kept" in caught.value.hint
    log = re.search(r"in (\S+spark\.log)\.", caught.value.message)
    assert log is not None and "this is what Spark says" in Path(log[1]).read_text()
    assert left(tmp_path) == ["spark.log"], "nothing that may hold a secret stays"
    assert list(shop.repository.manifests()) == []


@pytest.mark.storm
def test_of_a_restore_that_failed_nothing_is_said_to_be_kept(shop: SimulatedJob, seen: Path) -> None:
    savepoint = shop.take().savepoint
    with pytest.raises(StorageError) as caught:
        shop.restore(
            savepoint,
            sink="accept",
            pace=Pace(executor=SparkExecutor("spark://there:7077", {"spark.fake": "dead"})),
        )
    assert (caught.value.code, caught.value.hint) == ("spark-failed", "Read the log, and try again.")


@pytest.mark.storm
def test_a_portion_that_nobody_reports_is_neither_verified_nor_restored(
    shop: SimulatedJob, seen: Path
) -> None:
    savepoint = shop.take().savepoint
    executor = SparkExecutor("spark://there:7077", {"spark.fake": "forgetful"})
    with pytest.raises(StorageError, match=r"[1-9]\d* of \d+ tasks were not reported"):
        verify(shop.repository, JOB, savepoint, "full", pace=Pace(executor=executor))
    assert shop.repository.verifications(JOB, savepoint) == []
    with pytest.raises(StorageError, match="were not reported"):
        shop.restore(savepoint, sink="accept", pace=Pace(executor=executor))
    assert list(shop.open("restored").list()) == []


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C interrupts, also where whoever started the tests in the background has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.storm
@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_the_application(shop: SimulatedJob, seen: Path, tmp_path: Path) -> None:
    def interrupt() -> None:
        poll(lambda: seen.exists() and seen.stat().st_size > 0, timeout_s=120)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        shop.take(pace=Pace(executor=SparkExecutor("spark://there:7077", {"spark.fake": "endless"})))
    thread.join()
    pid = json.loads(seen.read_text())[4]
    assert not (Path("/proc") / str(pid)).exists()
    assert left(tmp_path) == []


def test_properties_that_cannot_be_read(shop: SimulatedJob, seen: Path, tmp_path: Path) -> None:
    with refuses(InputError, "bad-spark-conf"):
        shop.take(pace=Pace(executor=SparkExecutor("spark://there:7077", properties=tmp_path / "none.conf")))
    assert not seen.exists()


def test_property_lines_are_read_back_as_they_were_given() -> None:
    given = {"spark.a": "x", "spark.b": " a b ", "spark.c=d": "C:\\x#y=z", "spark.e": "two\nlines\tand more"}
    text = property_lines(given)
    assert "spark.a=x\n" in text
    assert "spark.b=\\ a b \n" in text
    assert "spark.c\\=d=C:\\\\x#y=z\n" in text
    assert "spark.e=two\\nlines\\tand more\n" in text


class TestPackages:
    @pytest.mark.storm
    def test_they_work_where_there_are_none(self, tmp_path: Path) -> None:
        """Unpacked, as Spark does it, they make an interpreter with nothing of its own hash and know S3."""
        archive = write_packages(tmp_path / "packages.zip", ["blake3", "boto3"])
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(tmp_path / "packages")
        code = (
            "import sys; sys.path.append(sys.argv[1])\n"
            "from blake3 import blake3; import boto3\n"
            "client = boto3.client('s3', region_name='us-east-1')\n"
            "boto3.client('sts', region_name='us-east-1')\n"
            "print(blake3(b'x').hexdigest(), client.meta.endpoint_url)"
        )
        bare = [sys.executable, "-S", "-E", "-c", code, str(tmp_path / "packages")]
        done = subprocess.run(bare, capture_output=True, text=True, check=True, cwd=tmp_path)
        assert done.stdout.split()[1].startswith("https://s3.")
        missing = subprocess.run([*bare[:-1], str(tmp_path)], capture_output=True, text=True, check=False)
        assert "No module named 'blake3'" in missing.stderr

    def test_they_are_few_bytes_and_always_the_same(self, tmp_path: Path) -> None:
        one = write_packages(tmp_path / "one.zip", ["blake3", "boto3"])
        two = write_packages(tmp_path / "two.zip", ["boto3", "blake3"])
        assert one.read_bytes() == two.read_bytes()
        assert one.stat().st_size < 8_000_000

    def test_one_that_is_not_installed_is_named(self, tmp_path: Path) -> None:
        with refuses(StorageError, "missing-package") as caught:
            write_packages(tmp_path / "packages.zip", ["no-such-package"])
        assert "no-such-package" in caught.value.message
