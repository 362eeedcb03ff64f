"""The examples of `state` in docs/reference/json.md are what the commands answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.cli import streambank
from tests.support.declared_commands import install_commands
from tests.support.json_examples import examples, mismatches
from tests.support.repository.state_verbs import state_verbs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.storm
@pytest.mark.spark
def test_every_example_of_state_is_what_the_command_answers(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_commands(monkeypatch)
    verbs = state_verbs(tmp_path)
    shown = {
        heading: each for heading, each in examples().items() if heading.startswith(("state ", "rescale"))
    }
    assert shown.keys() == verbs.keys()
    wrong = {}
    for verb, arguments in verbs.items():
        answer = streambank(*arguments)
        found = list(mismatches(shown[verb], answer.document, verb))
        if found:
            wrong[verb] = found
    assert not wrong, json.dumps(wrong, indent=1)
