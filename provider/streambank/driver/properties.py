"""Spark properties as lines of a properties file, as java.util.Properties reads it; and such a file, read."""

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


def read_properties(text: str) -> dict[str, str]:
    """The properties of a file such as spark-defaults.conf.

    Args:
        text: A property a line: the name, spaces or `=` or `:`, the value. Comments begin with `#` or `!`.
            A backslash at the end of a line joins the next to it; otherwise it is taken as it is.
    """
    found = {}
    for line in re.sub(r"\\\n[ \t]*", "", text).splitlines():
        match = re.fullmatch(r"([^\s:=#!][^\s:=]*)(?:[ \t]*[:=][ \t]*|[ \t]+)?(.*)", line.strip())
        if match:
            found[match[1]] = match[2].strip()
    return found
