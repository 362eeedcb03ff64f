from __future__ import annotations

import json

import pytest

from streambank.recovery.report import write_beside
from streambank.storage import open_store


@pytest.mark.parametrize("end", ["", "/"])
def test_it_lies_beside_the_restored_directory(end: str) -> None:
    found = write_beside(open_store, f"memory://reports{len(end)}/ck/one{end}", {"savepoint": "s"})
    assert found == f"memory://reports{len(end)}/ck/one.restored.json"
    assert json.loads(open_store(f"memory://reports{len(end)}/ck").read("one.restored.json")) == {
        "savepoint": "s"
    }


@pytest.mark.parametrize("root", ["s3://bucket", "file:///one", "memory://reports"])
def test_the_root_of_a_store_has_no_beside(root: str) -> None:
    assert write_beside(open_store, root, {}) is None
