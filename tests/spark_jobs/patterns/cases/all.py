"""The cases of all patterns."""

from __future__ import annotations

from tests.spark_jobs.patterns.cases import hot, keys, order, sessions, sources, variables, windows

_KINDS = (keys, windows, order, sources, variables, hot, sessions)
CASES = [case for kind in _KINDS for case in kind.CASES]
QUICK = [kind.CASES[0] for kind in _KINDS if kind in (keys, variables)]
"""Those that `make test` plays; the storm plays the others."""
