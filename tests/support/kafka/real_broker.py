"""A real Kafka broker on this machine: one node in KRaft mode, on free ports of the loopback interface."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from demo.jars.kafka import broker_classpath
from tests.support.kafka.broker_login import ADMIN, Login
from tests.support.spark.jvm import QUICK_START

START_TIMEOUT_S = 240.0
ASK_TIMEOUT_S = 60.0
KEEP = {"retention.ms": "-1"}
"""Retention goes by the records' own time, and flights of 2013 would vanish within seconds."""
_UUID = "MkU3OEVBNTcwNTJENDM2Qg"


class Kafka:
    """A broker with its data in a folder; it can be stopped, killed and started again on the same data.

    Args:
        login: What it asks of its clients; nothing when left out.
    """

    def __init__(
        self, folder: Path, more: Mapping[str, str] | None = None, login: Login | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._client = {} if login is None else login.client(ADMIN)
        protocol = "PLAINTEXT" if login is None else "SASL_SSL"
        self.port, controller = _free_port(), _free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        self._settings = folder / "server.properties"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"{protocol}://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"{protocol}://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(folder / "data"),
            "num.partitions": "2",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
            # One that was killed comes back when its session has run out.
            "broker.heartbeat.interval.ms": "500",
            "broker.session.timeout.ms": "3000",
            "log.initial.task.delay.ms": "500",
            "log.retention.check.interval.ms": "500",
            "log.segment.delete.delay.ms": "100",
            **({} if login is None else login.broker()),
            **(more or {}),
        }
        lines = "".join(f"{name}={value}\n" for name, value in settings.items())
        self._settings.write_text(lines, encoding="ascii")
        self._java("kafka.tools.StorageTool", "format", "-t", _UUID, "-c", str(self._settings))

    def _java(self, *arguments: str) -> None:
        done = subprocess.run(
            [*_JAVA, "-cp", broker_classpath(), *arguments],
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
            check=False,
            env=self._environment(),
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "LOG_DIR": str(self.folder)}

    def start(self) -> Kafka:
        """Start it, on whatever data it has, and wait until it answers."""
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*_JAVA, "-cp", broker_classpath(), "kafka.Kafka", str(self._settings)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(),
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            with contextlib.suppress(Exception):
                self.admin.list_topics(timeout=5)
                return self

    def log(self) -> str:
        return (self.folder / "server.log").read_text(encoding="utf-8", errors="replace")[-4000:]

    def stop(self) -> None:
        """Stop it as an operator would."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it as a power failure would."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @cached_property
    def admin(self) -> Any:
        """confluent-kafka's AdminClient; one for all: one that is let go fails what it was asked."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": "0", **self._client})

    def create(self, topic: str, partitions: int = 2, config: Mapping[str, str] = KEEP) -> None:
        from confluent_kafka.admin import NewTopic

        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dict(config))
        for future in self.admin.create_topics([new]).values():
            future.result(ASK_TIMEOUT_S)
        _until(lambda: topic in self.admin.list_topics(timeout=ASK_TIMEOUT_S).topics)

    def delete(self, topic: str) -> None:
        for future in self.admin.delete_topics([topic]).values():
            future.result(ASK_TIMEOUT_S)
        _until(lambda: topic not in self.admin.list_topics(timeout=ASK_TIMEOUT_S).topics)

    def add_partitions(self, topic: str, total: int) -> None:
        from confluent_kafka.admin import NewPartitions

        for future in self.admin.create_partitions([NewPartitions(topic, total)]).values():
            future.result(ASK_TIMEOUT_S)
        _until(lambda: len(self.ends(topic)) == total)

    def delete_before(self, topic: str, offsets: Mapping[int, int]) -> None:
        from confluent_kafka import TopicPartition

        asked = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        for future in self.admin.delete_records(asked).values():
            future.result(ASK_TIMEOUT_S)

    def allow(self, topic: str, *rights: str, user: str = "ANONYMOUS") -> None:
        """From now on, let a user do only this with a topic.

        Args:
            topic: The topic; the broker has to have an authorizer.
            rights: Such as `DESCRIBE`; none to allow nothing.
            user: Whoever does not log in when left out.
        """
        from confluent_kafka.admin import (
            AclBinding,
            AclOperation,
            AclPermissionType,
            ResourcePatternType,
            ResourceType,
        )

        def binding(who: str, right: str) -> Any:
            literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
            return AclBinding(ResourceType.TOPIC, topic, literal, who, "*", AclOperation[right], allow)

        asked = [binding("User:somebody", "ALL"), *(binding(f"User:{user}", right) for right in rights)]
        for future in self.admin.create_acls(asked).values():
            future.result(ASK_TIMEOUT_S)

    def produce(
        self, topic: str, records: Iterable[tuple[str | None, Any]], partition: int | None = None
    ) -> int:
        """Write records, key and JSON value, and wait until the broker has them; how many."""
        from confluent_kafka import Producer

        settings = {"bootstrap.servers": self.bootstrap, "linger.ms": "20", "log_level": "0"}
        producer: Any = Producer(settings | self._client)
        count = 0
        where = {} if partition is None else {"partition": partition}
        for key, value in records:
            producer.produce(
                topic, json.dumps(value).encode(), None if key is None else key.encode(), **where
            )
            producer.poll(0)
            count += 1
        assert producer.flush(ASK_TIMEOUT_S) == 0
        return count

    def ends(self, topic: str) -> dict[int, int]:
        """Where each partition ends; waits for the leaders of partitions that have none just now."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + ASK_TIMEOUT_S
        while True:
            try:
                return self._ends(topic)
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _ends(self, topic: str) -> dict[int, int]:
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec

        partitions = self.admin.list_topics(topic, timeout=ASK_TIMEOUT_S).topics[topic].partitions
        asked = self.admin.list_offsets(
            {TopicPartition(topic, one): OffsetSpec.latest() for one in partitions}
        )
        return {one.partition: future.result(ASK_TIMEOUT_S).offset for one, future in asked.items()}

    def consume(self, topic: str) -> list[tuple[str | None, Any]]:
        """Every record that is there now, key and JSON value, partition by partition."""
        from confluent_kafka import Consumer, TopicPartition

        ends = self.ends(topic)
        consumer: Any = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "reader",
                "enable.auto.commit": "false",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": "true",
                "log_level": "0",
                **self._client,
            }
        )
        found: dict[int, list[tuple[str | None, Any]]] = {partition: [] for partition in ends}
        try:
            consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
            waiting = {partition for partition, end in ends.items() if end > 0}
            deadline = time.monotonic() + ASK_TIMEOUT_S
            while waiting:
                assert time.monotonic() < deadline, f"partitions {waiting} of {topic} did not come"
                message = consumer.poll(1.0)
                if message is None:
                    continue
                partition = message.partition()
                if message.error() is not None:  # the end of the partition
                    waiting.discard(partition)
                    continue
                key = None if message.key() is None else message.key().decode()
                found[partition].append((key, json.loads(message.value())))
        finally:
            consumer.close()
        return [record for partition in sorted(found) for record in found[partition]]


@contextmanager
def running(
    folder: Path, more: Mapping[str, str] | None = None, login: Login | None = None
) -> Iterator[Kafka]:
    kafka = Kafka(folder, more, login)
    try:
        yield kafka.start()
    finally:
        kafka.stop()


_JAVA = (
    str(Path(os.environ["JAVA_HOME"]) / "bin" / "java") if "JAVA_HOME" in os.environ else "java",
    *("-Xms64m", "-Xmx384m", *QUICK_START.split()),
)


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _until(condition: Any) -> None:
    deadline = time.monotonic() + ASK_TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "Kafka did not get there"
        time.sleep(0.05)
