"""A real Kafka cluster, asked by `confluent-kafka`: the only module that loads it, and only when asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from typing import Any, TypeVar

from streambank.core.errors import InputError, StorageError, StreambankError
from streambank.kafka.broker import Patience, Topic, TopicRetention, When
from streambank.kafka.offsets import Spot
from streambank.kafka.secrets import is_secret

T = TypeVar("T")
_UNKNOWN_TOPICS = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")
_TIMED_OUT = ("_TIMED_OUT", "_TIMED_OUT_QUEUE", "_MSG_TIMED_OUT", "REQUEST_TIMED_OUT")
_LASTING = (
    *_TIMED_OUT,
    *("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_SSL", "_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED"),
)
"""Errors of the whole cluster, after which nothing more is asked; any other is of one question."""
_NOT_ALLOWED = "AUTHORIZATION_FAILED"
_INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")
"""Kafka's own topics, which no pattern finds (`exclude.internal.topics` of Java's client)."""
_NO_TIME = 0
_ASKED_SHARE = 0.9
"""The client gives up a little before we do, since only it knows why."""
_HINT = (
    "Check whether the servers run and can be reached from here. Name another address with --kafka, or as "
    "`bootstrap` in the job's [kafka] table, which also holds the settings for TLS and logins."
)


def connect(
    bootstrap: str, properties: Mapping[str, str], timeout_s: float, patience: Patience | None = None
) -> ClientBroker:
    """A client of a cluster, by properties of librdkafka; nothing is asked yet.

    All its questions together may wait for `timeout_s`, or as somebody else's `patience` says.

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
    heard = _Heard()
    try:
        admin: Any = AdminClient({**settings, "error_cb": heard.hear})
    except (KafkaException, TypeError, ValueError) as error:
        raise _unusable(error, properties) from None
    return ClientBroker(admin, settings, patience or Patience(timeout_s), heard)


class _Heard:
    """What the client told of its connections, when it was polled: why nothing comes is only said there."""

    def __init__(self) -> None:
        self.last = ""

    def hear(self, error: Any) -> None:
        """That all brokers are down is what follows from the reason, not the reason."""
        if error.name() != "_ALL_BROKERS_DOWN":
            self.last = str(error.str())


class ClientBroker:
    """See `broker.Broker`; once a question has waited in vain, the next is not asked."""

    def __init__(self, admin: Any, settings: Mapping[str, str], patience: Patience, heard: _Heard) -> None:
        self._admin = admin
        self._settings = settings
        self._patience = patience
        self._heard = heard
        self._failed: StreambankError | None = None
        self._late: set[Spot] = set()

    def names(self) -> Sequence[str]:
        with self._asking() as left_s:
            found = self._admin.list_topics(timeout=left_s * _ASKED_SHARE).topics
        return sorted(str(name) for name in found if name not in _INTERNAL)

    def topics(self, names: Iterable[str]) -> Mapping[str, Topic | None]:
        from confluent_kafka import TopicCollection

        wanted = sorted(set(names))
        if not wanted:
            return {}
        asked = self._ask(
            lambda left_s: self._admin.describe_topics(TopicCollection(wanted), request_timeout=left_s),
            "DESCRIBE",
        )
        return {name: None if said is None else _topic(said) for name, said in asked.items()}

    def offsets(self, where: Iterable[Spot], when: When) -> Mapping[Spot, int | None]:
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec

        at = {"earliest": OffsetSpec.earliest, "latest": OffsetSpec.latest}
        spec = at[when]() if isinstance(when, str) else OffsetSpec.for_timestamp(when)
        wanted = {TopicPartition(*spot): spec for spot in where}
        if not wanted:
            return {}
        asked = self._ask(lambda left_s: self._admin.list_offsets(wanted, request_timeout=left_s), "DESCRIBE")
        return {
            (spot.topic, spot.partition): None if said is None or said.offset < 0 else int(said.offset)
            for spot, said in asked.items()
        }

    def retention(self, names: Iterable[str]) -> Mapping[str, TopicRetention]:
        from confluent_kafka.admin import ConfigResource, ResourceType

        wanted = [ConfigResource(ResourceType.TOPIC, name) for name in sorted(set(names))]
        if not wanted:
            return {}
        asked = self._ask(
            lambda left_s: self._admin.describe_configs(wanted, request_timeout=left_s), "DESCRIBE_CONFIGS"
        )
        return {one.name: _retention(said) for one, said in asked.items() if said is not None}

    def times(self, records: Mapping[Spot, int]) -> Mapping[Spot, int | None]:
        found: dict[Spot, int | None] = dict.fromkeys(records)
        wanted = {spot: offset for spot, offset in records.items() if spot not in self._late}
        if not wanted:
            return found
        self._raise_failed()
        consumer = self._consumer()
        try:
            denied = self._fetch(consumer, wanted, found)
        finally:
            consumer.close()
        if denied:
            raise self._not_allowed("READ", denied)
        return found

    def _consumer(self) -> Any:
        from confluent_kafka import Consumer, KafkaException

        settings = {
            **self._settings,
            "group.id": "streambank",  # librdkafka wants one; nothing is ever committed to it
            "enable.auto.commit": "false",
            "auto.offset.reset": "error",
            "enable.partition.eof": "true",
            "isolation.level": "read_uncommitted",  # what waits for the end of a transaction has a time, too
            "fetch.message.max.bytes": "65536",
            "queued.max.messages.kbytes": "4096",
        }
        try:
            return Consumer({**settings, "error_cb": self._heard.hear})
        except (KafkaException, TypeError, ValueError) as error:
            raise _unusable(error, self._settings) from None

    def _fetch(
        self, consumer: Any, wanted: Mapping[Spot, int], found: dict[Spot, int | None]
    ) -> Sequence[str]:
        """Fill in the times of records; returns the topics that this user may not read."""
        from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, TopicPartition

        denied: set[str] = set()
        waiting = set(wanted)
        with self._asking() as left_s:
            deadline = time.monotonic() + left_s
            consumer.assign([TopicPartition(*spot, offset) for spot, offset in wanted.items()])
            while waiting and (left := deadline - time.monotonic()) > 0:
                message = consumer.poll(min(left, 0.5))
                if message is None or message.topic() is None:
                    continue
                error, topic = message.error(), message.topic()
                if error is not None and str(error.name()).endswith(_NOT_ALLOWED):
                    denied.add(str(topic))
                    waiting = {spot for spot in waiting if spot[0] != topic}
                    continue
                spot = (str(topic), int(message.partition()))
                if spot not in waiting or (error is not None and error.name() in _LASTING):
                    continue
                waiting.discard(spot)
                consumer.pause([TopicPartition(*spot)])
                if error is not None:
                    if error.name() == "_PARTITION_EOF":
                        del found[spot]
                    continue
                kind, time_ms = message.timestamp()
                found[spot] = None if kind == TIMESTAMP_NOT_AVAILABLE or time_ms < _NO_TIME else int(time_ms)
        if self._waited_long(left_s):
            self._late |= waiting
        return sorted(denied)

    def _ask(self, ask: Callable[[float], Mapping[T, Future[Any]]], right: str) -> dict[T, Any]:
        from confluent_kafka import KafkaException

        found: dict[T, Any] = {}
        denied: set[str] = set()
        with self._asking() as left_s:
            deadline = time.monotonic() + left_s
            for what, future in ask(left_s * _ASKED_SHARE).items():
                try:
                    found[what] = future.result(timeout=max(0.0, deadline - time.monotonic()))
                except KafkaException as error:
                    if _name(error) in _UNKNOWN_TOPICS:
                        found[what] = None
                    elif _name(error).endswith(_NOT_ALLOWED):
                        denied.add(_named(what))
                    else:
                        raise
        if denied:
            raise self._not_allowed(right, sorted(denied))
        return found

    @contextmanager
    def _asking(self) -> Iterator[float]:
        from confluent_kafka import KafkaException

        self._raise_failed()
        try:
            with self._patience.waiting() as left_s:
                if left_s <= 0:
                    late = f"its answers took more than {self._patience.seconds:g} s"
                    raise self._failure(late, lasting=False)
                yield left_s
        except FutureTimeoutError:
            late = f"no answer within {self._patience.seconds:g} s"
            raise self._failure(late, lasting=self._waited_long(left_s)) from None
        except (KafkaException, ValueError, TypeError) as error:
            timed_out = _name(error) in _TIMED_OUT and not self._waited_long(left_s)
            lasting = _name(error) in _LASTING and not timed_out
            raise self._failure(_said(error), lasting=lasting) from None

    def _waited_long(self, left_s: float) -> bool:
        """Whether a question had time enough: one that had only what others left may have it another time."""
        return left_s >= self._patience.seconds / 2

    def _failure(self, why: str, *, lasting: bool) -> StorageError:
        self._admin.poll(0)
        why = why.rstrip(".") + (f" ({self._heard.last.rstrip('.')})" if lasting and self._heard.last else "")
        failure = StorageError(
            f"Kafka at {self._settings['bootstrap.servers']} cannot be asked: "
            f"{_without_secrets(why, self._settings)}.",
            code="kafka-not-reachable",
            hint=_HINT,
        )
        if lasting:
            self._failed = failure
        return failure

    def _not_allowed(self, right: str, topics: Sequence[str]) -> StorageError:
        named = ", ".join(topics)
        return StorageError(
            f"Kafka at {self._settings['bootstrap.servers']} does not allow Streambank to ask about {named}: "
            f"it needs the right {right}.",
            code="kafka-not-allowed",
            hint=f"Grant {right} on {named} to the user of the job's `kafka.config`.",
        )

    def _raise_failed(self) -> None:
        if self._failed is not None:
            raise StorageError(self._failed.message, code=self._failed.code, hint=self._failed.hint)


def _unusable(error: Exception, properties: Mapping[str, str]) -> InputError:
    return InputError(
        f"The Kafka client properties cannot be used: {_without_secrets(_said(error), properties)}.",
        code="bad-kafka-config",
        hint="They are librdkafka's (`security.protocol`, `sasl.mechanism`, ...), not those of Java.",
    )


def _topic(said: Any) -> Topic:
    return Topic(_topic_id(said.topic_id), tuple(sorted(int(partition.id) for partition in said.partitions)))


def _topic_id(said: Any) -> str | None:
    """None for the id of zeros too, which stands for none: two of them would be equal."""
    if said is None or not (said.get_most_significant_bits() or said.get_least_significant_bits()):
        return None
    return str(said) or None


def _retention(said: Mapping[str, Any]) -> TopicRetention:
    def number(name: str) -> int | None:
        entry = said.get(name)
        value = -1 if entry is None or entry.value is None else int(entry.value)
        return None if value < 0 else value

    cleanup = said.get("cleanup.policy")
    return TopicRetention(
        "delete" if cleanup is None else str(cleanup.value),
        number("retention.ms"),
        number("retention.bytes"),
        number("delete.retention.ms"),
    )


def _named(what: Any) -> str:
    """The topic that was asked about: a name, a TopicPartition or a ConfigResource."""
    return str(what if isinstance(what, str) else getattr(what, "topic", None) or what.name)


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
