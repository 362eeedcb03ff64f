from __future__ import annotations

import getpass
import os

import pytest

from streambank.core.environment import check_variables, fill_in, is_variable, user_name
from streambank.core.errors import InputError

SECRET = "hunter2"


def mistake(what: str, hint: str) -> InputError:
    return InputError(what, code="bad-value", hint=hint)


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("plain", "plain"),
        ("${A}", "one"),
        ("${A}-${A}/x", "one-one/x"),
        ("${NONE:-else}", "else"),
        ("${EMPTY:-else}", "else"),
        ("${EMPTY}", ""),
        ("${NONE:-}", ""),
        ("${A:-else}", "one"),
        ("$${A} $5 $", "${A} $5 $"),
        ("$$$${A}", "$${A}"),
        ("$$${A}", "$one"),
    ],
)
def test_variables_are_filled_in(text: str, filled: str) -> None:
    assert fill_in(text, {"A": "one", "EMPTY": ""}, mistake) == filled
    check_variables(text, mistake)


@pytest.mark.parametrize("text", ["${", "${}", "${1A}", "${A", "${A-b}"])
def test_what_begins_no_variable_is_a_mistake_that_repeats_nothing(text: str) -> None:
    for look in (
        lambda: fill_in(SECRET + text, {"A": SECRET}, mistake),
        lambda: check_variables(text, mistake),
    ):
        with pytest.raises(InputError) as caught:
            look()
        assert SECRET not in caught.value.message


def test_a_variable_that_is_not_set_is_a_mistake_only_where_it_is_needed() -> None:
    check_variables("${NONE}", mistake)
    with pytest.raises(InputError, match="NONE is not set"):
        fill_in(f"{SECRET}${{NONE}}", {}, mistake)


def test_a_default_is_no_variable_alone() -> None:
    asked = ("${A}", "x${A}", "${A:-b}", "${A}\n", "$${A}")
    assert [is_variable(text) for text in asked] == [True, False, False, False, False]


def test_a_user_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ada")
    assert user_name() == "ada"

    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert user_name() == str(os.getuid())
