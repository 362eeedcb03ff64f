"""State schemas of real checkpoints, of every version, and what in them lets Spark remove rows."""

from __future__ import annotations

import pytest

from streambank.checkpoint.schema.store import names_apart, parse_state_schema, parse_variables
from streambank.core.errors import FormatError
from tests.support.checkpoint.doctor_inputs import schema_v2
from tests.support.checkpoint.recorded import NAMES, checkpoint


def schemas(name: str) -> dict[str, bytes]:
    files = checkpoint(name).files
    return {
        path: data
        for path, data in files.items()
        if ("/_stateSchema/" in path or path.endswith("/_metadata/schema")) and "/." not in path
    }


@pytest.mark.parametrize("name", [name for name in NAMES if schemas(name)])
def test_every_recorded_schema_is_read_to_its_end(name: str) -> None:
    for path, data in schemas(name).items():
        if not path.endswith(".crc"):
            assert all(one.value["fields"] for one in parse_state_schema(data, path))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("4.3.0/hdfs-window", {("default", "window", None)}),
        ("4.3.0/hdfs-dedup", {("default", "t", None)}),
        ("4.3.0/hdfs-session", {("default", "session_window", None)}),
        ("4.3.0/rocksdb-changelog-within", {("default", None, "expiresAtMicros")}),
        ("4.3.0/rocksdb-empty-state", {("default", None, None)}),
        ("4.3.0/rocksdb-changelog-transform", {("last", None, None), ("seen", None, None)}),
        (
            "4.3.0/rocksdb-changelog-join3",
            {
                ("left-keyToNumValues", None, None),
                ("left-keyWithIndexToValue", "t", None),
                ("right-keyToNumValues", None, None),
                ("right-keyWithIndexToValue", "rt", None),
            },
        ),
    ],
)
def test_event_time_and_timeouts(name: str, expected: set[tuple[str, str | None, str | None]]) -> None:
    (path, data), *_ = schemas(name).items()
    assert {(one.family, one.event_time, one.timeout) for one in parse_state_schema(data, path)} == expected


def test_event_time_in_the_value_of_an_aggregation_removes_nothing() -> None:
    time = ("timestamp", {"spark.watermarkDelayMs": 1000})
    (value,) = parse_state_schema(schema_v2({"k": "string"}, {"max": time}), "x")
    assert value.event_time is None
    (key,) = parse_state_schema(schema_v2({"k": "string", "t": time}, {"max": "timestamp"}), "x")
    assert key.event_time == "t"


def test_collections_are_named_with_their_path() -> None:
    array = {"type": "array", "elementType": "long", "containsNull": True}
    inner = {"type": "struct", "fields": [{"name": "seen", "type": array, "nullable": True, "metadata": {}}]}
    lookup = {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": True}
    (one,) = parse_state_schema(schema_v2({"k": "string"}, {"state": inner, "by": lookup, "n": "int"}), "x")
    assert one.collections == ("state.seen array<long>", "by map<string, struct>")
    assert not one.keyless


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "half-written"),
        (b"\x00\x02v9rest", "unknown-version"),
        (b"\x00\x02v2\x00\x00\x00\x01\x00\x09x", "half-written"),
    ],
)
def test_a_damaged_or_newer_schema_is_refused(data: bytes, code: str) -> None:
    with pytest.raises(FormatError) as refused:
        parse_state_schema(data, "state/0/0/_metadata/schema")
    assert refused.value.code == code and "state/0/0" in refused.value.message


def test_variables_of_a_transform_with_state() -> None:
    path = "state/0/_metadata/v2/0"
    data = checkpoint("4.3.0/rocksdb-transform").files[path]
    said = parse_variables(data, path)
    assert said is not None
    assert (said.time_mode, set(said.without_ttl), said.with_ttl) == ("NoTime", {"last", "seen"}, ())
    expiring = parse_variables(data.replace(b'\\"ttlEnabled\\":false', b'\\"ttlEnabled\\":true'), path)
    assert expiring is not None and expiring.without_ttl == ()
    assert parse_variables(checkpoint("4.3.0/ids-changelog-join3").files[path], path) is None


def test_each_column_has_a_name_of_its_own() -> None:
    assert names_apart(["sum", "count", "SUM", "sum"]) == ["sum", "count", "SUM_2", "sum_3"]
    assert names_apart(["key", "KEY", "key_2"]) == ["key", "KEY_3", "key_2"]
    assert names_apart(["a", "b"]) == ["a", "b"] and names_apart([]) == []
