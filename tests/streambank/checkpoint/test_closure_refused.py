"""What cannot be planned is refused by name: unknown versions and features, gaps, damage, missing files."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable
from io import BytesIO

import pytest

from streambank.checkpoint.closure import ClosurePlanner
from streambank.checkpoint.index import CheckpointIndex
from streambank.checkpoint.inspection import inspect_listing
from streambank.core.errors import ConflictError, FormatError, NotFoundError, StreambankError
from tests.support.checkpoint.recorded import Checkpoint, checkpoint
from tests.support.refuses import refuses

ROCKSDB = "4.3.0/rocksdb-changelog-window"


def replaced(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        assert old in data
        return data.replace(old, new)

    return change


def refusal(found: Checkpoint, batch: int | None = None) -> StreambankError:
    with pytest.raises((FormatError, NotFoundError)) as refused:
        found.plan(batch)
    assert refused.value.hint
    return refused.value


@pytest.mark.parametrize("files", [{}, {"x": b"1"}, {"state/0/0/1.delta": b"1"}])
def test_something_else_is_no_checkpoint(files: dict[str, bytes]) -> None:
    assert refusal(Checkpoint(files)).code == "not-a-checkpoint"


def test_a_query_that_never_committed() -> None:
    found = checkpoint("4.3.0/hdfs-window")
    first = Checkpoint({path: found.files[path] for path in ("metadata", "offsets/0", "sources/0/0")})
    assert refusal(first).code == "no-committed-batch"
    assert refusal(first, 0).code == "batch-not-committed"


def test_batches_that_are_not_there() -> None:
    found = checkpoint("4.3.0/hdfs-short")
    assert refusal(found, 14).code == "batch-not-committed"
    for batch in (0, 10, 11):
        error = refusal(found, batch)
        assert error.code == "batch-not-retained"
        assert "12 to 13" in error.message
    planned = found.but("commits/13")
    assert "planned, but not committed" in refusal(planned, 13).message
    assert planned.plan().batch == 12
    assert refusal(found, -1).code == "batch-not-retained"


def test_asynchronous_progress_tracking_as_spark_leaves_it() -> None:
    error = refusal(checkpoint("4.3.0/stateless-async"))
    assert error.code == "async-progress"
    assert "sources/0 goes on to entry 5" in error.message


def test_logs_with_gaps_are_not_written_for_every_batch() -> None:
    found = checkpoint("4.3.0/stateless")
    sparse = found.but(*(f"{log}/{batch}" for log in ("offsets", "commits") for batch in (3, 4, 8, 11)))
    for batch in (12, 10, 5):
        error = refusal(sparse, batch)
        assert (type(error), error.code) == (FormatError, "async-progress")
        assert "real-time mode" in error.hint


def test_a_gap_beyond_batches_that_were_committed_one_by_one_is_damage() -> None:
    """As Spark's checkpoint-test-offsetId-commitId-inconsistent: offsets 0 to 2 and 4, commits 0 to 2."""
    whole = checkpoint("4.3.0/stateless")
    late = {f"{log}/{batch}" for log in ("offsets", "commits") for batch in range(3, 13)} - {"offsets/4"}
    found = whole.but(*late, *(path for path in whole.files if re.match(r"sources/0/([5-9]|1\d)", path)))
    error = refusal(found)
    assert error.code == "missing-log-entry"
    assert "offsets/3 and commits/3 are missing, though batch 4 is planned" in error.message
    assert "Batch 2 is good and can be saved by its number" in error.hint
    for batch in (0, 1, 2):
        assert found.plan(batch).paths == whole.plan(batch).paths
    assert refusal(found.but("commits/0", "commits/1")).code == "async-progress"


def without_newest(found: Checkpoint, *batches: int) -> Checkpoint:
    return found.but(*(f"{log}/{batch}" for log in ("offsets", "commits") for batch in batches))


@pytest.mark.parametrize(
    "name", ["4.3.0/stateless", "4.3.0/hdfs-window", "3.5.9/hdfs-join", "4.3.0/ids-changelog-window"]
)
@pytest.mark.parametrize("lost", [1, 2, 4])
def test_the_newest_batches_may_be_lost(name: str, lost: int) -> None:
    whole = checkpoint(name)
    batches = whole.batches()
    left = without_newest(whole, *batches[-lost:])
    newest = batches[-lost - 1]
    assert left.plan().batch == newest
    for batch in (newest, newest - 1):
        assert left.plan(batch, "safe").paths == whole.plan(batch, "safe").paths
    inspection = inspect_listing("ck", left.listing(), left.read)
    found = [finding.cause for finding in inspection.findings if finding.code == "logs-behind"]
    assert bool(found) == (lost > 1 or name != "4.3.0/stateless")
    if found:
        assert f"but the newest planned batch is {newest}: entries of offsets and commits were" in found[0]
        version = f"State/0 goes on to version {batches[-1] + 1}, which is of batch {batches[-1]}"
        assert (version.lower() in found[0].lower()) == (name != "4.3.0/stateless")
    assert not [one for one in inspection.findings if one.code not in ("logs-behind", "temporary-files")]


def test_a_query_with_state_is_never_called_asynchronous() -> None:
    found = checkpoint("4.3.0/hdfs-window")
    first = without_newest(found, *found.batches()[1:])
    assert first.plan().batch == 0
    gap = without_newest(found, 4, 5, 8)
    for batch, lost in ((5, "commits/5"), (6, "offsets/5"), (9, "offsets/8")):
        error = refusal(gap, batch)
        assert error.code == "missing-log-entry" and lost in error.message
    assert gap.plan().paths == found.plan().paths


def test_batches_without_any_commit_are_those_of_a_spark_without_a_commit_log() -> None:
    found = checkpoint("4.3.0/hdfs-window")
    commits = [path for path in found.files if path.startswith("commits/")]
    for batch in (None, 0, 1):
        error = refusal(found.but(*commits), batch)
        assert (type(error), error.code) == (FormatError, "no-commit-log")
        assert "commits/13 and all other commits are missing" in error.message
        assert "Run the query on it once with Spark 3.5 to 4.3" in error.hint


def test_one_lost_log_entry_is_damage_and_spares_other_batches() -> None:
    found = checkpoint("4.3.0/stateless").but("offsets/7")
    for batch in (7, 8):
        error = refusal(found, batch)
        assert error.code == "missing-log-entry"
        assert "offsets/7 is missing" in error.message
    assert found.plan(9).batch == 9
    assert found.plan(6).batch == 6
    lost = checkpoint("4.3.0/stateless").but("commits/7")
    assert "commits/7" in refusal(lost, 7).message
    assert lost.plan(8).batch == 8


@pytest.mark.parametrize(
    ("path", "change", "version"),
    [
        ("offsets/13", replaced(b"v1\n", b"v3\n"), 3),
        ("commits/13", replaced(b"v1\n", b"v4\n"), 4),
        ("state/0/_metadata/metadata", replaced(b"v1\n", b"v3\n"), 3),
    ],
)
def test_versions_of_the_future(path: str, change: Callable[[bytes], bytes], version: int) -> None:
    error = refusal(checkpoint(ROCKSDB).having({path: change}))
    assert error.code == "unknown-version"
    assert f"{path} has version {version}" in error.message


def test_a_snapshot_of_the_future_is_not_passed_over() -> None:
    found = checkpoint("4.3.0/rocksdb-window")
    error = refusal(found.having({"state/0/0/8.zip": zipped(b"v3\n{}")}))
    assert (error.code, "state/0/0/8.zip" in error.message) == ("unknown-version", True)


def zipped(metadata: bytes) -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("metadata", metadata)
    return buffer.getvalue()


def test_a_provider_of_the_same_name_in_another_package_is_not_taken_for_sparks() -> None:
    """Databricks' own: nothing says that its files are those of Apache Spark."""
    theirs = "com.databricks.sql.streaming.state.RocksDBStateStoreProvider"
    ours = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    swapped = replaced(ours.encode(), theirs.encode())
    found = checkpoint("4.3.0/rocksdb-window")
    plan = found.plan()
    assert plan.spark.provider == "rocksdb"
    error = refusal(found.having({f"offsets/{plan.batch}": swapped}))
    assert (error.code, theirs in error.message) == ("unknown-provider", True)


def test_an_unknown_state_store() -> None:
    class_name = replaced(b"HDFSBackedStateStoreProvider", b"RedisStateStoreProvider")
    error = refusal(checkpoint("4.3.0/hdfs-window").having({"offsets/13": class_name}))
    assert error.code == "unknown-provider"
    assert "RedisStateStoreProvider" in error.message
    stateless = checkpoint("4.3.0/stateless").having({"offsets/12": class_name})
    assert stateless.plan().spark.provider is None


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("sources/0/1", "report the connector"),
        ("sources/0/9.compact", "report the connector"),
        ("sources/0/offsets/1", "report the connector"),
        ("sources/0/checkpoints/offsets/0", "report the connector"),
        ("sources/0/shard-commit/0", "No savepoint of a query that reads Kinesis is possible"),
        ("sources/0/shard-commit/7/shardId-000000000000", "No savepoint of a query that reads Kinesis is"),
        ("sources/0/rocksdb/1.zip", "No savepoint of a query that reads with Auto Loader is possible"),
    ],
)
def test_the_log_of_an_unknown_source(path: str, hint: str) -> None:
    error = refusal(checkpoint("4.3.0/stateless-rate").having({path: b"v1\nx"}))
    assert error.code == "unknown-source-log"
    assert path in error.message and hint in error.hint


def test_an_offset_in_a_message_is_whole_or_only_counted() -> None:
    found = checkpoint("4.3.0/stateless")
    for offset, shown in (
        ('{"shardId-000000000000":{"iteratorType":"AFTER_SEQUENCE_NUMBER","iteratorPosition":"4957"}}', None),
        (json.dumps({"shards": ["x" * 400]}), "too long to show here (416 characters)"),
    ):
        other = found.having(
            {
                "offsets/12": replaced(b'{"logOffset":12}', offset.encode()),
                "sources/0/shard-commit/12": b"x",
            }
        )
        error = refusal(other)
        assert error.message.endswith(f"The source's offset is {offset if shown is None else shown}.")


def test_a_file_source_without_files_yet_needs_nothing() -> None:
    found = checkpoint("4.3.0/stateless")
    first = found.having({"offsets/0": replaced(b'{"logOffset":0}', b"-")})
    assert first.plan(0).sources[0].files == ()
    assert first.plan(0).sources[0].kind == "file"


def test_a_bare_number_is_the_file_sources_offset_where_its_log_is() -> None:
    whole = checkpoint("4.3.0/stateless")
    old = whole.having({"offsets/5": replaced(b'{"logOffset":5}', b"5")})
    assert old.plan(5).paths == whole.plan(5).paths
    assert (old.plan(5).sources[0].kind, old.plan(5).sources[0].offset) == ("file", "5")
    assert refusal(old.but("sources/0/4"), 5).code == "missing-log-entry"
    rate = checkpoint("4.3.0/stateless-rate").plan().sources[0]
    assert (rate.kind, (rate.offset or "").isdecimal()) == ("initial", True)


def test_a_missing_partition_is_no_empty_partition() -> None:
    for name in ("4.3.0/hdfs-window", "3.5.9/hdfs-window", "4.3.0/rocksdb-window", "4.3.0/ids-window"):
        found = checkpoint(name)
        for partition in (0, 1):
            folder = f"state/0/{partition}/"
            error = refusal(found.but(*(path for path in found.files if path.startswith(folder))))
            assert error.code == "missing-state-file"
            assert f"state/0/{partition} holds no state" in error.message


def test_a_missing_store_of_a_join() -> None:
    for name in ("3.5.9/hdfs-join", "4.3.0/hdfs-join", "4.3.0/ids-changelog-join"):
        found = checkpoint(name)
        folder = "state/0/1/right-keyToNumValues"
        error = refusal(found.but(*(path for path in found.files if path.startswith(folder))))
        assert f"{folder} holds no state" in error.message


def test_a_missing_operator() -> None:
    found = checkpoint("4.3.0/hdfs-chain")
    error = refusal(found.but(*(path for path in found.files if path.startswith("state/0/"))))
    assert "state/0 is missing" in error.message
    ids = checkpoint("4.3.0/ids-window")
    error = refusal(ids.but(*(path for path in ids.files if path.startswith("state/"))))
    assert "state/0 is missing" in error.message


def test_an_operator_of_which_only_its_schema_is_left() -> None:
    for name in ("3.5.9/hdfs-window", "4.3.0/ids-changelog-transform"):
        found = checkpoint(name)
        lost = [path for path in found.files if path.startswith("state/0/") and "/_" not in path]
        error = refusal(found.but(*lost))
        assert error.code == "missing-state-file" and "holds no state" in error.message


def test_schemas_that_nothing_names() -> None:
    found = checkpoint("4.3.0/ids-changelog-transform")
    entries = {path for path in found.files if "_metadata/v2/" in path and not path.endswith(".crc")}
    error = refusal(found.but(*entries))
    assert error.code == "missing-state-file" and "_metadata/v2 is missing" in error.message
    later = {path.replace("/v2/0", "/v2/999"): found.files[path] for path in entries}
    error = refusal(Checkpoint({**found.but(*entries).files, **later}))
    assert error.code == "missing-state-file" and "has no entry up to batch" in error.message


def test_an_operator_that_the_commit_does_not_know() -> None:
    found = checkpoint("4.3.0/ids-window").having({"state/1/0/1.delta": b"x"})
    assert refusal(found).code == "unknown-operators"


def test_a_damaged_snapshot_is_passed_over_where_the_changes_go_further_back() -> None:
    found = checkpoint(ROCKSDB)
    newest = max(
        (path for path in found.plan().paths if path.startswith("state/0/0/") and path.endswith(".zip")),
        key=lambda path: int(path.split("/")[-1].split(".")[0]),
    )
    sst = next(path for path in found.plan().paths if path.startswith("state/0/0/SSTs/"))
    for damaged in (
        found.having({newest: lambda data: data[: len(data) // 2]}),
        found.having({newest: b"no zip"}),
        found.having({newest: zipped(b"v1\n{")}),
        found.having({sst: lambda data: data[:-1]}),
        found.but(sst),
    ):
        closure = damaged.plan()
        assert newest not in closure.paths
        assert closure.notes  # an SST may belong to several snapshots
        assert newest in closure.notes[0]
    alone = found.only(found.plan()).but(sst)
    assert sst in refusal(alone).message


def test_a_damaged_snapshot_without_changes_is_refused() -> None:
    found = checkpoint("4.3.0/ids-window")
    path = next(path for path in found.plan().paths if path.endswith(".zip"))
    for change in (b"x", b"PK\x05\x06" + bytes(18), zipped(b"v1\n[]"), zipped(b"v1\n" + b"[" * 10**5)):
        error = refusal(found.having({path: change}))
        assert (error.code, path in error.message) == ("half-written", True)


@pytest.mark.parametrize(
    "path", ["metadata", "offsets/13", "offsets/12", "commits/13", "state/0/_metadata/metadata"]
)
def test_half_a_log_is_named(path: str) -> None:
    error = refusal(checkpoint(ROCKSDB).having({path: lambda data: data[: len(data) // 2]}))
    assert error.code == "half-written"
    assert path in error.message


def test_without_its_metadata_a_query_has_no_id() -> None:
    assert "metadata is missing" in refusal(checkpoint(ROCKSDB).but("metadata")).message


def test_unique_ids_that_do_not_fit() -> None:
    found = checkpoint("4.3.0/ids-changelog-join")

    def fewer(data: bytes) -> bytes:
        first, _, rest = data.partition(b"\n")
        document = json.loads(rest)
        document["stateUniqueIds"]["0"][1] = document["stateUniqueIds"]["0"][1][:3]
        return first + b"\n" + json.dumps(document).encode()

    assert "commits/8 names no unique id" in refusal(found.having({"commits/8": fewer})).message


def test_a_lineage_with_a_hole_is_damage() -> None:
    found = checkpoint("4.3.0/ids-changelog-window")
    paths = [
        path for path in found.plan().paths if path.startswith("state/0/0/") and path.endswith(".changelog")
    ]
    last = max(paths, key=lambda path: int(path.split("/")[-1].split("_")[0]))
    older = found.files[min(paths, key=lambda path: int(path.split("/")[-1].split("_")[0]))]
    error = refusal(found.having({last: older}))
    assert (error.code, last in error.message) == ("half-written", True)


def test_a_codec_that_cannot_be_read_falls_back_to_the_commit_log(monkeypatch: pytest.MonkeyPatch) -> None:
    found = checkpoint("4.3.0/ids-changelog-zstd")
    with_library = found.plan(None, "safe")
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    assert found.plan(None, "safe").paths == with_library.paths
    short = found.only(found.plan())
    error = refusal(short)
    assert error.code == "unreadable-lineage"
    assert "zstandard" in error.hint


def test_names_alone_find_the_same_batches() -> None:
    for name in (ROCKSDB, "4.3.0/ids-changelog-join", "4.3.0/ids-changelog-zstd", "4.3.0/hdfs-short"):
        found = checkpoint(name)
        planner = ClosurePlanner(CheckpointIndex.build(found.listing()), found.read, by_names=True)
        sst = {path for path in found.plan().paths if "/SSTs/" in path}
        assert set(planner.plan(None, "minimal").paths) == set(found.plan().paths) - sst


def test_a_file_that_goes_away_while_planning_means_plan_again() -> None:
    found = checkpoint("4.3.0/ids-changelog-window")
    read = set()
    for kind in ("minimal", "safe"):
        found.plan(None, kind)
        read |= set(found.reads)
    for path in sorted(read):

        def vanished(wanted: str, offset: int = 0, length: int | None = None, path: str = path) -> bytes:
            if wanted == path:
                raise NotFoundError(f"{path} is not there.")
            return found.read(wanted, offset, length)

        with refuses(ConflictError, "checkpoint-moved", match="went away") as moved:
            ClosurePlanner(CheckpointIndex.build(found.listing()), vanished).plan(None, "safe")
        assert path in moved.value.message
