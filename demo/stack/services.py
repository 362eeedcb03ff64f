"""The S3 server, the Kafka broker and the Spark cluster, as parts."""

from __future__ import annotations

import base64
import json
import os
import shutil
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from demo.jars.s3a import SETTINGS as S3A_SETTINGS
from demo.parts import Part
from demo.places import ROOT
from demo.ports import HOST
from demo.stack import topics
from demo.stack.addresses import WEED_PARTS, WORKERS, Addresses
from demo.stack.passwords import Passwords
from demo.stack.places import StackPlaces
from streambank.driver.installed import find_installation

WORKER_CORES = 4  # a driver in cluster mode takes one, and the executors of two jobs the rest
WORKER_MEMORY = "3g"
DAEMON_MEMORY = "384m"
QUICK_START = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
BROKER_MEMORY = ("-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:-UsePerfData")
# In what master and worker say about themselves; a worker names its master once that has taken it in.
MASTER_LIVES = quote('"status" : "ALIVE"')
WORKER_IS_TAKEN_IN = quote('"masterurl" : "spark://')


def s3_parts(
    places: StackPlaces, addresses: Addresses, passwords: Passwords, environment: Mapping[str, str]
) -> list[Part]:
    """SeaweedFS in one process, and the stack's bucket in it."""
    data = places.s3 / "data"
    data.mkdir(parents=True, exist_ok=True)
    users = places.s3 / "s3.json"
    users.touch(mode=0o600)
    users.write_text(json.dumps(passwords.s3_users()))
    inside = addresses.inside
    ports = {"s3.port": addresses.port["s3"], "s3.port.grpc": inside["weed-s3-grpc"]}
    for name in (*WEED_PARTS, "admin"):
        ports[f"{name}.port"] = inside[f"weed-{name}"]
        ports[f"{name}.port.grpc"] = inside[f"weed-{name}-grpc"]
    command = (
        *(str(Path(sys.executable).parent / "weed"), "mini", f"-dir={data}"),
        *(f"-ip={HOST}", f"-ip.bind={HOST}", "-master.telemetry=false", "-admin.ui=false", "-webdav=false"),
        *("-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.autoCreateBucket=false"),
        *("-volume.preStopSeconds=0", f"-s3.config={users}"),
        *(f"-{name}={port}" for name, port in ports.items()),
    )
    make_buckets = (sys.executable, "-m", "demo.stack.buckets")
    access = {**environment, **passwords.s3_environment(addresses)}
    return [
        Part(
            "s3",
            command,
            {**environment, "HOME": str(places.s3)},
            str(places.s3),
            ready=f"{addresses.s3}/healthz",
            again=True,
            ends_last=True,
        ),
        Part("buckets", make_buckets, access, str(ROOT), once=True),
    ]


def kafka_parts(
    places: StackPlaces, addresses: Addresses, classpath: str, environment: Mapping[str, str]
) -> list[Part]:
    """One broker that is its own controller, formatted where it is new; and the stack's topics in it."""
    places.kafka.mkdir(parents=True, exist_ok=True)
    settings = places.kafka / "server.properties"
    settings.write_text(
        "".join(f"{name}={value}\n" for name, value in broker_settings(places, addresses).items())
    )
    java = f"{environment['JAVA_HOME']}/bin/java" if environment.get("JAVA_HOME") else "java"
    log = ("-Dlog4j2.level=INFO", f"-Djava.io.tmpdir={places.temporary}")
    base = (java, *BROKER_MEMORY, *log, "-cp", classpath)
    here = str(places.kafka)
    found: list[Part] = []
    if not (places.kafka / "log" / "meta.properties").exists():
        cluster = _cluster_id()
        words = ("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings))
        found.append(Part("kafka-format", (*base, *words), environment, here, once=True))
    found.append(
        Part(
            "kafka",
            (*base, "kafka.Kafka", str(settings)),
            environment,
            here,
            ready=f"kafka://{addresses.kafka}",
            again=True,
            ends_last=True,
        )
    )
    make_topics = (sys.executable, "-m", "demo.stack.topics", addresses.kafka)
    found.append(Part("topics", make_topics, environment, str(ROOT), once=True))
    return found


def broker_settings(places: StackPlaces, addresses: Addresses) -> Mapping[str, str]:
    """The broker's settings; all that is usual for three machines is one here."""
    listener = f"PLAINTEXT://{addresses.kafka}"
    controller = f"{HOST}:{addresses.inside['kafka-controller']}"
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{listener},CONTROLLER://{controller}",
        "advertised.listeners": listener,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(places.kafka / "log"),
        "num.partitions": str(topics.PARTITIONS),
        "default.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        # Records of 2013 are older than any limit: they would vanish within seconds.
        "log.retention.ms": "-1",
    }


def _cluster_id() -> str:
    """As `StorageTool random-uuid` makes one: 16 bytes in the URL's base64, with no dash at its beginning."""
    return base64.urlsafe_b64encode(b"\x00" + uuid.uuid4().bytes[1:]).decode().rstrip("=")


def spark_environment(places: StackPlaces, environment: Mapping[str, str]) -> dict[str, str]:
    """What Spark's own processes, executors among them, find in theirs."""
    return {
        **environment,
        "SPARK_HOME": str(find_installation().spark_home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": HOST,
        "SPARK_LOCAL_HOSTNAME": HOST,
        "SPARK_PUBLIC_DNS": HOST,
        "SPARK_LOCAL_DIRS": str(places.temporary),
        "SPARK_DAEMON_MEMORY": DAEMON_MEMORY,
        "SPARK_DAEMON_JAVA_OPTS": f"{QUICK_START} -Djava.io.tmpdir={places.temporary}",
    }


def spark_parts(
    places: StackPlaces, addresses: Addresses, environment: Mapping[str, str], jars: str
) -> list[Part]:
    """A master, which takes drivers by REST, and workers, which run them and their executors.

    Args:
        places: The stack's folders.
        addresses: Its ports.
        environment: What `spark_environment` gives, and credentials for the storage: drivers and executors
            have theirs from the worker, never from whoever submits.
        jars: The folder of the jars by which a worker itself reaches S3: it fetches a driver's program from
            beside the job's records.
    """
    environment = {
        **environment,
        "SPARK_DAEMON_CLASSPATH": f"{jars}/*",
        "SPARK_WORKER_OPTS": " ".join(f"-D{name}={value}" for name, value in S3A_SETTINGS.items()),
    }
    places.spark.mkdir(parents=True, exist_ok=True)
    start = str(Path(environment["SPARK_HOME"]) / "bin" / "spark-class")
    package = "org.apache.spark.deploy"
    rest = f"-Dspark.master.rest.enabled=true -Dspark.master.rest.port={addresses.port['spark-rest']}"

    def address(port: int, web: int) -> tuple[str, ...]:
        return ("--host", HOST, "--port", str(port), "--webui-port", str(web))

    found = [
        Part(
            "spark-master",
            (
                start,
                f"{package}.master.Master",
                *address(addresses.port["spark"], addresses.port["spark-web"]),
            ),
            {**environment, "SPARK_MASTER_OPTS": rest},
            str(places.spark),
            ready=f"{addresses.spark_page}/json/#{MASTER_LIVES}",
            again=True,
        )
    ]
    worker = f"{package}.worker.Worker"
    for number in range(1, WORKERS + 1):
        name = f"worker-{number}"
        web = addresses.inside[f"{name}-web"]
        size = ("-c", str(WORKER_CORES), "-m", WORKER_MEMORY, "-d", str(places.spark / name))
        found.append(
            Part(
                f"spark-{name}",
                (start, worker, *address(addresses.inside[name], web), *size, addresses.master),
                environment,
                str(places.spark),
                ready=f"http://{HOST}:{web}/json/#{WORKER_IS_TAKEN_IN}",
                again=True,
            )
        )
    return found


def java_missing() -> bool:
    """Whether no Java is where Spark and Kafka look for it."""
    home = os.environ.get("JAVA_HOME")
    return not (Path(home, "bin", "java").is_file() if home else shutil.which("java"))
