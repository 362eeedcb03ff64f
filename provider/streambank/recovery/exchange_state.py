"""Exchanging the state of a job's query for another state after the same batch, made from its savepoint.

Stop with a savepoint, make another savepoint of it, restore that as the next generation, start, and see that
it goes on. The earlier generation is not touched. Where anything goes wrong it counts again (reinstate.py)
and the job goes on in it, so that a compaction that fails is a restart that took long. A process that dies in
between leaves a job that can be started: in the earlier generation, or (after the restore) in the next.

Each step takes the job's locks for itself, so somebody may start the job in between. Then the restore is
refused, since the query has gone on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from streambank.control.control import JobControl
from streambank.core.errors import RefusedError, StreambankError
from streambank.core.names import MAIN
from streambank.declaration.declaration import Job
from streambank.driver.launcher import Launcher
from streambank.job.savepoint import open_repository
from streambank.job.start import StartResult, start_job
from streambank.job.stop import stop_job
from streambank.recovery.reinstate import check_not_gone_on, reinstate
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.recovery.sinks.sinks import check_stands_at
from streambank.repository.repository import Repository
from streambank.work.executor import Pace
from streambank.work.pace import Progress

_log = logging.getLogger(__name__)

Make = Callable[[Repository, str, str], str | None]
"""Makes a savepoint of another one: repository, job, savepoint -> the new one, None where there is none."""

ExchangeState = Literal["exchanged", "nothing-to-do"]


@dataclass(frozen=True, slots=True)
class ExchangeResult:
    """What an exchange came to.

    Attributes:
        job: `job` or `job/query`.
        state: `exchanged`, or `nothing-to-do`: the job goes on as it was.
        batch: The batch after which the state was exchanged.
        before: The savepoint of the state that there was.
        savepoint: That of the state that there is; None where nothing was to be done.
        generation: The number of the generation that counts.
        running: Whether the job was started again; one that was meant to be stopped stays stopped.
    """

    job: str
    state: ExchangeState
    batch: int
    before: str
    savepoint: str | None
    generation: int
    left: int
    running: bool

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def exchange(
    job: Job,
    make: Make,
    *,
    by: Mapping[str, str],
    query: str | None = None,
    why: str = "",
    force_after_s: float | None = None,
    launcher: Launcher | None = None,
    progress: Progress | None = None,
) -> ExchangeResult:
    """Exchange the state of a query.

    Args:
        job: The declared job; all of its queries are stopped meanwhile.
        make: Makes the new state.
        query: Of which query; None for the only one.
        force_after_s: When a stop that reaches no batch boundary is forced; the declared time when left out.
        launcher: Where drivers run; what the job declares when left out.
        progress: Counts files and bytes.

    Raises:
        InputError: The job has several queries and none was named, or not that one (code `which-query`).
        RefusedError: The job has another site that is the active one (`failed-over`, `failing-over`,
            `sites-disagree`), the stop was not at a batch boundary (`batch-begun`), the job was started
            meanwhile (`query-went-on`, `lease-held`), or a sink speaks against it.
        StreambankError: Whatever stop, make, restore and start raise. The message says how the job goes on.
    """
    job.only_query(query)
    records = job.records()
    records.check_site()
    one = _Exchange(
        job,
        query,
        records,
        open_repository(job, records),
        {"by": by, "why": why, "launcher": launcher, "control": records},
        _is_desired(records),
    )
    try:
        return one.run(make, force_after_s, progress)
    except BaseException as error:
        said = one.go_back()
        if isinstance(error, StreambankError):
            raise type(error)(f"{error.message} {said}", code=error.code, hint=error.hint) from error
        error.add_note(said)
        raise


def _is_desired(control: JobControl) -> bool:
    """Whether the job is meant to run, or runs although nobody has said so."""
    desired = control.desired()
    if desired is not None:
        return desired.state == "running"
    view = control.lease.view()
    return view is not None and not view.free


@dataclass(eq=False)
class _Exchange:
    job: Job
    query: str | None
    control: JobControl
    repository: Repository
    options: Mapping[str, Any]
    desired: bool
    before: str | None = None
    left: int | None = None

    def __post_init__(self) -> None:
        self.name = self.job.savepoint_name(self.query)

    def run(self, make: Make, force_after_s: float | None, progress: Progress | None) -> ExchangeResult:
        by = self.options["by"]
        stopped = stop_job(
            self.job, savepoint=True, force_after_s=force_after_s, progress=progress, **self.options
        )
        before = self.before = stopped.savepoints[self.query or MAIN]
        generations = self.control.generations(self.query)
        current = generations.ensure_first(self.job.queries[self.query or MAIN], by=by)
        self.left = current.number
        batch = self.repository.load(self.name, before).batch
        check_stands_at(self.name, current.location, batch)
        _log.info("Making another savepoint of %s ...", before)
        made = make(self.repository, self.name, before)
        number = current.number
        if made is not None:
            _log.info("Restoring %s ...", made)
            report = restore(
                RestoreRequest(
                    self.repository,
                    made,
                    job=self.name,
                    generation=self.control,
                    checkpoint=self.job.queries[self.query or MAIN],
                    unmoved=True,
                    by=by,
                ),
                pace=Pace(progress=progress),
            )
            assert report.plan.generation is not None, "a generation was asked for"
            number = report.plan.generation
        running = self._start() is not None
        state: ExchangeState = "nothing-to-do" if made is None else "exchanged"
        return ExchangeResult(self.name, state, batch, before, made, number, current.number, running)

    def _start(self) -> StartResult | None:
        """Start the job, if it is meant to run, and wait until each query has got going."""
        if not self.desired:
            return None
        return start_job(self.job, **self.options)

    def go_back(self) -> str:
        """Let the earlier generation count again where another does, and start the job; what came of that."""
        try:
            if self.before is not None and self.left is not None and self._has_moved(self.left):
                self._reinstate(self.before, self.left)
            if self._start() is None:
                return "The job stays stopped, with the state that it had."
            return "The job goes on with the state that it had."
        except StreambankError as error:
            return (
                f"The job could not be brought back to its earlier state: {error.message} {error.hint} "
                f"`streambank job status {self.job.name}` shows its status."
            )

    def _reinstate(self, before: str, left: int) -> None:
        _log.warning("Going back to the generation before ...")
        # A driver that gets on after all is not stopped for this.
        check_not_gone_on(self.repository, self.name, before, self.control)
        stop_job(self.job, **self.options)
        by, why = self.options["by"], self.options["why"]
        try:
            reinstate(
                self.repository, self.name, before, generation=left, control=self.control, by=by, why=why
            )
        except RefusedError as refusal:
            # It is not to stand still for this: what it has is whole, too.
            try:
                if self.desired:
                    start_job(self.job, wait=False, **self.options)
            except StreambankError as error:
                more = f"{refusal.message} Nor did it start: {error.message}"
                raise RefusedError(more, code=refusal.code, hint=refusal.hint) from error
            raise

    def _has_moved(self, left: int) -> bool:
        current = self.control.generation(self.query)
        return current is not None and current.number != left
