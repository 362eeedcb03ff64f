"""What connectors keep in a checkpoint: which of it belongs to a batch, and what is named as left out."""

from __future__ import annotations

import json

import pytest

from streambank.checkpoint import index
from streambank.checkpoint.closure import ClosurePlanner
from streambank.checkpoint.grammar import name_pattern
from streambank.checkpoint.index import CheckpointIndex
from streambank.checkpoint.paths import rewrite_paths
from streambank.core.errors import FormatError
from tests.support.checkpoint.recorded import Checkpoint, checkpoint
from tests.support.checkpoint.with_connectors import (
    ICEBERG_BEGINNING,
    SCHEMA_LOG,
    reading_delta,
    reading_iceberg,
    schema_entry,
)
from tests.support.refuses import refuses


class TestSchemaLog:
    def test_the_entries_that_a_batch_has_reached_belong_to_it(self) -> None:
        """Batch n has read up to version n; the schema changed at versions 5, 9 and 12."""
        found = reading_delta({0: 0, 1: 5, 2: 9, 3: 12})
        entries = {batch: _entries(found, batch) for batch in (1, 4, 5, 8, 9, 11, 12)}
        assert entries == {
            1: [0],
            4: [0],
            5: [0, 1],
            8: [0, 1],
            9: [0, 1, 2],
            11: [0, 1, 2],
            12: [0, 1, 2, 3],
        }

    def test_the_first_entry_always_belongs_to_it(self) -> None:
        assert _entries(reading_delta({0: 99}), 3) == [0]

    @pytest.mark.parametrize("folder", ["", "_schemas/", "state/../x/".replace("../", "")])
    def test_wherever_the_application_puts_the_log_below_the_checkpoint(self, folder: str) -> None:
        found = reading_delta({0: 0, 1: 5}, folder=folder)
        assert f"{folder}{SCHEMA_LOG}/1" in found.plan(7).paths
        assert found.plan().left_out == ()

    def test_of_a_source_that_is_not_known_all_entries_belong_to_it(self) -> None:
        found = reading_delta({0: 0, 1: 5}, table="another")
        assert _entries(found, 1) == [0, 1]

    def test_an_entry_that_is_cut_off_is_damage_of_the_newest_batch_alone(self) -> None:
        found = reading_delta({0: 0, 1: 5}).having({f"{SCHEMA_LOG}/2": b'v1\n{"tableId":'})
        with pytest.raises(FormatError) as refused:
            found.plan()
        assert (refused.value.code, f"{SCHEMA_LOG}/2" in refused.value.message) == ("half-written", True)
        assert _entries(found, 11) == [0, 1]

    def test_a_newer_version_is_refused(self) -> None:
        with refuses(FormatError, "unknown-version"):
            reading_delta({0: 0}).having({f"{SCHEMA_LOG}/1": b"v2\n{}"}).plan()


class TestRewrite:
    def test_only_the_path_of_the_source_changes(self) -> None:
        old = schema_entry(5)
        new = rewrite_paths(old, f"{SCHEMA_LOG}/1", "file:///elsewhere/gen-2")
        before, after = (json.loads(data.partition(b"\n")[2]) for data in (old, new))
        assert after.pop("sourceMetadataPath") == "file:/elsewhere/gen-2/sources/0"
        assert before.pop("sourceMetadataPath") == "file:/old/ck/sources/0"
        assert after == before and new.startswith(b"v1\n")
        assert rewrite_paths(new, f"{SCHEMA_LOG}/1", "/old/ck") == old

    @pytest.mark.parametrize(
        ("bound", "root", "spelled"),
        [
            ("s3a://b/ck/sources/1", "s3://c/gen-2", "s3a://c/gen-2/sources/1"),
            ("file:/ck/sources/1", "s3://c/gen-2/", "s3a://c/gen-2/sources/1"),
            ("s3://b/ck/sources/1", "s3://c/gen-2", "s3://c/gen-2/sources/1"),
            ("s3a://b/ck/sources/left", "/data/ck", "file:/data/ck/sources/left"),
        ],
    )
    def test_the_path_is_spelled_as_spark_does(self, bound: str, root: str, spelled: str) -> None:
        new = rewrite_paths(schema_entry(5, bound=bound), f"{SCHEMA_LOG}/1", root)
        assert json.loads(new.partition(b"\n")[2])["sourceMetadataPath"] == spelled

    def test_an_entry_that_is_bound_to_no_source_stays(self) -> None:
        for old in (schema_entry(5, bound=None), schema_entry(5, bound="")):
            assert rewrite_paths(old, f"{SCHEMA_LOG}/1", "/new") == old

    @pytest.mark.parametrize("bound", ["file:/ck/sources/0/../../x", "s3a://b/ck/sources//0/x"])
    def test_a_path_that_leads_elsewhere_is_refused(self, bound: str) -> None:
        with refuses(FormatError, "foreign-path"):
            rewrite_paths(schema_entry(5, bound=bound), f"{SCHEMA_LOG}/1", "/new")


def test_the_first_offset_of_iceberg_belongs_to_every_batch() -> None:
    found = reading_iceberg()
    for batch in (3, None):
        closure = found.plan(batch)
        assert ICEBERG_BEGINNING in closure.paths
        assert closure.sources[0].kind == "initial"


def test_files_of_one_pattern_are_named_by_one_example() -> None:
    files = {f"_delta_index/{number}": b"x" for number in range(5)}
    files |= {"notes.txt": b"mine", "sources/7/0": b"v1\n1", "sources/0": b"{}", ".DS_Store": b"x"}
    closure = checkpoint("4.3.0/stateless-rate").having(files).plan()
    assert [(one.pattern, one.example, one.files) for one in closure.left_out] == [
        ("_delta_index/<n>", "_delta_index/0", 5),
        ("notes.txt", "notes.txt", 1),
        ("sources/<n>/<n>", "sources/7/0", 1),
    ]
    assert not set(files) & set(closure.paths)


def test_files_that_are_not_understood_are_sorted_once_for_all_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = checkpoint("4.3.0/stateless-rate").having({f"_index/{number}": b"x" for number in range(5)})
    planner = ClosurePlanner(CheckpointIndex.build(found.listing()), found.read)
    seen: list[str] = []

    def pattern(path: str) -> str:
        seen.append(path)
        return name_pattern(path)

    monkeypatch.setattr(index, "name_pattern", pattern)
    batches = sorted(planner.index.commits)[-2:]
    left = [planner.plan(batch).left_out for batch in batches]
    assert len(batches) == 2 and left[0] == left[1] and len(seen) == 5


def _entries(found: Checkpoint, batch: int) -> list[int]:
    start = f"{SCHEMA_LOG}/"
    return sorted(int(path.removeprefix(start)) for path in found.plan(batch).paths if path.startswith(start))
