"""Kafka of a job: how its cluster is reached (`[jobs.NAME.kafka]`), and what its last driver told of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from streambank.core.environment import check_variables, is_variable
from streambank.core.errors import NotFoundError
from streambank.declaration.fields import Fields
from streambank.kafka.secrets import is_secret
from streambank.kafka.settings import Brokers, KafkaConnection
from streambank.storage.store import Store

if TYPE_CHECKING:
    from streambank.kafka.recording import KafkaSinkCapture, SourceRecorder

FACT = "kafka"
"""What the runner records of a query: its Kafka `sources` and `sink`, as options that are no secret, and
Spark's word for each of its `streams`."""


def read_kafka(fields: Fields) -> KafkaConnection:
    """Of `[jobs.NAME.kafka]`; values of `config` are not looked up in the environment yet.

    Raises:
        InputError: A secret stands there in plain text, or something else is wrong (code `bad-declaration`);
            the message never holds the value.
    """
    bootstrap = fields.text("bootstrap")
    servers = fields.settings("servers")
    config = fields.settings("config")
    for name, value in config.items():
        if name == "bootstrap.servers":
            raise fields.mistake("config", f"{name} is a separate field", "Use bootstrap.")
        mistake = partial(fields.source.mistake, (*fields.path, "config", name))
        if is_secret(name) and not is_variable(value):
            raise mistake(
                "it is a secret, and secrets must not be in this file",
                'Take the whole value from the environment, without a default: "${KAFKA_PASSWORD}".',
            )
        check_variables(value, mistake)
    fields.done()
    return KafkaConnection(bootstrap, servers, config)


def kafka_sources(facts: Mapping[str, Any], brokers: Brokers) -> SourceRecorder:
    """Who asks about the Kafka sources of a query."""
    from streambank.kafka.recording import KafkaReader, SourceRecorder

    told, streams = _told(facts).get("sources"), _told(facts).get("streams")
    readers = (
        [KafkaReader.of(one) for one in told if isinstance(one, Mapping)] if isinstance(told, list) else []
    )
    words = [one if isinstance(one, str) else None for one in streams] if isinstance(streams, list) else []
    return SourceRecorder(brokers, readers, words)


def kafka_sink(facts: Mapping[str, Any], checkpoint: Store, brokers: Brokers) -> KafkaSinkCapture | None:
    """The Kafka sink of a query; None where it has another one."""
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
