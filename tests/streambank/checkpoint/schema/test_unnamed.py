"""Operator metadata that is made from schemas is what Spark writes by itself, where it does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streambank.checkpoint.reader import CheckpointReader
from streambank.checkpoint.schema.store import Columns
from streambank.checkpoint.schema.unnamed import operator_name, write_missing_metadata
from streambank.core.errors import FormatError
from streambank.storage import Store, open_store
from tests.support.checkpoint.recorded import checkpoint
from tests.support.refuses import refuses

STATEFUL = (
    "hdfs-chain",
    "hdfs-dedup",
    "hdfs-global",
    "hdfs-join",
    "hdfs-limit",
    "hdfs-pandas-state",
    "hdfs-session",
    "hdfs-window",
    "rocksdb-changelog-window",
    "rocksdb-changelog-within",
    "rocksdb-window",
)
ARBITRARY = {"applyInPandasWithState": "flatMapGroupsWithState"}


def laid_out(name: str, folder: Path, *, bare: bool = False) -> Store:
    found = checkpoint(name)
    paths = [path for path in found.files if path.endswith("_metadata/metadata")]
    return (found.but(*paths) if bare else found).into(open_store(str(folder)))


def described(store: Store) -> dict[str, Any]:
    closure = CheckpointReader(store).closure(None, "minimal")
    return {path: document(store, path) for path in write_missing_metadata(store, closure)}


def document(store: Store, path: str) -> Any:
    version, _, text = store.read(path).decode().partition("\n")
    assert version == "v1"
    found = json.loads(text)
    name = found["operatorInfo"]["operatorName"]
    found["operatorInfo"]["operatorName"] = ARBITRARY.get(name, name)
    return found


@pytest.mark.parametrize("name", STATEFUL)
def test_it_is_what_a_newer_spark_writes_for_the_same_query(name: str, tmp_path: Path) -> None:
    newer = laid_out(f"4.3.0/{name}", tmp_path / "newer")
    assert described(newer) == {}, "each operator has its own"
    bare = laid_out(f"4.3.0/{name}", tmp_path / "bare", bare=True)
    by_older = described(laid_out(f"3.5.9/{name}", tmp_path / "older"))
    found = described(bare)
    assert found == {path: document(newer, path) for path in found} == by_older and found


@pytest.mark.parametrize(
    ("name", "like"),
    [
        ("rocksdb-session", "hdfs-session"),
        ("rocksdb-changelog-join", "hdfs-join"),
        ("rocksdb-limit", "hdfs-limit"),
    ],
)
def test_how_state_is_kept_does_not_matter(name: str, like: str, tmp_path: Path) -> None:
    newer = laid_out(f"4.3.0/{like}", tmp_path / "newer")
    found = described(laid_out(f"3.5.9/{name}", tmp_path / "older"))
    assert found == {path: document(newer, path) for path in found} and found


def test_an_operator_without_a_schema_is_left_alone(tmp_path: Path) -> None:
    found = checkpoint("3.5.9/rocksdb-window")
    store = found.but("state/0/0/_metadata/schema").into(open_store(str(tmp_path)))
    assert described(store) == {}


def test_a_damaged_schema_is_named(tmp_path: Path) -> None:
    path = "state/0/0/_metadata/schema"
    found = checkpoint("3.5.9/rocksdb-window").having({path: lambda data: data[:40]})
    store = found.into(open_store(str(tmp_path)))
    with refuses(FormatError, "half-written", match=path):
        described(store)


@pytest.mark.parametrize(
    ("path", "change", "code"),
    [
        ("state/0/0/_metadata/schema", lambda data: b"\0\2v3\0\0\0\0", "unknown-version"),
        (
            "state/1/0/_metadata/schema",
            lambda data: data.replace(b'"metadata":{}', b'"metadata":77'),
            "half-written",
        ),
    ],
)
def test_nothing_is_written_where_one_operator_is_not_understood(
    tmp_path: Path, path: str, change: Callable[[bytes], bytes], code: str
) -> None:
    store = checkpoint("3.5.9/hdfs-chain").having({path: change}).into(open_store(str(tmp_path)))
    with pytest.raises(FormatError) as refused:
        described(store)
    assert refused.value.code == code and path in refused.value.message
    assert not [info.path for info in store.list() if info.path.endswith("_metadata/metadata")]


def test_stores_of_no_operator_are_refused() -> None:
    columns = Columns("default", {"fields": []}, {"fields": []})
    with pytest.raises(FormatError, match="a, b"):
        operator_name({"a": columns, "b": columns})


def test_state_of_a_query_that_began_on_spark_2_is_told_by_its_timeout() -> None:
    value = {"fields": [{"name": "n", "type": "integer"}, {"name": "timeoutTimestamp", "type": "integer"}]}
    assert operator_name({"default": Columns("default", {"fields": []}, value)}) == "flatMapGroupsWithState"
