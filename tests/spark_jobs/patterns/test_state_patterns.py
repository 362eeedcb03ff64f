"""What patterns show beside their answer: wrong ways, restarts, restores, and what each cost."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark_jobs.patterns.cases import hot, variables
from tests.spark_jobs.patterns.cases.case import Case, play, replaced, run

pytestmark = pytest.mark.spark

STATE_VARIABLES = Case("state_variables", ("payments",), variables.kept, key=("card",))


def by_batch(output: Path) -> dict[int, list[dict[str, Any]]]:
    """The rows of each batch that has any, by number."""
    folders = {int(folder.name.removeprefix("batch=")): folder for folder in output.glob("batch=*")}
    rows = {
        number: [json.loads(line) for file in folder.glob("part-*") for line in file.read_text().splitlines()]
        for number, folder in folders.items()
    }
    return {number: rows[number] for number in sorted(rows) if rows[number]}


def planned_ms(folder: Path, batch: int) -> int:
    """When Spark planned a batch, from the checkpoint's log."""
    log = (folder / "out.checkpoint/offsets" / str(batch)).read_text().splitlines()
    planned: int = json.loads(log[1])["batchTimestampMs"]
    return planned


@pytest.mark.storm
def test_without_the_second_step_a_salted_total_is_wrong(tmp_path: Path, session: SparkSession) -> None:
    wrong = [json.loads(row) for row in play(hot.SALTED, tmp_path, "--wrong")]
    right = [json.loads(row) for row in hot.SALTED.answer()]
    assert len(wrong) > len(right)
    assert sum(row["payments"] for row in wrong) == sum(row["payments"] for row in right)
    assert max(row["payments"] for row in wrong) < max(row["payments"] for row in right)


@pytest.mark.storm
def test_a_card_is_split_once_it_is_found_hot(tmp_path: Path, session: SparkSession) -> None:
    play(hot.FOUND, tmp_path)
    table = by_batch(tmp_path / "out.hot").values()
    assert {row["card"] for rows in table for row in rows} == {"card-0"}
    parts = {
        row["start"]: row["parts"]
        for row in replaced(tmp_path / "out", hot.FOUND.key)
        if row["card"] == "card-0"
    }
    in_order = [parts[start] for start in sorted(parts)]
    assert in_order[0] == 1
    assert max(in_order) > 1
    others = [row["parts"] for row in replaced(tmp_path / "out", hot.FOUND.key) if row["card"] != "card-0"]
    assert set(others) == {1}


@pytest.mark.storm
def test_cold_state_is_right_after_a_batch_that_runs_again_and_a_restore(
    tmp_path: Path, session: SparkSession
) -> None:
    case, checkpoint, kept = hot.COLD, tmp_path / "out.checkpoint", tmp_path / "kept"
    case.feed(tmp_path / "in", 0, 2)
    run(case, tmp_path)
    shutil.copytree(checkpoint, kept)
    case.feed(tmp_path / "in", 2)
    assert run(case, tmp_path) == case.answer()
    assert any(case.values(tmp_path / "out"))

    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    assert run(case, tmp_path) == case.answer()

    shutil.rmtree(checkpoint)
    shutil.copytree(kept, checkpoint)
    assert run(case, tmp_path) == case.answer()


@pytest.mark.storm
def test_new_code_reads_old_state_and_old_code_reads_new(tmp_path: Path, session: SparkSession) -> None:
    case = variables.VERSIONED
    for code, (first, last) in {"1": (0, 1), "2": (1, 2)}.items():
        case.feed(tmp_path / "in", first, last)
        run(case, tmp_path, "--code", code)
    case.feed(tmp_path / "in", 2)
    run(case, tmp_path, "--code", "1")
    batches = list(by_batch(tmp_path / "out").values())
    read = [Counter(row.get("read_version") for row in rows) for rows in batches]
    assert set(read[0]) == {None}
    assert set(read[1]) == {None, 1}
    assert {1, 2} < set(read[2])
    totals = [(row["card"], row["payments"], row["cents"]) for row in replaced(tmp_path / "out", case.key)]
    right = [json.loads(row) for row in case.answer()]
    assert sorted(totals) == sorted((row["card"], row["payments"], row["cents"]) for row in right)


@pytest.mark.storm
def test_a_call_for_each_row_costs_two_for_each_row(tmp_path: Path, session: SparkSession) -> None:
    case = Case("batched", ("payments",), variables.in_two_calls, ("--each-row",), ("card",))
    play(case, tmp_path)
    for made, rows in zip(case.batches()["payments"], by_batch(tmp_path / "out").values(), strict=True):
        paid = Counter(payment["card"] for payment in made)
        assert {row["card"]: row["calls"] for row in rows} == {card: 2 * n for card, n in paid.items()}


@pytest.mark.storm
def test_what_has_expired_is_not_returned(tmp_path: Path, session: SparkSession) -> None:
    """A time to live of one millisecond is over in the next batch, and not in the same one."""
    case, ms = STATE_VARIABLES, "0.001"
    play(case, tmp_path, "--value-ttl", ms, "--list-ttl", ms, "--map-ttl", ms)
    for made, rows in zip(case.batches()["payments"], by_batch(tmp_path / "out").values(), strict=True):
        alone = {row["card"]: row for row in variables.kept(made)}
        assert {row["card"]: row for row in rows} == alone


@pytest.mark.storm
def test_each_element_and_each_entry_has_its_own_time_to_live(tmp_path: Path, session: SparkSession) -> None:
    """A value and an entry live from their last batch on, an element from its own."""
    play(STATE_VARIABLES, tmp_path)
    paid = [
        (payment["card"], payment["merchant"], planned_ms(tmp_path, batch))
        for batch, made in enumerate(STATE_VARIABLES.batches()["payments"])
        for payment in made
    ]

    def stored(variable: str, *columns: str) -> list[tuple[Any, ...]]:
        state = session.read.format("statestore").option("stateVarName", variable)
        rows = state.load(str(tmp_path / "out.checkpoint")).selectExpr(*columns).collect()
        return sorted(tuple(row) for row in rows)

    values = {card: at + 3_600_000 for card, _, at in paid}
    assert stored("paid", "key.card", "value.ttlExpirationMs") == sorted(values.items())
    elements = sorted((card, at + 600_000) for card, _, at in paid)
    assert stored("newest", "key.card", "list_element.ttlExpirationMs") == elements
    entries = {(card, merchant): at + 600_000 for card, merchant, at in paid}
    columns = ("key.card", "user_map_key.merchant", "user_map_value.ttlExpirationMs")
    assert stored("merchants", *columns) == sorted((*names, at) for names, at in entries.items())
    assert len(set(elements)) > len(values)
