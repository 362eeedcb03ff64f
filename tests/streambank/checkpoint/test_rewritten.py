"""Small files of a checkpoint whose state is rewritten: one thing changes, every other byte stays."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from streambank.checkpoint.logs import parse_commit, parse_offsets
from streambank.checkpoint.operators import parse_operator_metadata
from streambank.checkpoint.rewritten import DERIVED_FROM, with_conf, with_partitions, with_unique_ids
from streambank.core.errors import FormatError
from tests.support.checkpoint.recorded import PLANNED, checkpoint


@pytest.mark.parametrize("name", PLANNED)
def test_an_offset_log_entry_keeps_all_but_the_settings_that_are_set(name: str) -> None:
    found = checkpoint(name)
    path = f"offsets/{found.batches()[-1]}"
    data = found.files[path]
    changed = with_conf(data, path, {DERIVED_FROM: "b1 compact", "spark.sql.shuffle.partitions": "9"})
    before, after = parse_offsets(data), parse_offsets(changed)
    assert after.conf == {**before.conf, DERIVED_FROM: "b1 compact", "spark.sql.shuffle.partitions": "9"}
    assert (after.version, after.sources, after.watermark_ms, after.timestamp_ms, after.source_metadata) == (
        before.version, before.sources, before.watermark_ms, before.timestamp_ms, before.source_metadata,
    )  # fmt: skip
    first, _, *rest = data.split(b"\n")
    assert [changed.split(b"\n")[0], *changed.split(b"\n")[2:]] == [first, *rest]


def test_a_commit_log_entry_names_other_state_versions() -> None:
    found = checkpoint("4.3.0/ids-changelog-join")
    path = f"commits/{found.batches()[-1]}"
    data = found.files[path]
    ids = {0: (("a", "b", "c", "d"), ("e", "f", "g", "h"))}
    changed = with_unique_ids(data, path, ids)
    assert parse_commit(changed).unique_ids == ids
    before, after = (json.loads(each.partition(b"\n")[2]) for each in (data, changed))
    assert {**before, "stateUniqueIds": None} == {**after, "stateUniqueIds": None}


def test_operator_metadata_says_another_number_of_partitions_in_version_2_alone() -> None:
    second = checkpoint("4.3.0/ids-changelog-transform").files["state/0/_metadata/v2/0"]
    changed = parse_operator_metadata(with_partitions(second, "v2/0", 7), "v2/0")
    before = parse_operator_metadata(second, "v2/0")
    assert [store.partitions for store in changed.stores] == [7 for _ in before.stores]
    assert (changed.name, changed.variables, [store.schema_paths for store in changed.stores]) == (
        before.name, before.variables, [store.schema_paths for store in before.stores],
    )  # fmt: skip
    first = checkpoint("4.3.0/hdfs-window").files["state/0/_metadata/metadata"]
    assert with_partitions(first, "metadata", 7) == first


@pytest.mark.parametrize("change", [lambda data: data[:-5], lambda data: b"v9" + data[2:]])
def test_what_is_not_understood_is_refused(change: Callable[[bytes], bytes]) -> None:
    data = checkpoint("4.3.0/hdfs-window").files["offsets/1"]
    with pytest.raises(FormatError):
        with_conf(change(data), "offsets/1", {})
