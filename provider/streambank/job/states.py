"""What a job can be; `status` tells which of them it is."""

from __future__ import annotations

from typing import Literal

JobState = Literal[
    "never-started",
    "repository-lost",
    "checkpoint-lost",
    "starting",
    "running",
    "stopping",
    "stopped",
    "failed",
    "unknown",
]
