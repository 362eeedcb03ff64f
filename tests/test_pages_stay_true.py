"""Sentences of the pages that were wrong once: what a reader needs is there, and what was false is not."""

from __future__ import annotations

import re

import pytest

from tests.support.paths import ROOT

SAID = (
    ("README.md", "not on PyPI yet"),
    ("README.md", "`pip install .` in a clone"),
    ("README.md", '"spark.sql.shuffle.partitions" = '),
    ("README.md", "AIRFLOW__CORE__LOAD_EXAMPLES=False"),
    ("docs/howto/airflow.md", 'until "state" is "awaiting_input"'),
    ("docs/guide/patterns.md", "`spark-submit` is that of an activated environment"),
    ("docs/guide/patterns.md", "a timer for each action"),
    ("docs/guide/flink.md", "`partitionCustom`"),
    ("docs/guide/flink.md", "`health.max_failures`"),
    ("docs/guide/flink.md", "`streambank state bootstrap`"),
    ("docs/guide/anti-patterns.md", "the table `hot_keys` of the job"),
    ("docs/glossary.md", "</a>hot key | a key with much more traffic, or much more state"),
    ("spark_jobs/patterns/sessions_timers.py", "Each action sets a timer"),
    ("spark_jobs/patterns/source_positions.py", "`streambank inspect CHECKPOINT --json` shows positions"),
)
TABLES_GO_BACK = re.compile(
    r"(?:Delta|Iceberg)[^.\n]{0,60} (?:cannot be rolled back|(?:is|are) not (?:set|rolled) back)"
)
"""Delta, Iceberg and ledgers are rolled back."""


@pytest.mark.parametrize(("page", "sentence"), SAID)
def test_a_page_says_it(page: str, sentence: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert sentence in text.replace("\n", " ") or sentence in text


def test_no_page_says_that_tables_are_not_rolled_back() -> None:
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
    assert len(pages) > 50
    found = [f"{page.name}: {one[0]}" for page in pages for one in TABLES_GO_BACK.finditer(page.read_text())]
    assert not found
    assert TABLES_GO_BACK.search("A Delta sink is not set back.") and TABLES_GO_BACK.search(
        "Sinks other than file and Kafka (Delta, Iceberg, JDBC, foreachBatch) cannot be rolled back"
    ), "as they said once"


def test_an_entry_of_the_changelog_is_one_line() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) > 20
    assert not [line for line in lines if line.startswith(" ") or len(line) > 240]
