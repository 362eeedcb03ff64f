"""What the stack is about to start: its ports, secrets and commands, and how it says what is missing."""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from demo.jars import WrongJarError
from demo.jars.kafka import KAFKA
from demo.parts import Part
from demo.places import PROCESS_MARK
from demo.ports import NoFreePortError
from demo.stack import __main__ as main
from demo.stack import addresses, compose, postgres, services, settings, story, whole
from demo.stack.passwords import passwords
from demo.stack.places import FLIGHTS_TOPIC, JOBS_FILE, KAFKA_VARIABLE, StackPlaces
from demo.stack.postgres import MissingError
from streambank.declaration.load import load_jobs
from tests.support.paths import ROOT


@pytest.fixture(autouse=True)
def some_postgres(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its programs are only looked for here, so a machine without them has them, too."""
    folder = tmp_path_factory.mktemp("installed")
    for name in postgres.REQUIRED:
        (folder / name).touch(mode=0o755)
    monkeypatch.setattr(postgres, "INSTALLED", (str(folder),))


@pytest.fixture
def places(tmp_path: Path) -> StackPlaces:
    here = StackPlaces(tmp_path / "stack")
    here.logs.mkdir(parents=True)
    return here


@pytest.fixture
def parts(places: StackPlaces, tmp_path: Path) -> dict[str, Part]:
    """Every part but Postgres, which may not be installed, and Airflow, which the demo has."""
    ports = addresses.choose({})
    known = passwords(places)
    base = {"PATH": os.environ["PATH"], PROCESS_MARK: str(places.home)}
    spark = services.spark_environment(places, base) | known.s3_environment(ports)
    found = [
        *services.s3_parts(places, ports, known, base),
        *services.kafka_parts(places, ports, f"{tmp_path}/jars/*", base),
        *services.spark_parts(places, ports, spark, "/jars"),
    ]
    return {part.name: part for part in found}


def test_ports_are_free_and_no_two_are_the_same() -> None:
    ports = addresses.choose({})
    every = [*ports.port.values(), *ports.inside.values()]
    assert max(Counter(every).values()) == 1
    assert ports.inside["weed-admin-grpc"] - ports.inside["weed-admin"] == addresses.WEED_APART
    # Connections that go out are given ports from here on: nobody's part is to lose its port to one.
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    others = dict(ports.inside)
    assert others.pop("weed-admin-grpc") < lowest + addresses.WEED_APART and max(others.values()) < lowest


def test_a_port_that_is_asked_for_is_taken_or_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
        with pytest.raises(NoFreePortError, match=f"port {port} of 127.0.0.1 is in use.*--kafka-port"):
            addresses.choose({"kafka": port})
    assert addresses.choose({"kafka": port}).kafka == f"127.0.0.1:{port}"
    with pytest.raises(NoFreePortError, match=r"asked for twice: --(s3|kafka)-port"):
        addresses.choose({"kafka": port, "s3": port})


def test_a_well_known_port_that_is_taken_is_passed_over() -> None:
    usual = addresses.PREFERRED["s3"]
    try:
        with socket.create_server(("127.0.0.1", usual)):
            assert addresses.choose({}).port["s3"] != usual
    except OSError:  # somebody has it already, which is the case in question
        assert addresses.choose({}).port["s3"] != usual


def test_secrets_are_random_kept_and_for_their_owner_only(places: StackPlaces, tmp_path: Path) -> None:
    made = passwords(places)
    assert passwords(places) == made
    assert stat.S_IMODE(places.secrets.stat().st_mode) == 0o600
    other = StackPlaces(tmp_path / "other")
    other.home.mkdir()
    assert passwords(other) != made
    assert made.postgres not in repr(made) and made.s3_secret not in repr(made)


def test_no_secret_is_on_a_command_line(places: StackPlaces, parts: dict[str, Part]) -> None:
    known = passwords(places)
    for part in parts.values():
        line = " ".join(part.command)
        assert not any(secret in line for secret in (known.s3_secret, known.postgres, known.fernet))
    assert stat.S_IMODE((places.s3 / "s3.json").stat().st_mode) == 0o600


def test_everything_listens_on_loopback_and_writes_below_one_folder(
    places: StackPlaces, parts: dict[str, Part]
) -> None:
    assert list(parts) == [
        *("s3", "buckets", "kafka-format", "kafka", "topics"),
        *("spark-master", "spark-worker-1", "spark-worker-2"),
    ]
    for part in parts.values():
        assert part.environment[PROCESS_MARK] == str(places.home), "it could not be found again"
        assert part.once or part.ready, "nobody would know when it is ready"
        assert "0.0.0.0" not in " ".join(part.command)
    broker = (places.kafka / "server.properties").read_text()
    assert re.findall(r"^(?:advertised\.)?listeners=(.*)$", broker, re.MULTILINE)
    hosts = re.findall(r"//([\w.]*):", broker)
    assert hosts and set(hosts) == {"127.0.0.1"}
    weed = parts["s3"].command
    assert "-ip.bind=127.0.0.1" in weed and f"-dir={places.s3 / 'data'}" in weed
    for name in ("spark-master", "spark-worker-1", "spark-worker-2"):
        command = parts[name].command
        assert command[command.index("--host") + 1] == "127.0.0.1"
        assert parts[name].environment["SPARK_LOCAL_IP"] == "127.0.0.1"
    # Whoever may submit must not learn the storage's key; drivers and executors have it from their worker.
    assert not any(name.startswith("AWS") for name in parts["kafka"].environment)
    worker = parts["spark-worker-1"].environment
    assert worker["AWS_SECRET_ACCESS_KEY"] and worker["SPARK_DAEMON_CLASSPATH"] == "/jars/*"


def test_a_broker_is_formatted_once(places: StackPlaces, tmp_path: Path) -> None:
    (places.kafka / "log").mkdir(parents=True)
    (places.kafka / "log" / "meta.properties").touch()
    base = {"PATH": os.environ["PATH"]}
    found = services.kafka_parts(places, addresses.choose({}), str(tmp_path), base)
    assert [part.name for part in found] == ["kafka", "topics"]


def test_the_job_of_the_stack_has_all_of_its_variables(
    places: StackPlaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = addresses.choose({})
    told = settings.job_variables(places, ports, "/jars")
    used = set(re.findall(r"\$\{(\w+)", JOBS_FILE.read_text(encoding="utf-8")))
    assert used == set(told)
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    job = load_jobs(JOBS_FILE).jobs["flights"]
    assert job.master == ports.master
    assert job.checkpoint.startswith("s3a://") and job.control is None
    assert job.repository.startswith("s3://")
    assert job.replicate.to == (places.replica.as_uri(),)
    assert job.spark["spark.driver.extraClassPath"] == job.spark["spark.executor.extraClassPath"] == "/jars/*"
    assert PROCESS_MARK in job.env, "its driver could not be found again"
    assert job.launch.in_cluster
    assert (job.launch.rest, job.launch.web) == (ports.spark_rest, ports.spark_page)
    said = dict(zip(job.args[::2], job.args[1::2], strict=True))
    assert said["--kafka"] == job.kafka.bootstrap == ports.kafka
    assert (said["--topic"], said["--records-per-trigger"]) == (FLIGHTS_TOPIC, str(story.RECORDS_PER_BATCH))
    assert job.working_dir == str(places.temporary)


def test_airflow_uses_postgres_and_its_drivers_find_the_storage(places: StackPlaces) -> None:
    ports, known = addresses.choose({}), passwords(places)
    spark = services.spark_environment(places, {"PATH": "/bin", "TMPDIR": str(places.temporary)})
    found = settings.airflow_environment(places, ports, known, spark, "/jars")
    connection = found["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
    assert connection == postgres.url(ports.port["postgres"], known.postgres)
    assert found["AIRFLOW__CORE__EXECUTOR"] == "LocalExecutor"
    assert found["AWS_ENDPOINT_URL"] == ports.s3 and found[KAFKA_VARIABLE] == ports.kafka
    assert found["SPARK_LOCAL_DIRS"] == found["TMPDIR"] == str(places.temporary)
    for name in ("AIRFLOW_HOME", "AIRFLOW__LOGGING__BASE_LOG_FOLDER", "XDG_STATE_HOME"):
        assert Path(found[name]).is_relative_to(places.home), "it would be left behind"


def test_postgres_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(postgres, "INSTALLED", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingError, match="apt-get install postgresql"):
        postgres.binaries()


def test_the_newest_postgres_is_taken_and_a_part_of_one_is_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(postgres, "INSTALLED", (f"{tmp_path}/postgresql/*/bin",))
    for version, names in (("9", postgres.REQUIRED), ("15", postgres.REQUIRED), ("16", ("initdb",))):
        folder = tmp_path / "postgresql" / version / "bin"
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).touch()
    assert postgres.binaries() == tmp_path / "postgresql" / "15" / "bin"


def test_postgres_is_made_once_and_its_password_passes_by_a_file(
    places: StackPlaces, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(postgres, "binaries", lambda: tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    first = postgres.parts(places, 5, "hush-7", {"PATH": "/bin"})
    assert [part.name for part in first] == ["initdb", "postgres", "createdb"]
    assert not any("hush-7" in " ".join(part.command) for part in first)
    assert stat.S_IMODE((places.postgres / "password").stat().st_mode) == 0o600
    (places.postgres / "data").mkdir()
    (places.postgres / "data" / "PG_VERSION").write_text("15")
    assert [part.name for part in postgres.parts(places, 5, "hush-7", {"PATH": "/bin"})] == ["postgres"]


def test_jars_that_are_not_the_known_ones_are_refused(tmp_path: Path) -> None:
    listed = (ROOT / "demo" / "jars" / "kafka.sha256").read_text().splitlines()
    known = [line.split()[1] for line in listed]
    assert "broker/org.apache.kafka_kafka_2.13-4.3.1.jar" in known
    for name in known:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"something else")
    (tmp_path / "more.jar").touch()
    with pytest.raises(WrongJarError, match=r"at\.yawk.*more\.jar"):
        KAFKA.check(tmp_path)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "demo.stack", *words],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "provider")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_down_where_nothing_is_up_says_so_and_removes_what_was_kept(places: StackPlaces) -> None:
    (places.data / "input").mkdir(parents=True)
    kept = run("down", "--keep", "--home", str(places.home))
    assert (kept.returncode, kept.stdout.splitlines()[0]) == (0, "Nothing is up")
    assert places.data.is_dir()
    gone = run("down", "--home", str(places.home))
    assert (gone.returncode, gone.stderr) == (0, "")
    assert not places.home.exists()


def test_a_folder_with_something_else_in_it_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    for verb in ("up", "down", "test"):
        answer = run(verb, "--home", str(tmp_path))
        assert answer.returncode == 1
        assert "holds something other than a stack" in answer.stderr or "install" in answer.stderr
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_kept_data_is_used_again_and_a_test_begins_anew(
    places: StackPlaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole, "check_what_is_needed", lambda: None)
    (places.data / "input").mkdir(parents=True)
    assert main.prepare(places, fresh=False), "nothing says that a stack was here"
    assert not places.data.exists()
    passwords(places)
    (places.data / "input").mkdir(parents=True)
    assert not main.prepare(places, fresh=False)
    assert places.data.is_dir()
    assert main.prepare(places, fresh=True)
    assert not places.data.exists() and places.logs.is_dir()


def test_of_a_test_only_logs_and_report_stay(places: StackPlaces) -> None:
    passwords(places)
    places.report.write_text("{}")
    places.temporary.mkdir()
    main.remove(places, but=main.KEPT_OF_A_TEST)
    assert sorted(entry.name for entry in places.home.iterdir()) == ["logs", "report.json"]
    main.remove(places)
    assert not places.home.exists()


@pytest.mark.parametrize(
    ("installed", "first"),
    [
        ({"docker": 0, "go": 0}, "docker"),
        ({"docker": 1, "go": 0}, "go"),
        ({"go": 0}, "go"),
        ({"docker": 1}, ""),
    ],
)
def test_compose_is_asked_where_it_is_and_go_where_not(
    installed: dict[str, int], first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, code in installed.items():
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {code}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = compose.command()
    assert (Path(found[0][0]).name if found else "") == first


def test_where_nothing_can_parse_compose_files_one_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert compose.main() == 1
    assert capsys.readouterr().err.splitlines() == [compose.MISSING]


@pytest.mark.parametrize("code", [0, 15])
def test_what_the_parser_says_is_the_answer(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    go = tmp_path / "go"
    go.write_text(f'#!/bin/sh\necho "$@"\nenv\nexit {code}\n')
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(compose, "_works", lambda words: False)
    monkeypatch.setenv("KAFKA_PORT", "1")
    assert compose.main() == (1 if code else 0)
    said = capfd.readouterr().out
    assert f"run . {ROOT / 'docker-compose.yml'} {ROOT / '.env.example'}" in said
    assert "KAFKA_PORT" not in said, "what a shell has set does not decide"


Found = Callable[[str], str | None]


def test_setpriv_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Found = shutil.which
    monkeypatch.setattr(postgres, "binaries", lambda: Path("/bin"))
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "setpriv" else real(name))
    with pytest.raises(MissingError, match="setpriv is missing"):
        whole.check_what_is_needed()
