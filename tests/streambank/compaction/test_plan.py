"""What is dead in checkpoints of real Spark versions: all garbage, and never a file of a kept closure."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator

import pytest

from streambank.checkpoint.grammar import Kind, classify
from streambank.compaction.dead_files import WHY, DeadReason, Stopped, stage
from streambank.compaction.plan import CompactionPlan, plan_stopped
from streambank.core.errors import InputError, NotFoundError, RefusedError, StreambankError
from tests.support.checkpoint.recorded import PLANNED, REFUSED, Checkpoint, checkpoint
from tests.support.refuses import refuses

# Garbage in checkpoints, as killed drivers, failed attempts and repartitions leave it.

VERSIONED = {Kind.SNAPSHOT, Kind.DELTA, Kind.ZIP, Kind.CHANGELOG}


def garbage_for(checkpoint: Checkpoint) -> dict[str, tuple[bytes, str]]:
    """Files that a query with such a checkpoint may have left, and the reason why each is dead."""
    return dict(_garbage(checkpoint))


def _garbage(checkpoint: Checkpoint) -> Iterator[tuple[str, tuple[bytes, str]]]:
    newest = max(checkpoint.batches())
    unfinished = str(uuid.UUID(int=7))
    yield f"offsets/.{newest + 1}.{unfinished}.tmp", (b"half", "temporary")
    yield f"offsets/..{newest + 1}.{unfinished}.tmp.crc", (b"crc", "temporary")
    yield f"sources/0/.{newest}.{unfinished}.tmp", (b"half", "temporary")
    yield f"commits/.{newest + 7}.crc", (b"crc", "orphan-checksum")
    parts = [classify(path) for path in checkpoint.files]
    stores = {
        path.rpartition("/")[0]: part
        for path, part in zip(checkpoint.files, parts, strict=True)
        if part.kind in VERSIONED and part.version == newest + 1
    }
    for folder, part in sorted(stores.items()):
        suffix = part.path.rpartition(".")[2]
        identity = "" if part.unique_id is None else f"_{uuid.UUID(int=9)}"
        yield f"{folder}/{newest + 2}{identity}.{suffix}", (b"attempt", "abandoned-attempt")
        yield f"{folder}/.{newest + 2}.{suffix}.{unfinished}.TID7.tmp", (b"half", "temporary")
        if part.unique_id is not None:
            other = f"{folder}/{newest + 1}{identity}.{suffix}"
            yield other, (b"attempt", "other-attempt")
            yield f"{other}.crc", (b"{}", "other-attempt")
        if suffix in ("zip", "changelog"):
            yield f"{folder}/SSTs/000099-{uuid.UUID(int=5)}.sst", (b"rows", "unnamed-data")
            yield f"{folder}/SSTs/.000099-{uuid.UUID(int=5)}.sst.crc", (b"crc", "unnamed-data")
    schemas = [part for part in parts if part.kind is Kind.OPERATOR_V2]
    for part in schemas:
        older = f"state/{part.operator}/_metadata/v2/0"
        if part.batch and older not in checkpoint.files:
            yield older, (checkpoint.files[part.path], "old-operator-metadata")


STAYS = {Kind.SOURCE_LOG, Kind.SOURCE_OTHER, Kind.OFFSETS, Kind.OPERATOR_V1, Kind.SCHEMA_V2, Kind.SCHEMA_V3}
"""What may stay though no kept batch needs it."""


def plan(of: Checkpoint, keep_batches: int = 1) -> CompactionPlan:
    return plan_stopped(of.listing(), of.read, keep_batches)


def dead(of: CompactionPlan) -> dict[str, str]:
    return {each.path: each.reason.value for each in of.dead}


def subject(path: str) -> str:
    """The file that a checksum is about, or the file itself."""
    part = classify(path)
    return subject(part.of) if part.kind in (Kind.CHECKSUM, Kind.HIDDEN_CHECKSUM) and part.of else path


@pytest.mark.parametrize("name", PLANNED)
def test_garbage_goes_and_every_file_of_the_closure_stays(name: str) -> None:
    whole = checkpoint(name)
    garbage = garbage_for(whole)
    littered = whole.having({path: data for path, (data, _) in garbage.items()})

    found = plan(littered)

    gone = dead(found)
    assert {path: gone.get(path) for path in garbage} == {path: why for path, (_, why) in garbage.items()}
    closure = whole.plan(kind="safe")
    assert found.kept == (closure,)
    assert not gone.keys() & {*closure.paths}
    for path in littered.files.keys() - gone.keys() - {*closure.paths}:
        about = subject(path)
        assert about in closure.paths or classify(about).kind in STAYS, path
    after = littered.but(*gone)
    assert after.plan(kind="safe") == closure
    assert dead(plan(after)) == {}, "a second compaction finds nothing"


@pytest.mark.parametrize("name", ["4.3.0/stateless", "4.3.0/rocksdb-transform", "4.3.0/hdfs-window"])
def test_source_logs_schemas_and_planned_batches_stay(name: str) -> None:
    whole = checkpoint(name)
    newest = max(whole.batches())
    planned = whole.having({f"offsets/{newest + 1}": whole.files[f"offsets/{newest}"]})
    gone = dead(plan(planned))
    kinds = {classify(subject(path)).kind for path in gone}
    assert not kinds & {Kind.METADATA, Kind.SOURCE_LOG, Kind.SOURCE_OTHER, Kind.SCHEMA_V2, Kind.SCHEMA_V3}
    assert f"offsets/{newest + 1}" not in gone


@pytest.mark.parametrize(
    "name", ["4.3.0/hdfs-window", "4.3.0/rocksdb-window", "4.3.0/ids-changelog-join", "3.5.9/hdfs-join"]
)
def test_each_kept_batch_can_still_be_saved(name: str) -> None:
    whole = checkpoint(name)
    found = plan(whole, keep_batches=3)
    newest = max(whole.batches())
    assert [closure.batch for closure in found.kept] == [newest, newest - 1, newest - 2]
    after = whole.but(*dead(found))
    for batch in (newest, newest - 1, newest - 2):
        assert after.plan(batch, "safe") == whole.plan(batch, "safe")
    with pytest.raises(NotFoundError, match="not retained"):
        after.plan(newest - 3)


def test_batches_that_are_not_retained_cannot_be_kept_and_that_is_said() -> None:
    whole = checkpoint("4.3.0/hdfs-short")
    found = plan(whole, keep_batches=50)
    assert len(found.kept) < 50
    assert any("batches exist" in note for note in found.notes)


def test_partitions_that_a_repartition_left_go_whole() -> None:
    found = plan(checkpoint("4.3.0/rocksdb-repartitioned"))
    gone = [path for path, reason in dead(found).items() if reason == "abandoned-partition"]
    partitions = {int(path.split("/")[2]) for path in gone}
    assert partitions and min(partitions) == found.kept[0].spark.shuffle_partitions


def test_partitions_beyond_the_one_of_a_global_aggregation_are_nobodys_garbage() -> None:
    whole = checkpoint("4.3.0/hdfs-global")
    assert (whole.plan().spark.shuffle_partitions or 0) > 1
    odd = whole.having({"state/0/1/1.delta": b"rows of whoever wrote them"})
    assert "state/0/1/1.delta" not in dead(plan(odd))


def test_what_nobody_knows_stays_and_is_counted() -> None:
    whole = checkpoint("4.3.0/rocksdb-window").having(
        {"state/0/0/notes.txt": b"", "_delta_log/1": b"", "state/0/0/mine/4.zip": b"", "offsets/5.bak": b""}
    )
    found = plan(whole)
    assert not dead(found).keys() & {
        "state/0/0/notes.txt",
        "_delta_log/1",
        "state/0/0/mine/4.zip",
        "offsets/5.bak",
    }
    assert {"state/0/0/notes.txt", "_delta_log/1", "offsets/5.bak"} <= {*found.unknown}


def test_commits_stay_as_far_as_lineages_need_them_that_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = checkpoint("4.3.0/ids-changelog-zstd")
    readable = dead(plan(whole))
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    found = plan(whole)
    assert {path for path in readable if path.startswith("commits/")} - dead(found).keys()
    assert whole.but(*dead(found)).plan(kind="safe") == whole.plan(kind="safe")


def test_what_names_other_files_goes_first() -> None:
    found = plan(checkpoint("4.3.0/rocksdb-window"))
    stages = [stage(each.reason) for each in found.dead]
    assert stages == sorted(stages)
    logs = [each.path for each in found.dead if each.reason is DeadReason.OLD_LOG_ENTRY]
    assert logs.index("commits/0") < logs.index("offsets/0") < logs.index("commits/1")


def test_a_mistake_in_judging_is_found_before_anything_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the proof: whatever one file of the closure is taken for dead, the plan is refused."""
    whole = checkpoint("4.3.0/rocksdb-changelog-window")
    judge = Stopped.judge
    for wanted in whole.plan(kind="safe").paths:
        if classify(wanted).kind is Kind.CHECKSUM:
            continue

        def mistaken(self: Stopped, path: str, wanted: str = wanted) -> DeadReason | None:
            return DeadReason.SUPERSEDED if path == wanted else judge(self, path)

        monkeypatch.setattr(Stopped, "judge", mistaken)
        with pytest.raises(StreambankError):
            plan(whole)


def test_each_reason_is_said_in_words() -> None:
    assert WHY.keys() == {*DeadReason}


def planned_twice(whole: Checkpoint) -> Checkpoint:
    newest = max(whole.batches())
    entry = whole.files[f"offsets/{newest}"]
    return whole.having({f"offsets/{newest + 1}": entry, f"offsets/{newest + 2}": entry})


def repartitioning(whole: Checkpoint) -> Checkpoint:
    newest = max(whole.batches())
    version, head, *rest = whole.files[f"offsets/{newest}"].decode().split("\n")
    document = json.loads(head)
    document["conf"]["spark.sql.shuffle.partitions"] = "7"
    entry = "\n".join([version, json.dumps(document), *rest]).encode()
    return whole.having({f"offsets/{newest + 1}": entry})


def damaged(whole: Checkpoint) -> Checkpoint:
    newest = max(path for path in whole.files if path.startswith("state/0/0/") and path.endswith(".zip"))
    return whole.having({newest: lambda data: data[: len(data) // 2]})


def without_a_delta(whole: Checkpoint) -> Checkpoint:
    return whole.but(f"state/0/0/{max(whole.batches()) + 1}.changelog")


@pytest.mark.parametrize(
    ("spoil", "kind", "code"),
    [
        (planned_twice, RefusedError, "commits-behind"),
        (repartitioning, RefusedError, "unfinished-repartition"),
        (damaged, RefusedError, "checkpoint-damaged"),
        (without_a_delta, NotFoundError, "missing-state-file"),
        (lambda whole: whole.but("metadata"), NotFoundError, "missing-log-entry"),
    ],
    ids=["commits-behind", "repartitioning", "damaged", "missing", "no-id"],
)
def test_a_checkpoint_that_no_query_leaves_like_that_is_refused(
    spoil: Callable[[Checkpoint], Checkpoint], kind: type[StreambankError], code: str
) -> None:
    with pytest.raises(kind) as refused:
        plan(spoil(checkpoint("4.3.0/rocksdb-changelog-window")))
    assert refused.value.code == code


@pytest.mark.parametrize("name", REFUSED)
def test_logs_that_are_not_written_for_every_batch_are_refused(name: str) -> None:
    with refuses(StreambankError, "async-progress"):
        plan(checkpoint(name))


def test_no_batch_at_all_cannot_be_kept() -> None:
    with pytest.raises(InputError):
        plan(checkpoint("4.3.0/stateless"), keep_batches=0)
