from __future__ import annotations

import pytest

from streambank.core.verb_options import TakeOptions
from streambank_airflow import arguments
from tests.support.typed_arguments import STUB, classes, written


def test_type_checkers_know_the_options_of_verbs_as_they_are_declared() -> None:
    assert STUB.read_text(encoding="utf-8") == written(), "run: python -m tests.support.typed_arguments"


def test_arguments_of_a_verb_are_its_options() -> None:
    assert arguments.TakeArguments is TakeOptions  # type: ignore[comparison-overlap]
    for one in classes():
        assert getattr(arguments, one.__name__.replace("Options", "Arguments")) is one
    with pytest.raises(AttributeError, match="NoArguments"):
        arguments.NoArguments  # type: ignore[attr-defined]  # noqa: B018


def test_a_template_in_place_of_a_choice_is_its_text() -> None:
    assert arguments.Jinja("{{ params.level }}") == "{{ params.level }}"
