"""What of a declared job is asked in this folder, which knows no declaration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from streambank.control.control import JobControl

if TYPE_CHECKING:
    from typing_extensions import Self


class JobAtSite(Protocol):
    """What of a declared job is asked here; `Job` has it."""

    @property
    def name(self) -> str:
        """The job."""

    @property
    def site(self) -> str:
        """At which of its sites it is."""

    @property
    def other_site(self) -> Self | None:
        """The job at its other site; None where it has only one."""

    @property
    def queries(self) -> Mapping[str, str]:
        """The declared checkpoint of each query."""

    @property
    def repository(self) -> str:
        """Where its savepoints are."""

    @property
    def control(self) -> str | None:
        """The declared place of its records; None for the usual one."""

    def at_site(self, site: str) -> Self:
        """The job at one of its sites."""

    def records(self) -> JobControl:
        """Its records."""
