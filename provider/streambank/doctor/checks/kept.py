"""Declared settings to which a query does not listen, since its checkpoint keeps other values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from streambank.checkpoint.closure import Closure
from streambank.checkpoint.schema.kept_settings import kept_settings
from streambank.core.finding import Finding


def check_kept_settings(name: str, closure: Closure, declared: Mapping[str, str]) -> Iterator[Finding]:
    """Settings that were changed in the declaration of a query with state, and change nothing."""
    for kept_setting in kept_settings(closure, declared):
        yield Finding(
            "setting-without-effect",
            "info",
            f"offsets/{closure.batch}",
            kept_setting.cause,
            "Spark takes it from the checkpoint at each start of a query with state, and only says so in the "
            "driver's log.",
            kept_setting.way_out(name),
        )
