from __future__ import annotations

import json
import uuid

import pytest

from streambank.checkpoint.logs import parse_metadata
from streambank.checkpoint.operators import parse_operator_metadata
from streambank.checkpoint.paths import (
    needs_rewrite,
    new_query_metadata,
    rewrite_operator_metadata,
    schema_paths,
)
from streambank.core.errors import FormatError
from tests.support.checkpoint.recorded import NAMES, checkpoint
from tests.support.refuses import refuses

PATH = "state/0/_metadata/v2/0"
WITH_PATHS = [name for name in NAMES if "transform" in name or "join3" in name]


@pytest.mark.parametrize("name", WITH_PATHS)
def test_only_the_root_of_schema_paths_changes(name: str) -> None:
    found = checkpoint(name)
    for path in [path for path in found.files if needs_rewrite(path)]:
        old = found.files[path]
        [before] = schema_paths(old, path)
        new = rewrite_operator_metadata(old, path, "file:///data/new/ck")
        [after] = schema_paths(new, path)
        assert after == "file:/data/new/ck/state/" + before.rpartition("/state/")[2]
        assert new.replace(after.encode(), before.encode()) == old
        assert rewrite_operator_metadata(new, path, "/data/new/ck/") == new
        remote = rewrite_operator_metadata(new, path, "s3a://bucket/ck")
        assert schema_paths(remote, path)[0].startswith("s3a://bucket/ck/state/0/_stateSchema/default/")
        assert parse_operator_metadata(new, path).stores[0].name == "default"


@pytest.mark.parametrize("name", NAMES)
def test_no_other_file_names_its_own_directory(name: str) -> None:
    """The file source's log names input files; nothing but operator metadata names the checkpoint."""
    files = checkpoint(name).files
    for path, data in files.items():
        if not needs_rewrite(path) and not path.startswith("sources/"):
            assert b"/checkpoint/state" not in data, path


def test_version_1_has_no_paths() -> None:
    data = checkpoint("4.3.0/hdfs-window").files["state/0/_metadata/metadata"]
    assert rewrite_operator_metadata(data, "state/0/_metadata/metadata", "/new") == data
    assert schema_paths(data, "x") == []


@pytest.mark.parametrize(
    "foreign",
    [
        "/etc/passwd",
        "file:/x/state/1/_stateSchema/default/0_a",
        "file:/x/state/0/_stateSchema/../../../etc/x",
    ],
)
def test_a_path_that_leads_elsewhere_is_refused(foreign: str) -> None:
    data = checkpoint("4.3.0/rocksdb-transform").files[PATH]
    [old] = schema_paths(data, PATH)
    with refuses(FormatError, "foreign-path") as refused:
        rewrite_operator_metadata(data.replace(old.encode(), foreign.encode()), PATH, "/new")
    assert PATH in refused.value.message


def test_paths_may_be_nested() -> None:
    data = checkpoint("4.3.0/rocksdb-transform").files[PATH]
    first, _, rest = data.partition(b"\n")
    document = json.loads(rest)
    store = document["stateStoreInfo"][0]
    store["stateSchemaFilePaths"] = [store["stateSchemaFilePaths"]] * 2
    nested = first + b"\n" + json.dumps(document).encode()
    assert len(schema_paths(nested, PATH)) == 2
    assert all(
        path.startswith("file:/new/")
        for path in schema_paths(rewrite_operator_metadata(nested, PATH, "/new"), PATH)
    )


def test_a_fork_gets_an_id_of_its_own() -> None:
    query_id, data = new_query_metadata()
    assert parse_metadata(data) == query_id
    assert uuid.UUID(query_id).version == 4
    assert new_query_metadata()[0] != query_id
