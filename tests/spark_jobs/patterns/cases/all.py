"""The cases of all patterns."""

from __future__ import annotations

from tests.spark_jobs.patterns.cases import hot, keys, order, sessions, sources, variables, windows

CASES = [
    *keys.CASES,
    *windows.CASES,
    *order.CASES,
    *sources.CASES,
    *variables.CASES,
    *hot.CASES,
    *sessions.CASES,
]
