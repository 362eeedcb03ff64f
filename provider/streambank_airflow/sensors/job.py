"""Sensors on a streaming job: its state, and a committed batch."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, cast

from airflow.providers.common.compat.sdk import AirflowFailException, conf
from airflow.sdk import BaseSensorOperator, PokeReturnValue

from streambank.core.errors import InputError
from streambank.core.options import Template
from streambank_airflow.airflow_versions import KEEPS_IN_TASKS, task_store
from streambank_airflow.failures import airflow_failures
from streambank_airflow.hooks.streambank import DEFAULT_CONN_ID
from streambank_airflow.operators.base import FindsJobs
from streambank_airflow.watch.job import LOST, STATES

if TYPE_CHECKING:
    from airflow.sdk import Context

    from streambank_airflow.triggers.base import JobTrigger, LooksAtJob


_LOOK_AGAIN_S = 0.5
_JUDGED_S = 45.0
"""Within this a driver on another host is judged: its heartbeat has to stand still for 30 s by default."""
_AFTER_BATCH = "streambank.after_batch"
"""Under which key of the task's store a sensor that is rescheduled keeps where it began."""


class JobSensor(FindsJobs, BaseSensorOperator):
    """A sensor on one streaming job; it waits by a trigger's judgement, in the triggerer or in a worker.

    Seconds between two looks are Airflow's `poke_interval`, 5 by default.

    Args:
        failed_states: States of the job in which the sensor fails at once, unless an operation works on the
            job.
    """

    usual: ClassVar[Mapping[str, Any]] = {"poke_interval": 5.0}
    page_parts: ClassVar[tuple[str, ...]] = ()  # it changes nothing
    says: ClassVar[tuple[str, ...]] = (
        "job", "state", "why", "desired", "operation", "epoch", "batch", "idle",
    )  # fmt: skip
    """What of an event goes into the XCom."""

    job: str | Template
    jobs_file: str | PathLike[str] | Template | None = None
    streambank_conn_id: str | Template = DEFAULT_CONN_ID
    failed_states: Sequence[str] = ()
    deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False)
    if TYPE_CHECKING:  # what Airflow's sensor takes
        poke_interval: Any = 5.0
        timeout: Any = 0.0
        mode: Any = "poke"
        soft_fail: Any = False
        exponential_backoff: Any = False
    _watcher = cast("LooksAtJob | None", None)  # annotated, it would be a field to mypy

    def after_init(self) -> None:
        self.failed_states = check_states(self.failed_states)

    def check_undeclared(self, checkpoint: str | None) -> None:
        """Refuse what only a declared job has, for a sensor that may look at a checkpoint instead.

        Args:
            checkpoint: The directory of a query that no jobs file declares; None for a declared job.

        Raises:
            InputError: Both are given (code `bad-option`).
        """
        if checkpoint is not None and self.failed_states:
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
            "failed_states": self.failed_states,
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
            return super().execute(context)

    def prepare(self, context: Context) -> None:
        """What has to be settled before the first look."""

    def poke(self, context: Context) -> PokeReturnValue:
        with airflow_failures():
            trigger = self.make_trigger()
            if self._watcher is None:
                self._watcher = trigger.open_watcher(self.hook)
            view = self._watcher.look()
            event = trigger.judge(view)
            # A driver elsewhere is judged by whether its heartbeat moves, which takes more than one look. A
            # sensor that is rescheduled is another process each time, so it takes all of them here.
            give_up_at = time.monotonic() + _JUDGED_S
            while event is None and self.reschedule and view.state == "unknown":
                if time.monotonic() > give_up_at:
                    break
                time.sleep(_LOOK_AGAIN_S)
                view = self._watcher.look()
                event = trigger.judge(view)
        if event is None:
            return PokeReturnValue(is_done=False)
        return PokeReturnValue(is_done=True, xcom_value=self.execute_complete(context, event))

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

    states: Sequence[str] = ("running",)

    def after_init(self) -> None:
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

    after_batch: int | Template | None = None
    accept_idle: bool = False

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


def check_states(states: Sequence[str]) -> list[str]:
    """Names of states, checked when the DAG is read rather than waited for in vain.

    Raises:
        InputError: There is no such state (code `bad-state`).
    """
    for state in states:
        if state not in STATES:
            raise InputError(
                f"{state!r} is not a state of a job.",
                code="bad-state",
                hint=f"It is one of: {', '.join(STATES)}.",
            )
    # A job that has lost what it needs has failed, whatever became of its driver.
    return [*states, *(one for one in LOST if states and one not in states)]
