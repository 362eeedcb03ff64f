"""Spark properties as lines of a properties file, as java.util.Properties reads it."""

from __future__ import annotations

import re
from collections.abc import Mapping


def property_lines(properties: Mapping[str, str]) -> str:
    """One line for each property, escaped so that it is read as it was given."""
    return "".join(f"{_key(key)}={_value(value)}\n" for key, value in properties.items())


def _key(text: str) -> str:
    return re.sub(r"([\s:=#!\\])", r"\\\1", text)


def _value(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return re.sub(r"^ ", r"\\ ", escaped)
