"""docker-compose.yml holds together, and names nothing that is not there; Compose judges its syntax."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

from demo import airflow_parts
from demo.jars.s3a import SETTINGS as S3A
from demo.stack import services
from demo.stack.addresses import choose
from demo.stack.places import FLIGHTS_TOPIC, KAFKA_VARIABLE, TOPICS, StackPlaces
from demo.stack.topics import PARTITIONS
from streambank.declaration.load import load_jobs
from streambank.driver.installed import find_installation
from tests.support.paths import ROOT

TEXT = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
COMPOSE: Mapping[str, Any] = yaml.safe_load(TEXT)
SERVICES: Mapping[str, Mapping[str, Any]] = COMPOSE["services"]
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
EXAMPLE = (ROOT / ".env.example").read_text(encoding="utf-8")
JOBS = ROOT / "docker" / "streaming_jobs.toml"
IN_IMAGE = "/opt/streambank/"
SPARK_IN_IMAGE = "/opt/venv/lib/python3.11/site-packages/pyspark/"
ONCE = {"buckets", "topics", "airflow-init"}
OURS = [name for name, service in SERVICES.items() if service["image"] == "streambank-stack"]
AIRFLOW = [name for name in OURS if name.startswith("airflow")]


def code(text: str) -> str:
    """Without comments, which may speak of variables."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def variables() -> Mapping[str, str]:
    """The variables of .env.example with their values."""
    return dict(re.findall(r"^([A-Z0-9_]+)=(.*)$", EXAMPLE, re.MULTILINE))


def words(service: str) -> list[str]:
    return shlex.split(SERVICES[service].get("command", ""))


def every_text(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for part in value.values():
            yield from every_text(part)
    elif isinstance(value, list):
        for part in value:
            yield from every_text(part)
    else:
        yield str(value)


def copied() -> list[str]:
    """What the image gets of the checkout."""
    found: list[str] = []
    for line in DOCKERFILE.splitlines():
        if line.startswith("COPY"):
            found += [word for word in line.split()[1:-1] if not word.startswith("--")]
    return found


def test_every_variable_has_the_default_that_the_example_names() -> None:
    used = re.findall(r"\$\{([A-Z0-9_]+)(?::-([^}]*))?\}", code(TEXT).replace("$${", "{"))
    assert used
    assert {name for name, _ in used} == set(variables())
    for name, default in used:
        assert default == variables()[name], name
    assert not re.findall(r"(?<!\$)\$(?![{$])", code(TEXT))


def test_the_example_explains_what_it_names() -> None:
    explained = False
    for line in EXAMPLE.splitlines():
        explained = line.startswith("#") or (explained and bool(line))
        assert not line or explained, f"nothing explains {line}"


def test_secrets_say_that_they_are_for_development_only() -> None:
    secret = {name for name in variables() if re.search(r"PASSWORD|SECRET|KEY", name)}
    assert len(secret) == 7
    for name in secret:
        assert variables()[name].startswith("development-only-"), name
    for name, value in variables().items():
        assert ("development-only" in value) == (name in secret)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_needs_what_there_is_in_a_state_that_it_can_reach(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        assert other in SERVICES
        expected = "service_completed_successfully" if other in ONCE else "service_healthy"
        assert how == {"condition": expected}, other


@pytest.mark.parametrize("name", SERVICES)
def test_what_runs_for_long_is_watched_and_started_again(name: str) -> None:
    service = SERVICES[name]
    assert ("healthcheck" in service) == (name not in ONCE)
    assert service["restart"] == ("on-failure" if name in ONCE else "unless-stopped")
    if name not in ONCE:
        assert {"test", "interval", "timeout", "retries", "start_period"} <= set(service["healthcheck"])


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_limited_and_listens_to_this_machine_only(name: str) -> None:
    assert re.fullmatch(r"\d+[mg]", SERVICES[name]["mem_limit"])
    for port in SERVICES[name].get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\$\{[A-Z0-9_]+_PORT:-\d+\}:\d+", port)
    assert not {"privileged", "network_mode", "cap_add"} & set(SERVICES[name])


def test_named_volumes_are_declared_and_used_and_mounted_files_exist() -> None:
    named: set[str] = set()
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source, target = volume.split(":")[:2]
            if source.startswith("."):
                assert (ROOT / source).is_file(), source
                assert target == IN_IMAGE + source.removeprefix("./")
            else:
                named.add(source)
    assert named == set(COMPOSE["volumes"])


def test_folders_that_volumes_lie_over_belong_to_the_user_of_the_image() -> None:
    (made,) = re.findall(r"install -d -o streambank -g streambank (.*)", DOCKERFILE)
    for name in OURS:
        for volume in SERVICES[name].get("volumes", []):
            source, target = volume.split(":")[:2]
            assert source.startswith(".") or target in made.split(), volume


def test_the_image_is_built_from_the_lock_by_hash_and_runs_as_nobody_special() -> None:
    assert "--require-hashes -r /opt/streambank/requirements.lock" in DOCKERFILE
    assert all("--no-deps" in line for line in DOCKERFILE.splitlines() if re.search(r"pip install\b", line))
    assert re.findall(r"^USER (\w+)$", DOCKERFILE, re.MULTILINE) == ["streambank"]
    assert "openjdk-17-jre-headless" in DOCKERFILE
    for source in copied():
        assert (ROOT / source).exists(), source
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert not {source.rstrip("/") for source in copied()} & set(ignored)
    images = [service["image"] for service in SERVICES.values()]
    assert all(image == "streambank-stack" or re.search(r":\d", image) for image in images)


def test_every_path_of_the_image_is_in_the_checkout_and_copied() -> None:
    texts = [*every_text(SERVICES), JOBS.read_text(encoding="utf-8")]
    paths = {path for text in texts for path in re.findall(rf"{IN_IMAGE}([\w./-]+)", text)}
    assert {"dags", "docker/init.sh", "demo/dags"} <= paths
    for path in paths:
        if path.startswith(".streambank/cluster/jars"):
            continue  # laid out when the image is built
        assert (ROOT / path).exists(), path
        assert any(path == source or path.startswith(f"{source}/") for source in copied()), path
    assert "python -m demo.jars.cluster" in DOCKERFILE


@pytest.mark.parametrize("name", OURS)
def test_modules_that_are_run_exist(name: str) -> None:
    commands = [words(name)]
    test = SERVICES[name].get("healthcheck", {}).get("test", [""])
    if test[0] == "CMD":
        commands.append(test[1:])
    for command in commands:
        if command[:2] == ["python", "-m"]:
            spec = importlib.util.find_spec(command[2])
            assert spec is not None and spec.origin is not None
            assert Path(spec.origin).is_relative_to(ROOT / "demo")
    if test[0] == "CMD":
        assert test[1:4] == ["python", "-m", "demo.ready"] and test[4].startswith("http://localhost:")


def test_airflow_runs_as_its_four_processes() -> None:
    run = {name.removeprefix("airflow-"): words(name) for name in AIRFLOW if name not in ONCE}
    assert set(run) == set(airflow_parts.SERVICES)
    for name, arguments in airflow_parts.SERVICES.items():
        assert run[name][0] == "airflow"
        assert tuple(run[name][1 : len(arguments) + 1]) == arguments
    scripts = metadata.entry_points(group="console_scripts")
    assert {"airflow", "streambank"} <= {script.name for script in scripts}


def test_airflows_settings_are_airflows() -> None:
    found = importlib.util.find_spec("airflow")
    assert found is not None and found.submodule_search_locations
    file = Path(next(iter(found.submodule_search_locations))) / "config_templates" / "config.yml"
    known = yaml.safe_load(file.read_text(encoding="utf-8"))
    environment = SERVICES["airflow-scheduler"]["environment"]
    for name in environment:
        if name.startswith("AIRFLOW__"):
            _, section, option = name.lower().split("__")
            assert option in known[section]["options"], name
    json.loads(environment["AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST"])
    connection = json.loads(environment["AIRFLOW_CONN_STREAMBANK_DEFAULT"])
    assert connection["extra"]["jobs_file"] == environment["STREAMBANK_JOBS"]
    assert connection["extra"]["repository"] == tomllib.loads(JOBS.read_text(encoding="utf-8"))["repository"]


@pytest.mark.parametrize("name", ["spark-master", "spark-worker-1", "spark-worker-2"])
def test_spark_starts_what_the_installed_spark_has(name: str) -> None:
    start, main, *options = words(name)
    assert start.startswith(SPARK_IN_IMAGE)
    home = find_installation().spark_home
    assert (home / start.removeprefix(SPARK_IN_IMAGE)).is_file()
    (core,) = (home / "jars").glob("spark-core_*.jar")
    with zipfile.ZipFile(core) as classes:
        assert f"{main.replace('.', '/')}.class" in classes.namelist()
    if name != "spark-master":
        assert options[-1] == "spark://spark-master:7077"
        assert int(options[options.index("-c") + 1]) == services.WORKER_CORES
    environment = SERVICES[name]["environment"]
    assert "-Dspark.master.rest.enabled=true" in environment["SPARK_MASTER_OPTS"]
    # A worker fetches the program of a driver from S3 by itself.
    assert environment["SPARK_DAEMON_CLASSPATH"] == f"{IN_IMAGE}.streambank/cluster/jars/*"
    assert environment["SPARK_WORKER_OPTS"].split() == [f"-D{name}={value}" for name, value in S3A.items()]


def test_the_s3_server_knows_its_options() -> None:
    weed = shutil.which("weed", path=str(Path(sys.executable).parent))
    assert weed is not None
    told = subprocess.run([weed, "server", "-help"], capture_output=True, text=True, check=False, timeout=60)
    known = set(re.findall(r"^\s+-([\w.]+)", told.stdout + told.stderr, re.MULTILINE))
    first, verb, *options = words("s3")
    assert (first, verb) == ("weed", "server")
    assert {option.partition("=")[0].removeprefix("-") for option in options} <= known
    assert "-master.telemetry=false" in options and "-s3.autoCreateBucket=false" in options


def test_the_broker_is_told_what_the_one_of_make_stack_is(tmp_path: Path) -> None:
    here = set(services.broker_settings(StackPlaces(tmp_path), choose({})))
    there = {
        name.removeprefix("KAFKA_").lower().replace("_", ".")
        for name in SERVICES["kafka"]["environment"]
        if name != "KAFKA_HEAP_OPTS"
    }
    assert there - here == {"inter.broker.listener.name"}
    assert here - there == {
        "default.replication.factor",
        "offsets.topic.num.partitions",
        "transaction.state.log.num.partitions",
    }


def test_jobs_read_the_topics_that_are_made_from_the_broker_that_is_there() -> None:
    address = SERVICES["airflow-scheduler"]["environment"][KAFKA_VARIABLE]
    assert f"PLAINTEXT://{address}".replace("PLAINTEXT", "INSIDE") in (
        SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"].split(",")
    )
    shell, script = words("topics")[0], words("topics")[2]
    assert shell == "sh" and f"for topic in {' '.join(TOPICS)}; do" in script
    assert f"--bootstrap-server {address} --create --if-not-exists --partitions {PARTITIONS}" in script
    assert SERVICES["topics"]["image"] == SERVICES["kafka"]["image"]
    jobs = load_jobs(JOBS).jobs
    for job in jobs.values():
        said = dict(zip(job.args[::2], job.args[1::2], strict=True))
        assert (said["--kafka"], said["--topic"]) == (address, FLIGHTS_TOPIC)
        assert job.kafka.bootstrap == address
        assert said.get("--to") in {None, *TOPICS}
        classpath = f"{IN_IMAGE}.streambank/cluster/jars/*"
        # A list of jars with a star in it is not expanded for a driver that a cluster runs.
        assert (
            job.spark["spark.driver.extraClassPath"]
            == job.spark["spark.executor.extraClassPath"]
            == classpath
        )
        assert "spark.jars" not in job.spark
    assert set(jobs) == {"flights", "origins"}


def test_jobs_run_on_the_cluster_with_their_checkpoints_in_s3(tmp_path: Path) -> None:
    text = JOBS.read_text(encoding="utf-8")
    declared = tomllib.loads(text)
    assert declared["defaults"]["launch"] == {"on": "standalone", "deploy_mode": "cluster"}
    assert declared["defaults"]["master"] == "spark://spark-master:7077"
    (tmp_path / "jobs.toml").write_text(text)
    jobs = load_jobs(tmp_path / "jobs.toml").jobs
    assert set(jobs) == set(declared["jobs"])
    for job in jobs.values():
        assert job.checkpoint.startswith("s3a://streambank/")
        assert job.control is None and job.repository.startswith("s3://streambank/")
        assert (ROOT / Path(job.application).relative_to("/opt/streambank")).is_file()
    mounted = {
        volume.split(":")[1]
        for name in ("spark-worker-1", "spark-worker-2", "airflow-scheduler")
        for volume in SERVICES[name]["volumes"]
    }
    folders = {word for job in jobs.values() for word in job.args if word.startswith("/")}
    assert folders and all(any(folder.startswith(f"{root}/") for root in mounted) for folder in folders)


@pytest.mark.parametrize("name", SERVICES)
def test_no_process_has_a_right_of_roots_or_gets_one(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"] and "cap_add" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service and service.get("user") in (None, "postgres")


def test_images_are_named_by_an_exact_version() -> None:
    images = {service["image"] for service in SERVICES.values()} - {"streambank-stack"}
    images |= {line.split()[1] for line in DOCKERFILE.splitlines() if line.startswith("FROM ")}
    assert len(images) == 3
    for image in images:
        assert re.search(r":\d+\.\d+(\.\d+)?(-[a-z-]+)?(@sha256:[0-9a-f]{64})?$", image), image


def test_only_what_asks_for_a_key_can_be_reached_of_the_object_store() -> None:
    words = SERVICES["s3"]["command"].split()
    assert "-ip.bind=127.0.0.1" in words and "-s3.ip.bind=0.0.0.0" in words
    assert SERVICES["s3"]["ports"] == ["127.0.0.1:${S3_PORT:-8333}:8333"]
    assert SERVICES["s3"]["environment"]["AWS_SECRET_ACCESS_KEY"]


def test_no_page_in_a_browser_kills_applications_by_the_masters() -> None:
    assert "-Dspark.ui.killEnabled=false" in SERVICES["spark-master"]["environment"]["SPARK_MASTER_OPTS"]
