"""Datasets have the names of OpenLineage's specification, and nothing secret in them."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from streambank.core.units import utc_now
from streambank.repository.manifest import Manifest
from streambank_airflow.lineage import (
    Dataset,
    SavepointWork,
    dataset_of,
    savepoint_dataset,
    sinks_of,
    sources_of,
    touched_by,
)
from tests.support.jobs.managed_job import Managed

SECRET = "hunter2x"


def manifest(**more: Any) -> Manifest:
    said = {"savepoint": "b000041-c28c1611906f", "job": "flights", "query_id": "q", "batch": 41, **more}
    return Manifest(taken_at=utc_now(), **said)


@pytest.mark.parametrize(
    ("location", "namespace", "name"),
    [
        ("/data/out", "file", "/data/out"),
        ("file:///data/a%20b", "file", "/data/a%20b"),
        ("s3://lake/savepoints/prod", "s3://lake", "savepoints/prod"),
        ("s3a://lake/out", "s3://lake", "out"),
        ("s3://lake", "s3://lake", "/"),
        ("gs://lake/out", "gs://lake", "out"),
        ("hdfs://namenode:8020/out", "hdfs://namenode:8020", "/out"),
        ("abfss://box@account.dfs.core.windows.net/out", "abfss://box@account.dfs.core.windows.net", "/out"),
        (f"s3://key:{SECRET}@lake/out", "s3://lake", "out"),
        (f"https://ann:{SECRET}@host/out?sig={SECRET}", "https://host", "/out"),
        (f"abfss://box:{SECRET}@account/out", "abfss://box@account", "/out"),
    ],
)
def test_a_location_is_named_by_the_specification(location: str, namespace: str, name: str) -> None:
    assert dataset_of(location) == Dataset(namespace, name)


def test_a_secret_of_the_environment_is_in_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE_PASSWORD", SECRET)
    found = dataset_of(f"s3://lake/{SECRET}/out")
    assert found is not None and SECRET not in found.name and found.name.endswith("/out")


def test_what_is_no_location_is_no_dataset() -> None:
    assert dataset_of("") is None
    assert dataset_of("file://elsewhere/data") is None


def test_topics_of_kafka_are_named_by_the_first_server() -> None:
    source = {
        "bootstrap": f"SASL_SSL://b:9093, ann:{SECRET}@a:9092",
        "subscribe": "x",
        "topics": {"y": {}, "x": {}},
    }
    found = manifest(
        sources=(
            {"source": "0", "kind": "initial", "offset": "{}", "files": [], "kafka": source},
            {"source": "1", "kind": "none", "offset": "7", "files": [], "format": "rate"},
            {"source": "2", "kind": "none", "offset": None, "files": [], "kafka": {"bootstrap": None}},
        ),
        sinks=({"kind": "kafka", "path": "kafka://a/out", "bootstrap": "a", "topics": {"out": {}}},),
    )
    assert list(sources_of(found)) == [Dataset("kafka://a:9092", "x"), Dataset("kafka://a:9092", "y")]
    assert list(sinks_of(found)) == [Dataset("kafka://a:9092", "out")]


def test_sinks_are_directories_and_tables() -> None:
    found = manifest(
        sinks=(
            {"kind": "file", "path": "s3a://lake/out", "guarded": True},
            {"kind": "delta", "path": "/data/delta", "guarded": True},
            {"kind": "iceberg", "path": "db.flights", "guarded": True},
            {"kind": "ledger", "path": f"postgresql+psycopg2://ann:{SECRET}@db/shop#sales.done"},
            {"kind": "ledger", "path": "mysql+pymysql://${USER}:${PASSWORD}@db:3307/shop#done"},
            {"kind": "ledger", "path": "sqlite:////data/ledger.db#done"},
            {"kind": "ForeachBatchSink", "path": "ForeachBatchSink", "guarded": False},
        )
    )
    assert list(sinks_of(found)) == [
        Dataset("s3://lake", "out"),
        Dataset("file", "/data/delta"),
        Dataset("iceberg", "db.flights"),
        Dataset("postgres://db:5432", "shop.sales.done"),
        Dataset("mysql://db:3307", "shop.done"),
        Dataset("file", "/data/ledger.db#done"),
    ]


def test_savepoints_of_a_query_are_versions_of_one_dataset() -> None:
    found = savepoint_dataset("s3://lake/savepoints", manifest(job="flights/left", bytes=12, file_count=3))
    assert found == Dataset("s3://lake", "savepoints/savepoints/flights/left", "b000041-c28c1611906f", 12, 3)


def test_what_was_done_names_what_was_read_and_written(managed: Managed) -> None:
    from streambank_airflow.hooks.streambank import StreambankHook

    managed.start(until=3)
    hook = StreambankHook(jobs_file=str(managed.jobs_file))
    taken = hook.savepoints.take("flights", by={}).to_dict()
    checkpoint = Dataset("file", str(managed.checkpoint))
    saved = f"{managed.folder}/repository/savepoints/flights"

    took = touched_by(hook.declared, [SavepointWork.of_result("took", taken)])
    (savepoint,) = took.outputs
    assert (savepoint.namespace, savepoint.name, savepoint.version) == ("file", saved, taken["savepoint"])
    assert (savepoint.size_bytes, savepoint.files) == (taken["bytes"], taken["files"])
    assert took.inputs[0] == checkpoint

    verified = touched_by(hook.declared, [SavepointWork.of_result("verified", taken)])
    assert (verified.inputs, verified.outputs) == ([savepoint], [])

    report = {**taken, "repository": str(managed.folder / "repository"), "location": "s3://lake/copy"}
    restored = touched_by(hook.declared, [SavepointWork.of_result("restored", report)])
    assert restored.inputs == [savepoint] and restored.outputs[0] == Dataset("s3://lake", "copy")

    made = touched_by(
        hook.declared, [SavepointWork.of_result("made", {**taken, "of": "flights/b000001-aaaa"})]
    )
    assert made.outputs == [savepoint]
    assert made.inputs == [Dataset("file", saved, "b000001-aaaa")]

    gone = {**taken, "savepoint": "b999999-c28c1611906f"}
    assert touched_by(hook.declared, [SavepointWork.of_result("verified", gone)]).inputs == []
    assert not {name for name in sys.modules if name.startswith("openlineage")}
