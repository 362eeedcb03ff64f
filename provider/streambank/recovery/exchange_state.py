"""Exchanging the state of a job's query for another state after the same batch, made from its savepoint.

1. *stop*: the job is stopped at a batch boundary, and a savepoint is taken.
2. *rewrite*: another savepoint is made of it.
3. *restore*: that one becomes the next generation. The earlier one is not touched.
4. *start*: the job goes on in it, and each query gets going.

Steps 1 to 3, and the launch of step 4, are one operation, during which a job that ran is meant to run: nobody
starts it in between, and whoever keeps it running goes on watching it. Where anything goes wrong, the earlier
generation counts again (reinstate.py) and the job goes on in it: a compaction that fails is a restart that
took long. A process that dies in between leaves a job that can be started, which whoever keeps it running
does: in the earlier generation, or (after the restore) in the next. Another try of the same task finds the
restore done, and only starts the job: a change is never made twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from streambank.control.control import JobControl
from streambank.control.operation import Operation
from streambank.core.errors import RefusedError, StreambankError
from streambank.core.names import ASKER, MAIN
from streambank.core.shape import JsonObject
from streambank.declaration.declaration import Job
from streambank.driver.launcher import Launcher
from streambank.driver.stops import mark_late_drivers
from streambank.job.savepoint import open_repository
from streambank.job.start import start_job
from streambank.job.stop import StopResult, stop_job
from streambank.procedure.procedure import Procedure, Say, quiet
from streambank.recovery.reinstate import check_not_gone_on, reinstate
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import hold_job, restore
from streambank.recovery.sinks.sinks import check_stands_at
from streambank.repository.repository import Repository
from streambank.work.executor import DEFAULT_PACE, Pace

OPERATION = "exchange"

Make = Callable[[Repository, str, str], str | None]
"""Makes a savepoint of another one: repository, job, savepoint -> the new one, None where there is none."""


@dataclass(frozen=True, slots=True)
class ExchangeRequest:
    """What an exchange is asked for.

    Attributes:
        job: The job as it is declared now; all of its queries are stopped meanwhile.
        start: Whether the job runs afterwards; None for as it was. A job that was stopped before stays so
            where the exchange fails.
        asked_at: When that was asked for; None for now. A stop since then has the last word.
        force_after_s: When a stop that reaches no batch boundary is forced; the declared time when left out.
    """

    job: Job
    make: Make
    query: str | None = None
    start: bool | None = None
    asked_at: datetime | None = None
    force_after_s: float | None = None
    by: Mapping[str, str] = field(default_factory=dict)
    why: str = ""


@dataclass(frozen=True, slots=True)
class ExchangeResult(JsonObject):
    """What an exchange came to.

    Attributes:
        job: `job` or `job/query`.
        state: `exchanged`, or `nothing-to-do`: the job goes on as it was.
        savepoint: That of the state that there is; None where nothing was to be done.
        left: The number of the one that counted before.
        running: Whether the job runs; one that was meant to be stopped stays stopped.
    """

    job: str
    state: Literal["exchanged", "nothing-to-do"]
    batch: int
    before: str
    savepoint: str | None
    generation: int
    left: int
    running: bool = False


def exchange(
    request: ExchangeRequest,
    *,
    control: JobControl | None = None,
    repository: Repository | None = None,
    launcher: Launcher | None = None,
    say: Say = quiet,
    pace: Pace = DEFAULT_PACE,
) -> ExchangeResult:
    """Exchange the state of a query.

    Raises:
        InputError: The job has several queries and none was named, or not that one (code `which-query`).
        RefusedError: The job has another site that is the active one (`failed-over`, `failing-over`,
            `sites-disagree`), the stop was not at a batch boundary (`batch-begun`), or a sink speaks against
            it.
        ConflictError: Another operation works on the job (`operation-in-progress`).
        StreambankError: Whatever stop, make, restore and start raise. The message says how the job goes on.
    """
    work = Exchange(request, control, repository, launcher, say, pace)
    try:
        return work.run()
    except BaseException as error:
        if not work.has_begun:
            raise
        said = work.go_back()
        if isinstance(error, StreambankError):
            raise type(error)(f"{error.message} {said}", code=error.code, hint=error.hint) from error
        error.add_note(said)
        raise


class Exchange(Procedure[ExchangeRequest]):
    """An exchange that is worked on."""

    def __init__(
        self,
        request: ExchangeRequest,
        control: JobControl | None,
        repository: Repository | None,
        launcher: Launcher | None,
        say: Say,
        pace: Pace,
    ) -> None:
        super().__init__(request, say, pace)
        self.job.only_query(request.query)
        self.query = request.query
        self.name = self.job.savepoint_name(self.query)
        self.control = control or self.job.records()
        self.control.check_site()
        self.repository = repository or open_repository(self.job, self.control)
        self.launcher = launcher
        self.ran = _is_desired(self.control)
        self.starts = self.ran if request.start is None else request.start
        self.has_begun = False
        self.before = ""
        self.left: int | None = None

    def run(self) -> ExchangeResult:
        """Do it; see the module."""
        done = self._done_before()
        if done is None:
            with self._operation() as held:
                self.has_begun = True
                done = self._exchanged(held)
                self._start(held)
        return replace(done, running=self._start())

    def _operation(self) -> AbstractContextManager[Operation]:
        by, wait_s = self.request.by, 2 * self.job.stop.force_after_s
        return self.control.operation(OPERATION, by=by, wait_s=wait_s)

    def _done_before(self) -> ExchangeResult | None:
        """What an earlier try of the same task has come to, where that has restored the new state."""
        asker, generations = self.request.by.get(ASKER), self.control.generations(self.query)
        current = generations.current()
        if not asker or current is None or current.by.get(ASKER) != asker or current.again is not None:
            return None
        assert current.from_savepoint is not None, "an exchange has restored it"
        manifest = self.repository.load(self.name, current.from_savepoint)
        self.has_begun, self.before = True, manifest.derived_from or ""
        self.left = max(one.number for one in generations.all() if one.number < current.number)
        made = current.from_savepoint
        return ExchangeResult(
            self.name, "exchanged", manifest.batch, self.before, made, current.number, self.left
        )

    def _exchanged(self, held: Operation) -> ExchangeResult:
        by = self.request.by
        with self.step("stop", f"stopping job {self.job.name} with a savepoint"):
            self.before = self._stop(
                held,
                savepoint=True,
                force_after_s=self.request.force_after_s,
                progress=self.pace.progress,
                lasting=self.ran and not self.starts,
            ).savepoints[self.query or MAIN]
        checkpoint = self.job.queries[self.query or MAIN]
        current = self.control.generations(self.query).ensure_first(checkpoint, by=by)
        number = self.left = current.number
        batch = self.repository.load(self.name, self.before).batch
        check_stands_at(self.name, current.location, batch)
        with self.step("rewrite", f"making another savepoint of {self.before}"):
            made = self.request.make(self.repository, self.name, self.before)
        if made is None:
            return ExchangeResult(self.name, "nothing-to-do", batch, self.before, None, number, number)
        asked = RestoreRequest(
            self.repository,
            made,
            job=self.name,
            generation=self.control,
            checkpoint=checkpoint,
            unmoved=True,
            by=by,
        )
        held.check()
        with (
            self.step("restore", f"restoring {made}"),
            hold_job(self.control, by=by, operation=held) as job_held,
        ):
            report = restore(asked, pace=self.pace, held=job_held)
        assert report.plan.generation is not None, "a generation was asked for"
        return ExchangeResult(
            self.name, "exchanged", batch, self.before, made, report.plan.generation, number
        )

    def _stop(self, held: Operation, *, lasting: bool, **how: Any) -> StopResult:
        by, why = self.request.by, self.request.why
        mark_late_drivers(self.control, by=by, why=why)
        return stop_job(
            self.job,
            by=by,
            why=why,
            launcher=self.launcher,
            control=self.control,
            operation=held,
            lasting=lasting,
            **how,
        )

    def _start(self, held: Operation | None = None) -> bool:
        """Start the job if it is to run, unless somebody has stopped it meanwhile; whether it runs.

        Args:
            held: The operation lock. Without it, it is waited for that each query gets going: a stop need not
                wait for a first batch that does not come.
        """
        if not self.starts:
            return False
        desired = self.control.desired()
        said_since = desired is not None and desired.at >= (self.request.asked_at or self.started_at)
        started = start_job(
            self.job,
            by=self.request.by,
            why=self.request.why,
            obey_desired=self.ran or said_since,
            wait=held is None,
            launcher=self.launcher,
            control=self.control,
            operation=held,
        )
        return started.state != "not-desired"

    def go_back(self) -> str:
        """Let the earlier generation count again where another does, and start the job; what came of that."""
        self.starts = self.starts and self.ran
        runs = False
        failures: list[StreambankError] = []
        try:
            with self._operation() as held:
                try:
                    self._reinstate(held)
                except RefusedError as refusal:
                    failures.append(refusal)  # it is not to stand still for this: what it has is whole, too
                runs = self._start(held)
            if not failures:
                runs = self._start()
        except StreambankError as error:
            failures.append(error)
        if failures:
            why = " Nor did it start: ".join(error.message for error in failures)
            return (
                f"The job could not be brought back to its earlier state: {why} {failures[0].hint} "
                f"`streambank job status {self.job.name}` shows its status."
            )
        return f"The job {'goes on' if runs else 'stays stopped,'} with the state that it had."

    def _reinstate(self, held: Operation) -> None:
        current = self.control.generation(self.query)
        if self.left is None or current is None or current.number == self.left:
            return
        self.say("going back to the generation before")
        # A driver that gets on after all is not stopped for this.
        check_not_gone_on(self.repository, self.name, self.before, self.control)
        self._stop(held, lasting=False)
        reinstate(
            self.repository,
            self.name,
            self.before,
            generation=self.left,
            control=self.control,
            by=self.request.by,
            why=self.request.why,
            operation=held,
        )


def _is_desired(control: JobControl) -> bool:
    """Whether the job is meant to run, or runs although nobody has said so."""
    desired = control.desired()
    if desired is not None:
        return desired.state == "running"
    view = control.lease.view()
    return view is not None and not view.free
