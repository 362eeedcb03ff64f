"""What a template leaves is read by the type of its option, and never what is wrong as something else."""

from __future__ import annotations

from typing import Any

import pytest

from streambank.core.errors import InputError
from streambank.core.options import options_of, write_duration
from streambank.core.verb_options import CleanOptions, DrillOptions, ExpireOptions, UpgradeOptions
from tests.support.refuses import refuses

OPTIONS = {one.name: one for one in (*options_of(DrillOptions), *options_of(UpgradeOptions))}


@pytest.mark.parametrize(
    ("name", "given", "meant"),
    [
        ("time_limit_s", "", None),
        ("time_limit_s", "0s", 0.0),
        ("time_limit_s", "2h", 7200.0),
        ("time_limit_s", 5, 5.0),
        ("watch_s", "", 120.0),
        ("limit", "", None),
        ("limit", "0", 0),
        ("limit", 4.0, 4),
        ("savepoint", "None", None),
        ("savepoint", 20261126, "20261126"),
        ("keep", " True", True),
        ("compare", "values", "values"),
        ("compare", "", "none"),
        ("args", None, None),
        ("args", "[]", ()),
        ("args", "one two", ("one two",)),
        ("args", ["a", 1], ("a", "1")),
        ("conf", "", {}),
        ("conf", "{'spark.a': True, 'spark.b': 2}", {"spark.a": "true", "spark.b": "2"}),
    ],
)
def test_what_is_meant(name: str, given: Any, meant: Any) -> None:
    assert OPTIONS[name].read(given) == meant


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("limit", -1, "limit must be 0 or more"),
        ("limit", "1.5", "whole number"),
        ("limit", "many", "limit must be a number"),
        ("keep", "yes", "true or false"),
        ("keep", None, "true or false"),
        ("compare", "all", "compare must be one of none, counts, values"),
        ("timeout_s", "soon", "not a duration"),
        ("conf", "spark.a=1", "conf must be a mapping"),
    ],
)
def test_what_is_refused(name: str, given: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        OPTIONS[name].read(given)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (1.5, "1.5s"), (90, "90s"), (120, "2m"), (5400, "90m"), (172_800, "2d")]
)
def test_a_duration_as_people_write_it(seconds: float, text: str) -> None:
    assert write_duration(seconds) == text


@pytest.mark.parametrize(
    ("request_of", "name"),
    [(ExpireOptions, "max_age_s"), (ExpireOptions, "keep_within_s"), (CleanOptions, "keep_for_s")],
)
def test_a_time_after_which_something_is_removed_has_a_unit(request_of: type, name: str) -> None:
    option = next(each for each in options_of(request_of) if each.name == name)
    assert (option.read("90d"), option.read(90.0)) == (90 * 86400, 90.0)
    with refuses(InputError, "bad-duration"):
        option.read("90")
