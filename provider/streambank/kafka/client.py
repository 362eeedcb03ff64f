"""A real Kafka cluster, asked by `confluent-kafka`: the only module that loads it, and only when asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

from streambank.errors import InputError, StorageError, StreambankError
from streambank.kafka.broker import Retention, Topic, When
from streambank.kafka.connection import is_secret
from streambank.kafka.offsets import Spot

T = TypeVar("T")
_UNKNOWN_TOPICS = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")
_NO_TIME = 0
_HINT = (
    "Look whether the servers run and can be reached from here; another address is named by --kafka, or as "
    "`bootstrap` in the job's [kafka] table, which also holds what TLS and logins need."
)


def connect(bootstrap: str, properties: Mapping[str, str], timeout_s: float) -> ClientBroker:
    """A client of a cluster; nothing is asked yet.

    Args:
        bootstrap: `host:port,...`.
        properties: Client properties of librdkafka.
        timeout_s: How long one question may wait.

    Raises:
        StorageError: confluent-kafka is not installed (code `missing-package`).
        InputError: A property cannot be (code `bad-kafka-config`).
    """
    try:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient
    except ImportError as error:
        raise StorageError(
            "Asking Kafka needs the package confluent-kafka.",
            code="missing-package",
            hint='Install it: pip install "airflow-provider-streambank[kafka]".',
        ) from error
    # What it has to say comes back as errors; its own lines on stderr would stand between ours.
    settings = {"log_level": "0", "client.id": "streambank", **properties, "bootstrap.servers": bootstrap}
    try:
        admin: Any = AdminClient(dict(settings))
    except (KafkaException, TypeError, ValueError) as error:
        raise InputError(
            f"The Kafka client properties cannot be used: {_without_secrets(_said(error), properties)}.",
            code="bad-kafka-config",
            hint="They are librdkafka's (`security.protocol`, `sasl.mechanism`, ...), not those of Java.",
        ) from error
    return ClientBroker(admin, settings, timeout_s)


class ClientBroker:
    """See `broker.Broker`.

    Args:
        admin: confluent-kafka's AdminClient.
        settings: Its properties.
        timeout_s: How long one question may wait; once one has waited in vain, the next is not asked.
    """

    def __init__(self, admin: Any, settings: Mapping[str, str], timeout_s: float) -> None:
        self._admin = admin
        self._settings = settings
        self._timeout_s = timeout_s
        self._failed: StreambankError | None = None

    def topics(self, names: Iterable[str]) -> Mapping[str, Topic | None]:
        """See `broker.Broker.topics`."""
        from confluent_kafka import TopicCollection

        wanted = sorted(set(names))
        if not wanted:
            return {}
        asked = self._ask(
            lambda: self._admin.describe_topics(TopicCollection(wanted), request_timeout=self._timeout_s)
        )
        return {name: None if said is None else _topic(said) for name, said in asked.items()}

    def offsets(self, where: Iterable[Spot], when: When) -> Mapping[Spot, int | None]:
        """See `broker.Broker.offsets`."""
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec

        at = {"earliest": OffsetSpec.earliest, "latest": OffsetSpec.latest}
        spec = at[when]() if isinstance(when, str) else OffsetSpec.for_timestamp(when)
        wanted = {TopicPartition(*spot): spec for spot in where}
        if not wanted:
            return {}
        asked = self._ask(lambda: self._admin.list_offsets(wanted, request_timeout=self._timeout_s))
        return {
            (spot.topic, spot.partition): None if said is None or said.offset < 0 else int(said.offset)
            for spot, said in asked.items()
        }

    def retention(self, names: Iterable[str]) -> Mapping[str, Retention]:
        """See `broker.Broker.retention`."""
        from confluent_kafka.admin import ConfigResource, ResourceType

        wanted = [ConfigResource(ResourceType.TOPIC, name) for name in sorted(set(names))]
        if not wanted:
            return {}
        asked = self._ask(lambda: self._admin.describe_configs(wanted, request_timeout=self._timeout_s))
        return {one.name: _retention(said) for one, said in asked.items() if said is not None}

    def times(self, records: Mapping[Spot, int]) -> Mapping[Spot, int | None]:
        """See `broker.Broker.times`."""
        from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, TopicPartition

        found: dict[Spot, int | None] = dict.fromkeys(records)
        if not records:
            return found
        self._raise_failed()
        settings = {
            **self._settings,
            "group.id": "streambank",  # librdkafka wants one; nothing is ever committed to it
            "enable.auto.commit": "false",
            "auto.offset.reset": "error",
            "fetch.message.max.bytes": "65536",
            "queued.max.messages.kbytes": "4096",
        }
        consumer: Any = Consumer(settings)
        try:
            consumer.assign([TopicPartition(*spot, offset) for spot, offset in records.items()])
            waiting, deadline = set(records), time.monotonic() + self._timeout_s
            while waiting and (left := deadline - time.monotonic()) > 0:
                message = consumer.poll(min(left, 0.5))
                if message is None or message.error() is not None:
                    continue
                spot = (str(message.topic()), int(message.partition()))
                if spot not in waiting:
                    continue
                waiting.discard(spot)
                consumer.pause([TopicPartition(*spot)])
                kind, time_ms = message.timestamp()
                found[spot] = None if kind == TIMESTAMP_NOT_AVAILABLE or time_ms < _NO_TIME else int(time_ms)
        finally:
            consumer.close()
        return found

    def _ask(self, ask: Callable[[], Mapping[T, Future[Any]]]) -> dict[T, Any]:
        """The answers, None for what is not there."""
        from confluent_kafka import KafkaException

        self._raise_failed()
        deadline = time.monotonic() + self._timeout_s + 1
        found: dict[T, Any] = {}
        try:
            for what, future in ask().items():
                try:
                    found[what] = future.result(timeout=max(0.0, deadline - time.monotonic()))
                except KafkaException as error:
                    if _name(error) not in _UNKNOWN_TOPICS:
                        raise
                    found[what] = None
        except FutureTimeoutError:
            raise self._failure(f"no answer within {self._timeout_s:g} s") from None
        except (KafkaException, ValueError, TypeError) as error:
            raise self._failure(_said(error)) from error
        return found

    def _failure(self, why: str) -> StorageError:
        why = _without_secrets(why, self._settings).rstrip(".")
        self._failed = StorageError(
            f"Kafka at {self._settings['bootstrap.servers']} cannot be asked: {why}.",
            code="kafka-not-reachable",
            hint=_HINT,
        )
        return self._failed

    def _raise_failed(self) -> None:
        if self._failed is not None:
            raise StorageError(self._failed.message, code=self._failed.code, hint=self._failed.hint)


def _topic(said: Any) -> Topic:
    topic_id = None if said.topic_id is None else str(said.topic_id)
    return Topic(topic_id or None, tuple(sorted(int(one.id) for one in said.partitions)))


def _retention(said: Mapping[str, Any]) -> Retention:
    def number(name: str) -> int | None:
        entry = said.get(name)
        value = -1 if entry is None or entry.value is None else int(entry.value)
        return None if value < 0 else value

    cleanup = said.get("cleanup.policy")
    return Retention(
        "delete" if cleanup is None else str(cleanup.value), number("retention.ms"), number("retention.bytes")
    )


def _name(error: BaseException) -> str:
    inner = error.args[0] if error.args else None
    name = getattr(inner, "name", None)
    return str(name()) if callable(name) else ""


def _said(error: BaseException) -> str:
    inner = error.args[0] if error.args else error
    text = getattr(inner, "str", None)
    return str(text()) if callable(text) else str(inner)


def _without_secrets(text: str, properties: Mapping[str, str]) -> str:
    for name, value in properties.items():
        if is_secret(name) and value:
            text = text.replace(value, "***")
    return text
