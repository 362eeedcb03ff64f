"""Which sink a savepoint of a job guards, where Spark's word for it and what is told of Kafka differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streambank.job.savepoint import sinks_of
from streambank.kafka.recording import KafkaSinkCapture
from streambank.sinks.file.capture import FileSinkCapture
from streambank.storage import open_store
from tests.support.kafka.fake_broker import FakeBroker

TABLE = "org.apache.spark.sql.kafka010.KafkaSourceProvider$KafkaTable"


@pytest.mark.parametrize("told", [{}, None, {"bootstrap": "kafka:9092", "topic": "out"}])
def test_a_file_sink_is_guarded_whatever_its_path_is_called(tmp_path: Path, told: Any) -> None:
    facts = {"sink": "FileSink[file:/data/kafka-out]", "kafka": {"sources": [], "sink": told}}
    (sink,) = sinks_of(facts, open_store(str(tmp_path)), FakeBroker().brokers())
    assert isinstance(sink, FileSinkCapture)
    assert sink.guarded


def test_a_kafka_sink_is_one(tmp_path: Path) -> None:
    facts = {"sink": TABLE, "kafka": {"sources": [], "sink": {"bootstrap": "kafka:9092", "topic": "out"}}}
    (sink,) = sinks_of(facts, open_store(str(tmp_path)), FakeBroker().brokers())
    assert isinstance(sink, KafkaSinkCapture)
    assert sink.path == "kafka://kafka:9092/out"
