"""Holding savepoints while they are read: a mark before the first byte, renewed meanwhile, ended afterwards.

Whoever holds looks at the repository again after the mark is written, and only then at the manifest and at
where its objects lie. So a sweep that has not seen the mark has nothing to delete that the holder counts on.
Where no mark can be written, in a repository that can only be read for example, reading goes on without one:
that is said once, and what is read may be swept a grace after it was expired.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from streambank.core.errors import StreambankError
from streambank.repository.catalog import manifest_key, no_such_savepoint
from streambank.repository.holds import HOLD_S, add_hold, hold_key
from streambank.repository.repository import Repository

RENEW_S = HOLD_S / 6
"""So often a hold is renewed: some renewals may fail before it ends."""
_FOR_GOOD = ("no-permission", "read-only", "no-exclusive-create")
"""Codes of errors after which nothing was written, and that the next savepoint would meet, too."""
_NOT_HELD = "The savepoint {} is read without a hold, so a sweep may delete some of it once it is expired"
_NOT_RENEWED = "The hold on the savepoint {} could not be renewed at least once"
_NOT_ENDED = "The hold on the savepoint {} could not be ended, and ends by itself within the hour"
_KEPT = 2
"""How many of its marks a holder leaves: who lists them while they are renewed sees at least one."""


class Holds:
    """Holds savepoints of one repository for one piece of work.

    Args:
        repository: Where they are.
        purpose: What the work is: `restore`, `replicate` or `verify`.
        by: Who asks.
        renew_s: How often a hold is renewed.

    Attributes:
        warnings: What a person should know: why savepoints were not held, or not all the time.
    """

    def __init__(
        self,
        repository: Repository,
        purpose: str,
        by: Mapping[str, Any] | None = None,
        *,
        renew_s: float = RENEW_S,
    ) -> None:
        self.warnings: list[str] = []
        self._repository = repository
        self._purpose = purpose
        self._by = dict(by or {})
        self._renew_s = renew_s
        self._able = True

    @contextmanager
    def held(self, job: str, savepoint: str) -> Iterator[Keeper]:
        """Hold a savepoint for a `with` block; its marks are renewed in a thread of their own.

        Raises:
            NotFoundError: It is not listed any more (code `no-such-savepoint`).
        """
        keeper = Keeper(self._repository, self._purpose, self._by, job, savepoint)
        if self._able:
            self._warn(keeper.renew(), _NOT_HELD.format(savepoint))
        ended = threading.Event()
        thread = threading.Thread(
            target=self._keep, args=(keeper, ended), name=f"hold-{savepoint}", daemon=True
        )
        try:
            self._repository.refresh()
            if not self._repository.store.exists(manifest_key(job, savepoint)):
                raise no_such_savepoint(job, savepoint)
            if keeper.keys:
                thread.start()
            yield keeper
        finally:
            ended.set()
            if thread.ident is not None:
                thread.join()
            self._warn(keeper.release(), _NOT_ENDED.format(savepoint))

    def _keep(self, keeper: Keeper, ended: threading.Event) -> None:
        while not ended.wait(self._renew_s):
            self._warn(keeper.renew(), _NOT_RENEWED.format(keeper.savepoint))

    def _warn(self, error: StreambankError | None, what: str) -> None:
        """Say something once, whose cause may name another file each time."""
        if error is None:
            return
        self._able = self._able and error.code not in _FOR_GOOD
        if not any(text.startswith(what) for text in self.warnings):
            self.warnings.append(f"{what}: {error.message}")


class Keeper:
    """The marks of one hold.

    Attributes:
        job: `job` or `job/query`.
        savepoint: Its id.
        keys: Where the marks lie, those included of which nobody knows whether they were written.
    """

    def __init__(
        self, repository: Repository, purpose: str, by: Mapping[str, Any], job: str, savepoint: str
    ) -> None:
        self.job = job
        self.savepoint = savepoint
        self.keys: list[str] = []
        self._repository = repository
        self._purpose = purpose
        self._by = by

    def renew(self) -> StreambankError | None:
        """Write a mark that counts from now, and delete those that are older than the last one."""
        store, digest_name = self._repository.store, self._repository.digest_name
        key = hold_key(self.job, self.savepoint)
        try:
            add_hold(store, digest_name, key, self._purpose, self._by)
            self.keys.append(key)
            while len(self.keys) > _KEPT:
                store.delete(self.keys[0])
                del self.keys[0]
        except StreambankError as error:
            if key not in self.keys and error.code not in _FOR_GOOD:
                self.keys.append(key)  # it may be there all the same
            return error
        return None

    def release(self) -> StreambankError | None:
        """End the hold; a mark that cannot be deleted ends by itself."""
        try:
            while self.keys:
                self._repository.store.delete(self.keys[-1])
                del self.keys[-1]
        except StreambankError as error:
            return error
        return None
