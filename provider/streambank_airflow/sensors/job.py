"""Sensors on a streaming job: its state, and a committed batch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, cast

from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    conf,
)
from airflow.sdk import BaseSensorOperator, PokeReturnValue

from streambank.core.errors import InputError
from streambank.core.units import say_duration
from streambank_airflow.airflow_versions import KEEPS_IN_TASKS, task_store
from streambank_airflow.arguments import OfJob, Templated, argument
from streambank_airflow.failures import airflow_failures, said
from streambank_airflow.hints import in_words
from streambank_airflow.hooks.streambank import DEFAULT_CONN_ID
from streambank_airflow.operators.base import Declaration, FindsJobs, is_template, keep_page, known_texts
from streambank_airflow.watch.job import LOST, STATES

if TYPE_CHECKING:
    from airflow.sdk import Context

    from streambank_airflow.triggers.base import Event, JobTrigger, LoggedWait, LooksAtJob
    from streambank_airflow.watch.job import JobView


_LOOK_AGAIN_S = 0.5
_JUDGED_S = 45.0
"""Within this a driver on another host is judged: its heartbeat has to stand still for 30 s by default."""
_AFTER_BATCH = "streambank.after_batch"
"""Under which key of the task's store a sensor that is rescheduled keeps where it began."""


class JobSensor(FindsJobs, BaseSensorOperator):
    """A sensor on one streaming job; it waits by a trigger's judgement, in the triggerer or in a worker.

    Seconds between two looks are Airflow's `poke_interval`, 5 by default.

    Args:
        failed_states: States of the job in which the sensor fails at once; None for `failed`, `()` for none.
            Not while an operation works on the job, nor where its driver is gone and whoever keeps it running
            will start another one.
    """

    usual: ClassVar[Mapping[str, Any]] = {"poke_interval": 5.0, "multiple_outputs": True}
    page_parts: ClassVar[tuple[str, ...]] = ()  # it changes nothing
    at_failure = (keep_page,)  # a job without a watcher must not look well on its page once it is seen dead
    says: ClassVar[tuple[str, ...]] = (
        "job", "state", "why", "desired", "operation", "epoch", "batch", "idle",
    )  # fmt: skip
    """What of an event goes into the XCom."""

    job: OfJob[str]
    jobs_file: Templated[str | PathLike[str] | None] = argument(None)
    declaration: OfJob[Declaration | None] = argument(None)
    streambank_conn_id: Templated[str] = argument(DEFAULT_CONN_ID)
    failed_states: Templated[Sequence[str] | None] = argument(None)
    deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False)
    if TYPE_CHECKING:  # what Airflow's sensor takes
        poke_interval: Any = 5.0
        timeout: Any = 0.0
        mode: Any = "poke"
        soft_fail: Any = False
        exponential_backoff: Any = False
    _watcher = cast("LooksAtJob | None", None)  # annotated, it would be a field to mypy
    _told = cast("LoggedWait | None", None)

    def after_init(self) -> None:
        self.failed_states = check_states(self.failed_states, failed=True)

    def read_arguments(self) -> None:
        super().read_arguments()
        with airflow_failures():
            self.failed_states = check_states(self.failed_states, failed=True)
            self.check_undeclared(getattr(self, "checkpoint", None))

    @property
    def fails_in(self) -> Sequence[str]:
        """The states in which it fails where nobody names any."""
        return [*check_states(("failed",))]

    def check_undeclared(self, checkpoint: str | None) -> None:
        """Refuse what only a declared job has, for a sensor that may look at a checkpoint instead.

        Args:
            checkpoint: The directory of a query that no jobs file declares; None for a declared job.

        Raises:
            InputError: Both are given (code `bad-option`).
        """
        known = checkpoint is not None and not is_template(checkpoint)
        if known and known_texts(self.failed_states or ()):
            raise InputError(
                "failed_states needs a declared job, and checkpoint names a query without one.",
                code="bad-option",
                hint="Leave one of them out.",
            )

    def make_trigger(self) -> JobTrigger:
        """The trigger that judges; to be made once the templates are rendered."""
        raise NotImplementedError

    @property
    def trigger_arguments(self) -> dict[str, Any]:
        return {
            **super().trigger_arguments,
            "poll_interval_s": self.poke_interval,
            "failed_states": self.fails_in if self.failed_states is None else self.failed_states,
        }

    def execute(self, context: Context) -> Any:
        with airflow_failures():
            self.check_deferrable()
            self.prepare(context)
            if self.deferrable:
                self.defer(
                    trigger=self.make_trigger(),
                    method_name="execute_complete",
                    timeout=timedelta(seconds=self.timeout),
                )
            with self.saying_what_lacked():
                return super().execute(context)

    def resume_execution(self, *args: Any, **kwargs: Any) -> Any:
        with self.saying_what_lacked():
            return super().resume_execution(*args, **kwargs)

    @contextmanager
    def saying_what_lacked(self) -> Iterator[None]:
        """Say at its timeout what was waited for, and how the job is.

        Raises:
            AirflowSensorTimeout: With that; a sensor that is skipped then (`soft_fail`) logs it.
        """
        try:
            yield
        except AirflowSensorTimeout:
            raise AirflowSensorTimeout(self._what_lacks()) from None
        except AirflowSkipException as error:
            if isinstance(error.__cause__, AirflowSensorTimeout) or "has timed out" in str(error):
                self.log.warning("%s", self._what_lacks())
            raise

    def _what_lacks(self) -> str:
        trigger, job = self.make_trigger(), str(self.job).partition("/")[0]
        hint = "give the sensor a longer `timeout` if the job only needs more time."
        try:
            view = (self._told and self._told.view) or trigger.open_watcher(self.hook).look()
            words = self.in_words(trigger.words(view))
            if view.down and view.desired != "stopped":
                hint = (
                    in_words(f"Trigger {job}.run", job) + ", and run this task again when the job is there."
                )
        except Exception as error:
            words = f"How the job is now is not known: {said(error)}"
        limit = say_duration(float(self.timeout))
        return f"The wait for {trigger.awaits} has not ended within {limit}. {words} Hint: {hint}"

    def prepare(self, context: Context) -> None:
        """What has to be settled before the first look."""

    def poke(self, context: Context) -> PokeReturnValue:
        from streambank_airflow.triggers.base import LoggedWait

        with airflow_failures():
            trigger = self.make_trigger()
            if self._watcher is None or self._told is None:
                self._watcher, self._told = trigger.open_watcher(self.hook), LoggedWait(self.log, trigger)
            view = self._watcher.look()
            event = self._judged(trigger, view)
            # A driver elsewhere is judged by whether its heartbeat moves, which takes more than one look. A
            # sensor that is rescheduled is another process each time, so it takes all of them here.
            give_up_at = time.monotonic() + _JUDGED_S
            while event is None and self.reschedule and view.state == "unknown":
                if time.monotonic() > give_up_at:
                    break
                time.sleep(_LOOK_AGAIN_S)
                view = self._watcher.look()
                event = self._judged(trigger, view)
        self._told.look(view)
        if event is None:
            return PokeReturnValue(is_done=False)
        self._told.end(event)
        return PokeReturnValue(is_done=True, xcom_value=self.execute_complete(context, event))

    def _judged(self, trigger: JobTrigger, view: JobView) -> Event | None:
        event = trigger.judge(view)
        return event and trigger.held(event, self.hook)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Go on when the wait is over.

        Raises:
            AirflowFailException: The job is in one of `failed_states`, or something has to be decided or
                repaired.
        """
        self.raise_for_error(event)
        if event["status"] == "failed":
            raise AirflowFailException(
                f"Job {self.job} is {event['state']}, so this wait cannot succeed: {event['why']}. "
                "Hint: look at the driver's log, and start the job again."
            )
        return {name: event[name] for name in self.says if name in event}


class StreamingJobStatusSensor(JobSensor):
    """Waits until a job is in one of some states, such as `running` or `stopped`.

    Args:
        states: What is waited for: names that `streambank job status` uses.

    Returns:
        `job`, `state`, `why`, `desired`, `operation`, `epoch`, `batch`.
    """

    states: Templated[Sequence[str]] = argument(("running",))

    def after_init(self) -> None:
        self.states = check_states(self.states)

    def read_arguments(self) -> None:
        super().read_arguments()
        with airflow_failures():
            self.states = check_states(self.states)

    def make_trigger(self) -> JobTrigger:
        from streambank_airflow.triggers.job import JobStatusTrigger

        return JobStatusTrigger(states=self.states, **self.trigger_arguments)


class BatchCommittedSensor(JobSensor):
    """Waits until a job has committed a batch; of a job with several queries the slowest counts.

    With `mode="reschedule"` each look is another process: the newest batch when the sensor began is kept in
    Airflow's store of the task, which came with 3.3. Before that it needs `after_batch`.

    Args:
        after_batch: Any batch above this one; None for any above the newest when the sensor began.
        accept_idle: Also be content with a driver whose first trigger found no data.

    Returns:
        `job`, `state`, `why`, `desired`, `operation`, `epoch`, `batch`, `idle`.

    Raises:
        InputError: It could never succeed in this Airflow (code `bad-option`).
    """

    after_batch: Templated[int | None] = argument(None)
    accept_idle: Templated[bool] = argument(False)

    def after_init(self) -> None:
        if self.after_batch is None and self.reschedule and not self.deferrable and not KEEPS_IN_TASKS:
            raise _nowhere_to_keep()

    def prepare(self, context: Context) -> None:
        """Settle which batch is the last that does not count."""
        if self.after_batch is None:
            keeps = self.reschedule and not self.deferrable
            self.after_batch = self._newest_kept(context) if keeps else self._newest()

    def _newest(self) -> int:
        newest = self.hook.watchers.job(self.job).look().batch
        return -1 if newest is None else newest

    def _newest_kept(self, context: Context) -> int:
        """The newest batch when this try of the sensor began; kept, since each look is another process."""
        store, attempt = task_store({**context}), getattr(context["ti"], "try_number", 0)
        if store is None:
            raise _nowhere_to_keep()
        kept = store.get(_AFTER_BATCH)
        if not isinstance(kept, dict) or kept.get("try") != attempt:
            kept = {"try": attempt, "batch": self._newest()}
            store.set(_AFTER_BATCH, kept)
        return int(kept["batch"])

    def make_trigger(self) -> JobTrigger:
        from streambank_airflow.triggers.job import BatchCommittedTrigger

        return BatchCommittedTrigger(
            after_batch=-1 if self.after_batch is None else self.after_batch,
            accept_idle=self.accept_idle,
            **self.trigger_arguments,
        )


def _nowhere_to_keep() -> InputError:
    return InputError(
        'With mode="reschedule" each look is another process, and before Airflow 3.3 none of them knows '
        "which batch was the newest when the sensor began.",
        code="bad-option",
        hint='Give after_batch, such as the batch of a take or a start; or mode="poke", or deferrable=True.',
    )


def check_states(states: Any, *, failed: bool = False) -> Any:
    """Names of states, checked when the DAG is read rather than waited for in vain; one is a list of one.

    What only a run knows is left as it is.

    Args:
        failed: Whether they are those in which a wait fails, whichever they are.

    Raises:
        InputError: There is no such state (code `bad-state`).
    """
    names = known_texts(states)
    if names is None:
        return states
    for state in names:
        if state not in STATES:
            raise InputError(
                f"{state!r} is not a state of a job.",
                code="bad-state",
                hint=f"It is one of: {', '.join(STATES)}.",
            )
    # A job that has lost what it needs has failed, whatever became of its driver; it is nothing else.
    lost = LOST if "failed" in names or (failed and names) else ()
    return [*names, *(one for one in lost if one not in names)]
