"""Who may write records, or Airflow's own store, blinds nobody: what a page or a list says of a job is drawn.

What a browser makes of it is in tests/streambank_airflow/page/test_hostile_storm.py.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from streambank.job.history import _KIND, job_history
from streambank.overview.plain import Plain
from tests.support.jobs.declared import declare
from tests.support.page.modules import AIRFLOW, FILE, SHARED, own_modules
from tests.support.paths import ROOT

MODULES = own_modules(AIRFLOW, SHARED, FILE)


@pytest.mark.parametrize(
    "kind",
    ["__proto__", "toString", "a" * 41, "-a", "a b", "\x1b[2J", "<script>", ["a"], {"toString": 1}, 7, True],
)
def test_a_kind_that_is_none_is_unknown(tmp_path: Path, kind: Any) -> None:
    job = declare(tmp_path)
    records = job.records()
    records.record_event("driver-died", why="out of memory")
    records.event_records.append({"kind": kind, "at": "2026-11-24T02:00:00.000Z", "why": "it says so"})

    died, other = job_history(job)

    assert died.kind == "driver-died"
    assert (other.kind, other.why) == ("unknown", "it says so")


@pytest.mark.parametrize("state", [{"a": 1}, "__proto__", None, "x y"])
def test_what_was_decided_is_a_kind_or_unknown(tmp_path: Path, state: Any) -> None:
    job = declare(tmp_path)
    job.records().desired_records.append({"state": state, "at": "2026-11-24T02:00:00.000Z", "why": "so"})

    assert [one.kind for one in job_history(job)] == ["unknown"]


def test_every_kind_that_is_written_is_one(tmp_path: Path) -> None:
    """And the page has words for it; codes of errors, of records that are damaged, are kinds as well."""
    words = (SHARED / "words.js").read_text(encoding="utf-8")
    table = words[words.index("EVENTS = table(") :]
    known = re.findall(r'^  "?([\w-]+)"?: \[', table[: table.index("});")], re.MULTILINE)
    codes = re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs" / "errors.md").read_text(), re.MULTILINE)
    assert len(known) > 40 and len(codes) > 100
    job = declare(tmp_path)
    records = job.records()
    for kind in known:
        records.record_event(kind)
    assert [one.kind for one in job_history(job, 10_000)] == known
    assert [one for one in codes if not _KIND.fullmatch(one)] == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_every_table_by_names_has_nothing_but_its_own(path: Path) -> None:
    """`{}["constructor"]` is something, and what looks up a word by it fails: a table has no such thing."""
    text = path.read_text(encoding="utf-8")
    numbers = {"GENERAL", "LATE_S", "RANK", "DAY", "CLOCK"}
    """By numbers, or by names that stand in the code."""

    plain = set(re.findall(r"^(?:export )?const ([A-Z][A-Z_]*) = \{", text, re.MULTILINE)) - numbers
    assert not plain, "a table(...) has nothing of every object"
    assert not re.findall(r"\}\)?\[[a-z]\w*(?:\?)?\.(?:state|kind|level)\b", text), (
        "no table in the middle of a line"
    )
    # React refuses an object in the place of a text; `h` makes it one.
    assert not re.search(r"(?<!document\.)createElement\(", text) or path.name == "h.js"


def test_texts_of_a_snapshot_are_texts_whatever_stood_there() -> None:
    plain = Plain({})
    assert plain.json({"why": "\ud800 \x1b[2J"}) == {"why": "\ufffd \ufffd[2J"}
    assert plain.json({"__proto__": {"a": 1}}) == {"__proto__": {"a": 1}}, "which the page leaves out"
