"""The parts of the hook: each is in the reference, shares the connection, and waits until it is used."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import pytest

from streambank_airflow.hooks.declared import DeclaredJobs
from streambank_airflow.hooks.streambank import StreambankHook

pytestmark = pytest.mark.airflow

PARTS = [name for name, value in vars(StreambankHook).items() if isinstance(value, cached_property)]
WITHOUT_CONNECTION = {"check_request"}
"""Verbs that open nothing."""


def verbs(part: Any) -> Iterator[tuple[str, Any]]:
    for name, verb in vars(type(part)).items():
        if inspect.isfunction(verb) and not name.startswith("_"):
            yield name, verb


@pytest.mark.parametrize("name", PARTS)
def test_a_part_shares_what_finds_jobs_and_is_made_once(name: str) -> None:
    hook = StreambankHook(jobs_file="jobs.toml")
    part = getattr(hook, name)
    assert part.declared is hook.declared
    assert getattr(hook, name) is part
    assert type(part).__mro__[1:] == (object,), "parts do not build on each other"


@pytest.mark.parametrize("name", PARTS)
def test_every_verb_of_a_part_goes_by_the_connection(name: str) -> None:
    part = getattr(StreambankHook(), name)
    assert {verb for verb, made in verbs(part) if not hasattr(made, "__wrapped__")} <= WITHOUT_CONNECTION


def test_jobs_are_found_without_a_part() -> None:
    hook = StreambankHook(jobs_file="jobs.toml")
    assert isinstance(hook.declared, DeclaredJobs)
    assert not set(vars(hook)) & set(PARTS)
