"""Limits of a job where nothing is declared: how long it may take, and how much its driver keeps."""

from __future__ import annotations

DEFAULT_FORCE_AFTER_S = 60.0
DEFAULT_DRAIN_TIMEOUT_S = 600.0
DEFAULT_LOG_BYTES = 10_000_000
DEFAULT_LOG_FILES = 5
DEFAULT_PROGRESS_BYTES = 4_000_000
DEFAULT_PROGRESS_FILES = 64
DATED_PROGRESS_FILES = 4096
"""How many progress files are kept at most where a number of days is declared, and none of files."""
