"""A key as a person names it, held against the schema of the state: without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from streambank.checkpoint.schema.key import named_fields
from streambank.core.errors import InputError
from tests.support.refuses import refuses

WINDOW = {
    "type": "struct",
    "fields": [{"name": "start", "type": "timestamp"}, {"name": "end", "type": "timestamp"}],
}
KEY = {
    "type": "struct",
    "fields": [
        {"name": "window", "type": WINDOW},
        {"name": "customer", "type": "long"},
        {"name": "tags", "type": {"type": "array", "elementType": "string", "containsNull": True}},
    ],
}
ONE: dict[str, Any] = {"type": "struct", "fields": [{"name": "k", "type": "string"}]}


def test_all_fields_some_fields_and_the_only_one_as_text() -> None:
    assert named_fields('{"customer": 17}', KEY) == {"customer": 17}
    assert named_fields('{"window": {"start": "2026-11-28"}}', KEY) == {"window": {"start": "2026-11-28"}}
    assert named_fields('{"customer": null}', KEY) == {"customer": None}
    assert named_fields("k17", ONE) == {"k": "k17"}
    assert named_fields("17", ONE) == {"k": "17"}, "a text that looks like a number is still a text"
    assert named_fields('"17"', ONE) == {"k": "17"}


@pytest.mark.parametrize(
    ("text", "key", "why"),
    [
        ("17", KEY, "the key has the fields window, customer, tags"),
        ('{"custmer": 17}', KEY, "it has no field custmer, but window, customer, tags"),
        ("{}", KEY, "it names no field"),
        ('{"window": {}}', KEY, "it names no field"),
        ('{"window": {"begin": 1}}', KEY, "it has no field begin, but start, end"),
        ('{"window": "noon"}', KEY, "the field window has no plain value"),
        ('{"tags": ["a"]}', KEY, "the field tags needs a plain value"),
        ('{"customer": "c-17"}', KEY, "c-17 is not a valid long"),
        ('{"customer": true}', KEY, "true is not a valid long"),
        ("k17", {"type": "struct", "fields": []}, "this state has no key"),
    ],
)
def test_what_does_not_fit_is_refused_with_an_example(text: str, key: dict[str, Any], why: str) -> None:
    with refuses(InputError, "bad-key-text") as caught:
        named_fields(text, key)
    assert why in caught.value.message
    if key is KEY and "begin" not in text and text != '{"window": {}}':
        assert """--key '{"customer": 17}'""" in caught.value.hint
