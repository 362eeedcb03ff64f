"""docs/reference/jobs.md names what a jobs file may say, all of it and nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from streambank.declaration.fields import Fields
from streambank.declaration.objectives import PROMISES
from tests.streambank.declaration.test_load import FULL
from tests.support.jobs.jobs_file import declared_jobs as load
from tests.support.paths import ROOT


def documented_fields() -> set[str]:
    """The fields of docs/reference/jobs.md; `.keep_daily` belongs to the table that its row begins with."""
    page = (ROOT / "docs/reference/jobs.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]+) \|", page.partition("## Fields")[2].partition("\n## ")[0], re.MULTILINE)
    found: set[str] = set()
    for row in rows:
        names = re.findall(r"`([a-z_.]+)`", row)
        table = names[0].rpartition(".")[0]
        found |= {f"{table}{name}" if name.startswith(".") else name for name in names}
    return found


def test_the_page_names_every_field_that_is_read_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: set[str] = set()
    plain = Fields._get

    def note(fields: Fields, name: str, *how: Any) -> Any:
        if not fields.path or fields.path[:2] == ("jobs", "orders"):
            read.add(".".join((*fields.path[2:], name)))
        return plain(fields, name, *how)

    monkeypatch.setattr(Fields, "_get", note)
    load(tmp_path, FULL, DATA="/d")
    # The fields of one objective stand for those of all.
    read = {re.sub(rf"^sla\.({'|'.join(PROMISES)})(\.|$)", r"sla.objective\2", one) for one in read}
    tables = {one.rpartition(".")[0] for one in read}
    assert read - tables - {"jobs", "defaults"} == documented_fields()
