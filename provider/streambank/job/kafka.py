"""Kafka of a job: how its cluster is reached (`[jobs.NAME.kafka]`), and what its last driver told of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streambank.errors import NotFoundError
from streambank.job.fields import Fields
from streambank.kafka.connection import Brokers, KafkaConnection, is_secret, is_variable
from streambank.storage.base import Store

if TYPE_CHECKING:
    from streambank.kafka.recording import KafkaSinkCapture, SourceRecorder

FACT = "kafka"
"""What the runner records of a query: its `sources` and its `sink`, as options that are no secret."""


def read_kafka(fields: Fields) -> KafkaConnection:
    """Of `[jobs.NAME.kafka]`; values of `config` are not looked up in the environment yet.

    Raises:
        InputError: A secret stands there in plain text, or something else is wrong (code `bad-declaration`);
            the message never holds the value.
    """
    bootstrap = fields.text("bootstrap")
    config = fields.settings("config")
    for name, value in config.items():
        if name == "bootstrap.servers":
            raise fields.mistake("config", f"{name} is a field of its own", "Use bootstrap.")
        if is_secret(name) and not is_variable(value):
            raise fields.source.mistake(
                (*fields.path, "config", name),
                "it is a secret, and this file is no place for one",
                'Take it from the environment: "${KAFKA_PASSWORD}".',
            )
    fields.done()
    return KafkaConnection(bootstrap, config)


def kafka_sources(facts: Mapping[str, Any], brokers: Brokers) -> SourceRecorder:
    """Who asks about the Kafka sources of a query.

    Args:
        facts: What its last driver told; empty for a query that is not managed.
        brokers: Who is asked.
    """
    from streambank.kafka.recording import Reader, SourceRecorder

    told = _told(facts).get("sources")
    readers = [Reader.of(one) for one in told if isinstance(one, Mapping)] if isinstance(told, list) else []
    return SourceRecorder(brokers, readers)


def kafka_sink(facts: Mapping[str, Any], checkpoint: Store, brokers: Brokers) -> KafkaSinkCapture | None:
    """The Kafka sink of a query; None where it has another one.

    Args:
        facts: What its last driver told.
        checkpoint: Its checkpoint.
        brokers: Who is asked.
    """
    from streambank.kafka.recording import KafkaSinkCapture

    told = _told(facts).get("sink")
    if not isinstance(told, Mapping):
        return None
    bootstrap, topic = told.get("bootstrap"), told.get("topic")
    return KafkaSinkCapture(
        brokers,
        str(bootstrap) if bootstrap else None,
        str(topic) if topic else None,
        committed_ms=lambda batch: _committed_ms(checkpoint, batch),
        begun=lambda batch: checkpoint.exists(f"offsets/{batch}"),
    )


def _told(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    told = facts.get(FACT)
    return told if isinstance(told, Mapping) else {}


def _committed_ms(checkpoint: Store, batch: int) -> int | None:
    try:
        mtime_ns = checkpoint.stat(f"commits/{batch}").mtime_ns
    except NotFoundError:
        return None
    return mtime_ns // 1_000_000 or None
