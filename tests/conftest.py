"""What holds for every test: nothing leaks in, nothing leaks out, and in CI nothing is skipped.

Runs before anything of the project or of Airflow is imported, since Airflow reads its settings at import.
"""

from __future__ import annotations

import gc
import ipaddress
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Generator, Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import durations, storm
from tests.support.spark.jvm import spark_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent
IN_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}

# The tests of these folders start a JVM, need Airflow's database, or are long: marked so, every one of them.
MARKERS_BY_FOLDER = {
    "tests/streambank_airflow": "airflow",
    "tests/dags": "airflow",
    "tests/storm": "storm",
}
S3_SERVERS = ("seaweedfs", "moto_server", "versitygw", "s3")
"""Fixtures, and how parameters begin, of tests that start an S3 server."""
# What a developer's own shell may carry and a test must not see.
FOREIGN_PREFIXES = ("AIRFLOW", "STREAMBANK_", "SPARK_", "PYSPARK_", "AWS_", "HADOOP_")


def _isolate_environment() -> Path:
    """Give this process (each pytest-xdist worker is one) its own home in the temporary folder."""
    home = Path(tempfile.mkdtemp(prefix="streambank-tests-"))
    for name in list(os.environ):
        if name.startswith(FOREIGN_PREFIXES) or name == "PYTHONDONTWRITEBYTECODE":
            del os.environ[name]
    airflow_home = home / "airflow"
    airflow_home.mkdir()
    os.environ.update(
        {
            "AIRFLOW_HOME": str(airflow_home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(airflow_home / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            # Tests have DAGs of the same name; one that was written seconds ago must not stay.
            "AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "0",
            "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
            # Tasks of tests keep no page, but for those of the page's own tests.
            "AIRFLOW__STREAMBANK__PAGE": "False",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{airflow_home / 'airflow.db'}",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_HOSTNAME": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(home / "spark"),
            "XDG_STATE_HOME": str(home / "state"),
            "SPARK_SUBMIT_OPTS": spark_options(),
            "NO_COLOR": "1",
            "TZ": "UTC",
        }
    )
    return home


HOME = _isolate_environment()
PROCESSOR = durations.Processor()


def pytest_unconfigure() -> None:
    shutil.rmtree(HOME, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    part = config.getoption("--part")
    try:
        storm.Part.parse(part or "1/1")
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error
    if metadata.version("apache-airflow-core").startswith("3.1."):
        # It imports what it has deprecated itself, and so does its standard provider.
        for category in ("DeprecationWarning", "FutureWarning"):
            config.addinivalue_line("filterwarnings", f"default::{category}")
    if config.getoption("--record-storm") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(storm.Recorder(part or "ARGS"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Seven thousand tests and their modules stay to the end: the garbage collector need not look at them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(
            50_000, 20, 100
        )  # Airflow and its API come later, and stay, too: 6% of the processor
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        path = item.path.relative_to(ROOT).as_posix()
        for folder, marker in MARKERS_BY_FOLDER.items():
            if path.startswith(f"{folder}/"):
                item.add_marker(marker)
        if _starts_a_server(item):
            item.add_marker("server")
    if config.getoption("--part") is not None:
        items[:] = _of_part(items, storm.Part.parse(config.getoption("--part")))
    items[:] = _spread(items)


def _of_part(items: list[pytest.Item], part: storm.Part) -> list[pytest.Item]:
    """The tests of the storm that are in a part of it."""
    stormy = [item for item in items if item.get_closest_marker("storm")]
    files = {item: item.path.relative_to(ROOT).as_posix() for item in stormy}
    chosen = part.files(files.values(), storm.known_seconds())
    return [item for item in stormy if files[item] in chosen]


def _starts_a_server(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    parameters = [one for one in (call.params.values() if call else ()) if isinstance(one, str)]
    fixtures = [one for one in getattr(item, "fixturenames", ()) if one in S3_SERVERS]
    return bool(fixtures) or any(one.startswith(S3_SERVERS) for one in parameters)


_SLOW_WITHIN = 0.8
"""Among this share of the others, so that no worker is left alone with one of them at the end."""


def _spread(items: list[pytest.Item]) -> list[pytest.Item]:
    """Files that start a JVM, evenly among the others: they wait much, and two of them at once starve.

    Workers take whole files in this order (`--dist loadfile --no-loadscope-reorder`), so one of them has such
    a file while another works off the quick ones.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    slow = [tests for tests in files.values() if any(test.get_closest_marker("spark") for test in tests)]
    quick = [tests for tests in files.values() if tests not in slow]
    spread = [*quick]
    for number, tests in reversed([*enumerate(slow)]):
        spread.insert(int(number * len(quick) * _SLOW_WITHIN) // len(slow), tests)
    return [item for tests in spread for item in tests]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--durations-file", type=Path, help="keep in this file what took how long")
    parser.addoption("--part", metavar="K/N", help="only this part of the storm")
    parser.addoption("--record-storm", action="store_true", help="keep a record of the run")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Keep what took how long: an issue that adds a minute to the suite takes one away."""
    file = config.getoption("--durations-file")
    if file is not None and not hasattr(config, "workerinput"):
        reports = [one for kind in terminalreporter.stats.values() for one in kind if hasattr(one, "when")]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(durations.table(reports), encoding="utf-8")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a test that did not run is a failure: there is nothing on that machine that may be missing."""
    report = yield
    PROCESSOR.note(report)
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and in CI a skip is a failure: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a whole file that skips itself while it is collected."""
    report = yield
    if IN_CI and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} was skipped, and in CI a skip is a failure: {report.longrepr}"
    return report


class OutsideNetworkError(AssertionError):
    """A test reached for an address outside this machine."""


def _is_loopback(host: object) -> bool:
    if host in (None, "", "localhost"):
        return True
    name = host.decode() if isinstance(host, bytes) else str(host)
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == socket.gethostname()


@pytest.fixture(autouse=True, scope="session")
def only_loopback() -> Iterator[None]:
    """Refuse connections and name look-ups that would leave the machine."""
    connect, look_up = socket.socket.connect, socket.getaddrinfo

    def guarded_connect(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not _is_loopback(address[0]):
            raise OutsideNetworkError(f"a test tried to connect to {address[0]}")
        connect(self, address)

    def guarded_look_up(host: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_loopback(host):
            raise OutsideNetworkError(f"a test tried to look up {host}")
        return look_up(host, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded_connect)
        patch.setattr(socket, "getaddrinfo", guarded_look_up)
        yield


@pytest.fixture(scope="session")
def project_root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One small Spark session for all tests of this process that only need one."""
    from tests.support.spark.sessions import own_spark

    session = own_spark({"spark.sql.warehouse.dir": str(HOME / "warehouse")})
    yield session
    session.stop()
