"""What a snapshot is made from: each thing is read once, however many parts need it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any, Generic, TypeVar

from streambank.control.control import JobControl
from streambank.control.drills import newest_drills
from streambank.control.progress import ProgressRecord, last_progress
from streambank.control.records import JsonDict
from streambank.core.errors import NotFoundError, StreambankError
from streambank.declaration.declaration import Job
from streambank.driver.preflight import declared_query, savepoints_lost
from streambank.job.status import JobStatus, job_status
from streambank.overview.judged import Judged, judge_queries
from streambank.overview.plain import Plain
from streambank.overview.saved import Saved, newest_saved
from streambank.repository.repository import Repository

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Once(Generic[T]):
    """A look that is done when it is first asked for."""

    def __init__(self, look: Callable[[], T]) -> None:
        self._look = look
        self._found: T | None = None
        self._error: Exception | None = None
        self._done = False

    def __call__(self) -> T:
        """What was seen.

        Raises:
            Exception: The look failed, now or before.
        """
        if not self._done:
            self._done = True
            try:
                self._found = self._look()
            except Exception as error:
                self._error = error
        if self._error is not None:
            raise self._error
        return self._found  # type: ignore[return-value]  # it is what the look gave


class Look:
    """One job at one moment.

    Attributes:
        repository: Its repository; None where it has taken no savepoint yet.
        saved: The newest savepoints of all its queries, newest first, and how many there are.
        failed: Why fields of the line are missing, by the part that they rest on.
    """

    def __init__(self, job: Job, now: datetime) -> None:
        self.job = job
        self.now = now
        self.plain = Plain.of_job(job)
        self.records: Once[JobControl] = Once(job.records)
        self.status: Once[JobStatus] = Once(
            lambda: job_status(job, control=self.records(), progress=self.progress)
        )
        self._progress: dict[str, ProgressRecord | None] = {}
        self.repository: Once[Repository | None] = Once(self._repository)
        self.saved: Once[Saved] = Once(self._saved)
        self.judged: Once[list[Judged]] = Once(lambda: judge_queries(job, now))
        self.drills: Once[list[JsonDict]] = Once(lambda: newest_drills(self.records()))
        self.failed: dict[str, dict[str, str]] = {}

    def progress(self, query: str) -> ProgressRecord | None:
        """The newest record of progress of a query; None where it has none."""
        if query not in self._progress:
            self._progress[query] = last_progress(self.records().store, query)
        return self._progress[query]

    def _repository(self) -> Repository | None:
        try:
            return self.job.open_repository()
        except NotFoundError:
            records = self.records()
            asked = (declared_query(self.job, name, records) for name in self.job.queries)
            lost = next((found for one in asked if (found := savepoints_lost(one)) is not None), None)
            if lost is not None:
                raise lost from None
            return None

    def _saved(self) -> Saved:
        repository = self.repository()
        return Saved() if repository is None else newest_saved(self.job, repository, self.now)

    def part(self, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """A part as plain JSON; where it cannot be made, why."""
        try:
            return {"error": None, **self.plain.json(make())}
        except Exception as error:
            return {"error": self.error(error)}

    def error(self, error: Exception) -> dict[str, str]:
        if isinstance(error, StreambankError):
            found = {"code": error.code, "message": error.message, "hint": error.hint}
        elif isinstance(error, OSError):
            code = "no-permission" if isinstance(error, PermissionError) else "io-error"
            found = {"code": code, "message": str(error), "hint": "Look at the disk, and at who may read it."}
        else:
            _log.warning("a part of the snapshot of job %s failed", self.job.name, exc_info=error)
            found = {"code": "internal", "message": f"{type(error).__name__}: {error}", "hint": "Report it."}
        return {name: self.plain.text(text) for name, text in found.items()}
