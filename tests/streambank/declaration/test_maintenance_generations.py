"""`[jobs.NAME.generations]`: what stays of what work on a job has left."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.core.errors import InputError
from streambank.declaration.maintenance import GenerationsPolicy, given_generations
from tests.support.jobs.declared import declare

TABLE = "[jobs.flights.generations]\n"


def test_without_the_table_nothing_goes(tmp_path: Path) -> None:
    assert declare(tmp_path).generations is None
    week = 7 * 86_400.0
    assert declare(tmp_path, more=TABLE).generations == GenerationsPolicy(2, week)
    assert declare(tmp_path, more=f"{TABLE}keep = 3\n").generations == GenerationsPolicy(3, week)
    assert declare(tmp_path, more=f'{TABLE}keep_for = "1d"\n').generations == GenerationsPolicy(2, 86_400.0)


@pytest.mark.parametrize("wrong", ["keep = 0", 'keep_for = "0s"', "keep_last = 3"])
def test_the_current_one_always_stays(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(InputError, match=r"jobs\.flights\.generations"):
        declare(tmp_path, more=f"{TABLE}{wrong}\n")


def test_what_is_asked_for_comes_before_what_is_declared() -> None:
    declared = GenerationsPolicy(3, 60.0)
    assert given_generations(None, None, None) is None
    assert given_generations(declared, None, None) == declared
    assert given_generations(declared, 5, None) == GenerationsPolicy(5, 60.0)
    assert given_generations(None, None, 9.0) == GenerationsPolicy(2, 9.0)
