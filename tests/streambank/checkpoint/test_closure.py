"""What a closure of a real checkpoint is: enough, no more, and named where a part of it is missing."""

from __future__ import annotations

import pytest

from streambank.checkpoint.closure import Closure
from streambank.checkpoint.grammar import Kind, classify
from streambank.core.choices import ClosureKind
from streambank.core.errors import StreambankError
from tests.support.checkpoint.recorded import PLANNED, Checkpoint, checkpoint

KINDS: tuple[ClosureKind, ...] = ("minimal", "safe")

# Spark and cell: batch, provider, format of the state ids, operators with their stores, partitions and rows
GOLDEN = {
    "3.5.9/hdfs-window": (13, "hdfs", 1, [(None, {"default": (2, None)})]),
    "3.5.9/hdfs-global": (3, "hdfs", 1, [(None, {"default": (1, None)})]),
    "3.5.9/hdfs-session": (8, "hdfs", 1, [(None, {"default": (2, None)})]),
    "3.5.9/rocksdb-window": (7, "rocksdb", 1, [(None, {"default": (2, 13)})]),
    "3.5.9/stateless": (12, None, 1, []),
    "4.0.5/hdfs-global": (3, "hdfs", 1, [("stateStoreSave", {"default": (1, None)})]),
    "4.0.5/rocksdb-transform": (3, "rocksdb", 1, [("transformWithStateInPandasExec", {"default": (2, 14)})]),
    "4.0.5/ids-window": (7, "rocksdb", 2, [("stateStoreSave", {"default": (2, 13)})]),
    "4.3.0/hdfs-chain": (
        8,
        "hdfs",
        1,
        [("stateStoreSave", {"default": (2, None)}), ("dedupe", {"default": (2, None)})],
    ),
    "4.3.0/hdfs-dedup": (8, "hdfs", 1, [("dedupe", {"default": (2, None)})]),
    "4.3.0/hdfs-global": (3, "hdfs", 1, [("stateStoreSave", {"default": (1, None)})]),
    "4.3.0/hdfs-limit": (3, "hdfs", 1, [("globalLimit", {"default": (1, None)})]),
    "4.3.0/hdfs-join": (
        8,
        "hdfs",
        1,
        [
            (
                "symmetricHashJoin",
                {
                    "left-keyToNumValues": (2, None),
                    "left-keyWithIndexToValue": (2, None),
                    "right-keyToNumValues": (2, None),
                    "right-keyWithIndexToValue": (2, None),
                },
            )
        ],
    ),
    "4.3.0/hdfs-pandas-state": (5, "hdfs", 1, [("applyInPandasWithState", {"default": (2, None)})]),
    "4.3.0/hdfs-empty-state": (2, "hdfs", 1, [("stateStoreSave", {"default": (2, None)})]),
    "4.3.0/rocksdb-empty-state": (2, "rocksdb", 1, [("stateStoreSave", {"default": (2, 0)})]),
    "4.3.0/rocksdb-window": (7, "rocksdb", 1, [("stateStoreSave", {"default": (2, 13)})]),
    "4.3.0/rocksdb-changelog-within": (8, "rocksdb", 1, [("dedupeWithinWatermark", {"default": (2, None)})]),
    "4.3.0/rocksdb-repartitioned": (5, "rocksdb", 1, [("stateStoreSave", {"default": (1, 7)})]),
    "4.3.0/ids-global": (3, "rocksdb", 2, [("stateStoreSave", {"default": (1, 1)})]),
    "4.3.0/ids-window": (7, "rocksdb", 2, [("stateStoreSave", {"default": (2, 13)})]),
    "4.3.0/ids-changelog-join3": (8, "rocksdb", 2, [("symmetricHashJoin", {"default": (2, None)})]),
    "4.3.0/stateless": (12, None, 1, []),
    "4.3.0/stateless-offsets2": (3, None, 1, []),
    "4.3.0/stateless-rate": (2, None, 1, []),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_what_the_newest_batch_is_made_of(name: str) -> None:
    closure = checkpoint(name).plan()
    operators = [
        (operator.name, {store.store: (store.partitions, store.rows) for store in operator.stores})
        for operator in closure.operators
    ]
    if name == "4.3.0/stateless-rate":  # it runs by the clock
        assert (closure.batch >= 2, closure.sources[0].kind) == (True, "initial")
        assert closure.sources[0].files == ("sources/0/0",)
        return
    assert (closure.batch, closure.spark.provider, closure.spark.checkpoint_format, operators) == GOLDEN[name]
    assert closure.sources[0].kind == "file"
    assert closure.notes == ()


def test_facts_beside_the_state() -> None:
    closure = checkpoint("4.3.0/ids-changelog-zstd").plan(5)
    assert closure.batch == 5
    assert (
        closure.watermark_ms == 1704067200000 + (5 * 10 + 5 - 15) * 60_000
    )  # 5 minutes into file 5, less the delay
    assert closure.spark.codec == "zstd"
    assert closure.spark.shuffle_partitions == 2
    assert (closure.spark.offsets_version, closure.spark.commits_version) == (1, 2)
    assert closure.offset_conf["spark.sql.streaming.aggregation.stateFormatVersion"] == "2"
    assert closure.query_id == checkpoint("4.3.0/ids-changelog-zstd").plan(0).query_id


def test_the_logs_of_the_first_batch() -> None:
    closure = checkpoint("4.3.0/hdfs-window").plan(0)
    assert sorted(path for path in closure.paths if not path.startswith("state/")) == [
        "commits/0",
        "metadata",
        "offsets/0",
        "sources/0/0",
    ]
    state = {path for path in closure.paths if path.startswith("state/")}
    assert state - {"state/0/_metadata/metadata", "state/0/0/_metadata/schema"} == {
        "state/0/0/1.delta",
        "state/0/1/1.delta",
    }


def test_the_logs_after_a_compaction() -> None:
    closure = checkpoint("4.3.0/stateless").plan(12)
    assert sorted(closure.paths) == [
        "commits/12",
        "metadata",
        "offsets/11",
        "offsets/12",
        "sources/0/10",
        "sources/0/11",
        "sources/0/12",
        "sources/0/9.compact",
    ]


def test_a_batch_before_the_compaction_needs_the_entries_that_it_compacted() -> None:
    assert sum(path.startswith("sources/") for path in checkpoint("4.3.0/stateless").plan(7).paths) == 8


def test_partitions_that_a_repartition_left_behind_are_left_out() -> None:
    found = checkpoint("4.3.0/rocksdb-repartitioned")
    assert any(path.startswith("state/0/1/") for path in found.files)
    assert not any(path.startswith("state/0/1/") for path in found.plan(5).paths)
    assert any(path.startswith("state/0/1/") for path in found.plan(4).paths)


def test_operator_metadata_is_the_one_that_held_at_the_batch() -> None:
    found = checkpoint("4.3.0/rocksdb-transform")
    assert sorted(path for path in found.files if "/_metadata/v2/" in path and "/." not in path) == [
        "state/0/_metadata/v2/0",
        "state/0/_metadata/v2/2",
    ]
    assert "state/0/_metadata/v2/0" in found.plan(1).paths
    assert "state/0/_metadata/v2/2" not in found.plan(1).paths
    assert "state/0/_metadata/v2/2" in found.plan(2).paths


def test_logs_come_first_then_state_from_the_oldest_on() -> None:
    closure = checkpoint("4.3.0/rocksdb-changelog-window").plan(13, "safe")
    roles = [file.role for file in closure.files]
    logs = {"offsets", "commits", "source"}
    assert set(roles[:7]) == logs
    assert not set(roles[7:]) & logs
    assert roles[-1] != "state-snapshot"
    versions = [classify(file.path).version for file in closure.files if file.role == "state-changelog"]
    assert versions == sorted(version for version in versions if version)


def batches(found: Checkpoint) -> list[int]:
    """First, second, one in the middle and the newest."""
    there = [batch for batch in found.batches() if batch == 0 or batch - 1 in {*found.batches()}]
    return sorted({there[0], there[min(1, len(there) - 1)], there[len(there) // 2], there[-1]})


@pytest.mark.parametrize("name", PLANNED)
def test_a_closure_is_closed_and_holds_nothing_newer(name: str) -> None:
    found = checkpoint(name)
    for batch in batches(found):
        minimal = found.plan(batch)
        safe = found.plan(batch, "safe")
        assert set(minimal.paths) <= set(safe.paths)
        assert len(set(safe.paths)) == len(safe.paths)
        for closure in (minimal, safe):
            assert set(found.only(closure).plan(kind=closure.kind).paths) == set(closure.paths)
            for file in closure.files:
                part = classify(file.path)
                assert file.size_bytes == len(found.files[file.path])
                assert part.kind not in (Kind.UNKNOWN, Kind.TEMPORARY, Kind.HIDDEN_CHECKSUM)
                assert (part.version or 0) <= batch + 1
                assert part.source is not None or (part.batch or 0) <= batch
        assert minimal.bytes == sum(file.size_bytes for file in minimal.files)


@pytest.mark.parametrize("name", PLANNED)
def test_any_missing_file_is_named(name: str) -> None:
    """Of a copy that holds a minimal closure and nothing else, each required file is missed by name."""
    found = checkpoint(name)
    for batch in batches(found)[-2:]:
        copy = found.only(found.plan(batch))
        closure = copy.plan()
        for file in closure.files:
            if closure.sources[0].kind == "initial" and file.role == "source":
                continue  # nothing else tells that the source ever wrote where it began
            without = copy.but(file.path)
            if not file.required:
                lost = set(closure.paths) - set(without.plan().paths)
                assert lost <= {file.path, f"{file.path}.crc"}
                continue
            with pytest.raises(StreambankError) as missing:
                without.plan(batch)
            assert named(file.path, missing.value.message)
            assert missing.value.hint


def stem(path: str) -> str:
    """A snapshot that is missing may be reported as the change that could stand in for it, and the like."""
    part = classify(path)
    return path.removesuffix(f".{part.kind}").removesuffix(".compact") if part.batch or part.version else path


def named(path: str, message: str) -> bool:
    part = classify(path)
    if part.kind is Kind.SCHEMA_V2:
        return "_metadata/schema of partition 0" in message
    if part.kind is Kind.OPERATOR_V2:
        return message.startswith(path.rpartition("/")[0])
    gone = f"{path.rpartition('/')[0]} holds no state: version {part.version} "
    nothing = f"state/{part.operator} holds no state of any partition."  # it was the only one
    return stem(path) in message or message.startswith(gone) or message == nothing


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [name for name in PLANNED if "window" in name or "join" in name])
def test_any_empty_file_is_named(name: str, kind: ClosureKind) -> None:
    found = checkpoint(name)
    copy = found.only(found.plan(None, kind))
    closure = copy.plan(kind=kind)
    for file in closure.files:
        if file.role in ("checksum", "schema", "operator"):
            continue
        damaged = copy.having({file.path: b""})
        try:
            other = damaged.plan(kind=kind)
        except StreambankError as error:
            assert stem(file.path) in error.message
        else:
            assert kind == "safe"
            assert file.role in ("state-snapshot", "state-sst", "state-changelog")
            assert file.path not in other.paths
            assert any(stem(file.path) in note for note in other.notes)


def test_the_safe_closure_has_one_older_snapshot_and_what_leads_from_it() -> None:
    found = checkpoint("4.3.0/rocksdb-changelog-window")

    def versions(closure: Closure, suffix: str) -> list[int]:
        parts = [
            classify(path)
            for path in closure.paths
            if path.startswith("state/0/0/") and path.endswith(suffix)
        ]
        return sorted(part.version for part in parts if part.version is not None)

    minimal, safe = found.plan(13), found.plan(13, "safe")
    [newest] = versions(minimal, ".zip")
    older, same = versions(safe, ".zip")
    assert (older < newest, same) == (True, newest)
    assert versions(minimal, ".changelog") == list(range(newest + 1, 15))
    assert versions(safe, ".changelog") == list(range(older + 1, 15))


def test_where_there_is_no_older_snapshot_the_changes_from_the_first_on_do() -> None:
    found = checkpoint("4.3.0/hdfs-pandas-state")
    safe = found.plan(5, "safe")
    deltas = [path for path in safe.paths if path.startswith("state/0/0/") and path.endswith(".delta")]
    assert len(deltas) == 6
