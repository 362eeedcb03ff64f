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


JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def with_deep_stack(conf: Mapping[str, str]) -> dict[str, str]:
    """Settings under which the driver can plan the state of a join, whose expressions are nested deeply.

    Catalyst walks them by recursion, which took more than the JVM's usual stack where little was compiled
    yet.

    Args:
        conf: The settings; a stack that they name already stays.
    """
    options = conf.get(JAVA_OPTIONS, "")
    return dict(conf) if "-Xss" in options else {**conf, JAVA_OPTIONS: f"{options} -Xss8m".lstrip()}
