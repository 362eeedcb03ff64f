"""Spark properties: how they are written, and what planning a join's state needs."""

from __future__ import annotations

from collections.abc import Mapping

from streambank.driver.properties import property_lines

__all__ = ["JAVA_OPTIONS", "property_lines", "with_deep_stack"]


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
