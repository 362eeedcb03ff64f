"""What a sweep must leave where it is, since somebody reads a savepoint that names it."""

from __future__ import annotations

from streambank.core.errors import NotFoundError
from streambank.repository.catalog import EXPIRED, manifest_key
from streambank.repository.holds import Hold, holds
from streambank.repository.repository import Repository
from streambank.retention.expired import UNUSABLE
from streambank.retention.survey import ContentFile, named_objects


class HeldContent:
    """The objects that held savepoints name; those that were seen once count for the whole sweep.

    Args:
        repository: Which.
        now_ns: When the sweep began, by the clock of the storage.

    Attributes:
        holds: Every hold mark of the last look, ended ones among them.
    """

    def __init__(self, repository: Repository, now_ns: int) -> None:
        self.holds: list[Hold] = []
        self._repository = repository
        self._now_ns = now_ns
        self._named: dict[tuple[str, str], set[str]] = {}

    def look(self) -> None:
        """Take in what is held now."""
        self.holds = holds(self._repository.store, self._now_ns)
        for which in {hold.which for hold in self.holds if hold.counts} - self._named.keys():
            self._named[which] = self._objects(*which)

    def __contains__(self, which: object) -> bool:
        """Whether a savepoint, by job and id, is held."""
        return which in self._named

    def names(self, file: ContentFile) -> bool:
        """Whether a held savepoint names anything that lies in a file, be it elsewhere too."""
        inside = {digits for digits, _ in file.objects or ()} if self._named else set()
        return any(not inside.isdisjoint(named) for named in self._named.values())

    def _objects(self, job: str, savepoint: str) -> set[str]:
        """Hex digits of what a savepoint names, listed or expired; nothing where nobody can read that."""
        store = self._repository.store
        copies = [info.path for info in store.list(f"{EXPIRED}/{job}/{savepoint}")]
        found: set[str] = set()
        for key in (manifest_key(job, savepoint), *copies):
            try:
                found |= named_objects(store, key, job, savepoint)
            except (NotFoundError, *UNUSABLE):
                continue  # neither can the holder read it from there
        return found
