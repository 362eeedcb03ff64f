"""Spark settings as the file of properties that spark-submit reads, and those that keep a driver local."""

from __future__ import annotations

import re
from collections.abc import Mapping

LOOPBACK = "127.0.0.1"
BIND_ADDRESS = "spark.driver.bindAddress"
_LOCAL = re.compile(r"local(\[.*\])?")


def loopback_settings(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """What keeps a driver without executors elsewhere off the network, where its settings say nothing else.

    Args:
        master: Spark's master. Any other than `local` and `local[...]` needs no such settings, or more.
        conf: The settings, which win: an address of their own keeps all addresses as they are.
    """
    if not _LOCAL.fullmatch(master):
        return {}
    found = {"spark.authenticate": "true"}  # Spark makes up the secret itself
    if not {BIND_ADDRESS, "spark.driver.host"} & set(conf):
        found |= {BIND_ADDRESS: LOOPBACK, "spark.driver.host": LOOPBACK}
    return {name: value for name, value in found.items() if name not in conf}


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
