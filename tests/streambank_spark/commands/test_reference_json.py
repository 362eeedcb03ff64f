"""The examples of `state` in docs/reference/json.md are what the commands answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from tests.support.checkpoint.recorded import unpack
from tests.support.cli import streambank
from tests.support.declared_commands import install_commands
from tests.support.json_examples import examples, mismatches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.storm
@pytest.mark.spark
def test_every_example_of_state_is_what_the_command_answers(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_commands(monkeypatch)
    checkpoint = open_store(unpack("4.3.0/rocksdb-window", tmp_path) / "checkpoint")
    repository = Repository.open(open_store(tmp_path / "savepoints"), create=True)
    old, new = (
        take(TakeRequest(checkpoint, repository, "orders", batch=batch)).savepoint for batch in (3, 7)
    )
    other = unpack("4.3.0/hdfs-dedup", tmp_path / "plain") / "checkpoint"
    plain = take(TakeRequest(open_store(other), repository, "plain")).savepoint
    sql = "SELECT key.k AS k, value.sum AS total FROM state"
    arguments: dict[str, list[str | Path]] = {
        "rescale": [new, "--partitions", "3"],
        "state schema": [new],
        "state schema --against": [unpack("4.3.0/hdfs-join", tmp_path / "other") / "checkpoint", new],
        "state read": [new, "--limit", "2"],
        "state query": [new, sql, "--limit", "2"],
        "state export": [new, tmp_path / "export"],
        "state digest": [new],
        "state diff": [old, new, "--samples", "2"],
        "state validate": [new, "--rule", "value.sum < 0", "--samples", "2"],
        "state validate --repair": ["value.sum = 0", new, "--rule", "value.sum < 9", "--samples", "2"],
        "state migrate": [plain],
        "state compact": [new, "--where", "key.k = 'k1'"],
        "state erase": [new, "--key", '{"k": "k2"}'],
    }
    shown = {
        heading: each for heading, each in examples().items() if heading.startswith(("state ", "rescale"))
    }
    assert shown.keys() == arguments.keys()
    wrong = {}
    for verb, given in arguments.items():
        # What comes first of `state schema --against` is what is compared with.
        answer = streambank(*verb.split(), *given, "-r", tmp_path / "savepoints", "--json")
        found = list(mismatches(shown[verb], answer.document, verb))
        if found:
            wrong[verb] = found
    assert not wrong, json.dumps(wrong, indent=1)
