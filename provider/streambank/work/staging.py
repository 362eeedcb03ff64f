"""Names of the folders in which state is laid out for Spark, below a work location, and removed again."""

from __future__ import annotations

import re
import uuid

TEMPORARY = "streambank-inspect-"
"""How the work location begins that lies in this machine's temporary folder, where nobody names one."""
INSPECTED = "inspected"
"""The job name in a repository that lasts only as long as one live checkpoint is read."""
_CHECKPOINT, _REPOSITORY = "inspect-", "repository-"
_NAME = re.compile(rf"({_CHECKPOINT}[0-9a-f]{{32}}(-[0-9a-f]{{8}})?|{_REPOSITORY}[0-9a-f]{{32}})")


def checkpoint_name() -> str:
    """A new name for a savepoint that is laid out."""
    return f"{_CHECKPOINT}{uuid.uuid4().hex}"


def beside(location: str) -> str:
    """A new location beside what is laid out, for state that is written from it."""
    return f"{location.rstrip('/')}-{uuid.uuid4().hex[:8]}"


def repository_name() -> str:
    """A new name for a repository that lasts only as long as a live checkpoint is read."""
    return f"{_REPOSITORY}{uuid.uuid4().hex}"


def is_staging(name: str) -> bool:
    """Whether a folder has such a name."""
    return _NAME.fullmatch(name) is not None


def is_repository(name: str) -> bool:
    """Whether it is that of a repository."""
    return name.startswith(_REPOSITORY)
