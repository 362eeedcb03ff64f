"""When an SLA counts as kept, as broken, or as not known yet."""

from __future__ import annotations

import pytest

from streambank.core.errors import InputError
from streambank.sla.verdict import Level
from streambank_airflow.choices import check_objectives
from streambank_airflow.watch.sla import standing
from tests.support.sla.fake_assessments import MUTE, verdict


@pytest.mark.parametrize(
    ("levels", "objectives", "least", "state", "level"),
    [
        ({"history": "ok", "growth": "ok"}, [], "breach", "kept", "ok"),
        ({"history": "ok", "growth": "warn"}, [], "breach", "kept", "ok"),
        ({"history": "ok", "growth": "warn"}, [], "warn", "broken", "warn"),
        ({"history": "ok", "growth": "warn", "pause": "breach"}, [], "warn", "broken", "breach"),
        # There are always some of which nobody knows, such as hot keys.
        ({"history": "ok", "hot_key": "unknown"}, [], "breach", "kept", "ok"),
        ({"history": "ok", "hot_key": "unknown"}, ["hot_key"], "breach", "unknown", "unknown"),
        ({"history": "ok", "hot_key": "unknown", "pause": "ok"}, ["pause"], "breach", "kept", "ok"),
        ({"history": "ok", "growth": "breach", "pause": "ok"}, ["pause"], "breach", "kept", "ok"),
        # A job that never ran keeps nothing, and one that cannot be read has broken it.
        ({"history": "unknown", "growth": "unknown"}, [], "breach", "unknown", "unknown"),
        ({"history": "breach", "pause": "unknown"}, ["pause"], "breach", "broken", "breach"),
        ({}, [], "breach", "unknown", "ok"),
    ],
)
def test_it_is_kept_where_nothing_is_broken_and_enough_is_known(
    levels: dict[str, Level], objectives: list[str], least: Level, state: str, level: str
) -> None:
    found = standing([verdict(name, one) for name, one in levels.items()], objectives, least)

    assert (found.state, found.level, found.never) == (state, level, None)


def test_what_is_muted_breaks_nothing() -> None:
    verdicts = [verdict("history", "ok"), verdict("pause", "breach", mute=MUTE)]

    assert standing(verdicts, [], "warn").state == "kept"
    assert standing(verdicts, ["pause"], "warn").state == "kept"


def test_the_worst_comes_first() -> None:
    verdicts = [verdict("growth", "warn"), verdict("pause", "breach"), verdict("hot_key", "warn")]

    assert [one.objective for one in standing(verdicts, [], "warn").broken] == ["pause", "growth", "hot_key"]


def test_an_objective_that_is_not_judged_never_is_anything() -> None:
    found = standing([verdict("history", "ok")], ["pause"], "breach")

    assert (found.state, found.never) == ("unknown", "pause")


def test_objectives_that_there_are_not_are_refused() -> None:
    assert check_objectives(["history", "pause"]) == ["history", "pause"]
    with pytest.raises(InputError, match="'pauses'"):
        check_objectives(["pauses"])
