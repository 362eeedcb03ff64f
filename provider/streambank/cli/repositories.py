"""Opening the repository that an option names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streambank.repository.repository import Repository


def open_repository(location: str) -> Repository:
    """The repository that is there."""
    from streambank.repository.repository import Repository
    from streambank.storage import open_store

    return Repository.open(open_store(location))
