"""Operators that start and stop a streaming job; the one that keeps it running is in `keep.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    conf,
)

from streambank.core.errors import InputError, RefusedError, StorageError, StreambankError
from streambank.core.names import QueryRef
from streambank.core.shape import decode
from streambank.core.units import say_duration, to_json_time, utc_now
from streambank.core.verb_options import RestartOptions, StopOptions
from streambank.job.readiness import say_starts
from streambank.job.stop_request import StopAsked
from streambank_airflow.arguments import (
    OneOf,
    RestartArguments,
    Seconds,
    StartArguments,
    StopArguments,
    Templated,
    argument,
)
from streambank_airflow.caller import asked_at
from streambank_airflow.choices import IfRunning
from streambank_airflow.failures import airflow_failures
from streambank_airflow.hints import in_words
from streambank_airflow.operators.base import (
    asked_by,
    by_schedule,
    flat,
    left_stopped,
    tried_by,
)
from streambank_airflow.operators.driver import DIED, DriverOperator, LaunchesDriver, Waits
from streambank_airflow.operators.keep import KeepStreamingJobRunningOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from streambank.job.restart import RestartAsked, RestartResult
    from streambank.job.start import StartResult

__all__ = [
    "KeepStreamingJobRunningOperator",
    "RestartStreamingJobOperator",
    "StartStreamingJobOperator",
    "StopStreamingJobOperator",
]

SAVEPOINTS_KEY = "savepoints"
"""XCom key under which a stop leaves the savepoint of each query."""
ENDED = frozenset({"success", "skipped", "failed", "upstream_failed", "removed"})
"""States in which a task stays unless somebody clears it."""
IfStopped = Literal["skip", "fail"]
"""What a start does where somebody has stopped the job after it was asked for."""
_IMPATIENT = "With wait_until_possible=True this task would wait for that, for as long as it takes."


class StartStreamingJobOperator(LaunchesDriver, StartArguments):
    """Makes sure that a job runs: starts a driver, detached from this task, unless one is there.

    Idempotent by the job's name: a retry, a second click or a lost worker never makes a second driver. Done
    when each query has committed a batch since, or found no data. From now on the job is meant to run; but a
    stop that came after this DAG run was asked for counts, so a queued or retried start never undoes it: the
    task is skipped, or fails, and says who it was.

    Airflow does not try again what would end the same way: a checkpoint that is damaged or that Spark cannot
    load, and a second driver of this run that dies before its first batch by the same error.

    The driver outlives the task: marking it as failed, clearing it and its timeout stop nothing, unless
    `stop_on_kill` says so.

    A full or read-only disk, or a storage or cluster that is not reached, is waited for as
    `KeepStreamingJobRunningOperator` does it, where `wait_until_possible` says so; a stop ends that. Else the
    task fails, and Airflow tries it again as its `retries` say. A `fresh_start` takes a person: in a run that
    a schedule has made it is refused.

    Args:
        if_stopped: What becomes of the task where somebody has stopped the job after this run was asked for:
            `skip`, or `fail` where the run itself has stopped the job, and would end well with it stopped.
        wait_until_possible: Wait in the triggerer, without an end, for what a start lacks; None for where it
            is deferrable.
        wait_for_completion: Without it, done once a driver is launched: a sensor may wait for its batches.
        application_args: The application's arguments for this launch, such as `["--day", "{{ ds }}"]`,
            instead of the declared ones. A driver that runs already keeps its own, and a start by another
            task uses what that one says: give the same to the `KeepStreamingJobRunningOperator` after it.
        deferrable: Wait for the first batch in the triggerer, with `poll_interval_s` between two looks.

    Returns:
        `job`, `state` (`started`, `already-running`, `finished`), `epoch`, `launch_id`, `host`, `pid`,
        `jvm_pid`, `batch`, `log`, `seconds`; in a cluster `submission` and `tracking` (its page), and `code`,
        where an upgrade has chosen other code than the job declares.
    """

    alert_kinds = ("giving-up",)

    only_if: Templated[bool] = argument(True)
    if_stopped: OneOf[IfStopped] = argument("skip")
    wait_until_possible: Templated[bool | None] = argument(None)
    wait_for_completion: Templated[bool] = argument(True)
    application_args: Templated[Sequence[str] | None] = argument(None)
    deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False)
    poll_interval_s: Seconds[float] = argument(2.0)

    @property
    def is_patient(self) -> bool:
        """Whether it waits for what a start lacks."""
        return self.deferrable if self.wait_until_possible is None else self.wait_until_possible

    @property
    def _waits_here(self) -> bool:
        return self.wait_for_completion and not self.deferrable

    @property
    def _defers(self) -> bool:
        return self.wait_for_completion and self.deferrable

    def execute(self, context: Context) -> dict[str, Any]:
        """Start it; see the class."""
        return self._begin(context, Waits())

    def start_again(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Try again after a wait for what the start before has lacked."""
        return self._begin(context, Waits.of(event["remember"]))

    def _begin(self, context: Context, known: Waits) -> dict[str, Any]:
        with self.waiting_for_storage(context, known), airflow_failures():
            if not self.only_if:
                raise AirflowSkipException(f"This run does not start job {self.job}.")
            self.check_deferrable()
            obey = self.hook.jobs.obeys(self.job, asked_at(context), by=asked_by(context))
            fresh = self._is_fresh(context)
            result = self._start(context, known, obey=obey, wait=self._waits_here, fresh=fresh)
            if not self._defers or result.state == "finished":
                return self._done(result)
            timeout_s = self.hook.declared.job(self.job).start.timeout_s
        self._defer(result, utc_now() + timedelta(seconds=timeout_s), **known.to_dict())

    def _defer(self, result: StartResult, give_up_at: datetime, **remember: Any) -> NoReturn:
        from streambank_airflow.triggers.job import JobReadyTrigger

        self.defer(
            trigger=JobReadyTrigger(
                **self.trigger_arguments,
                stop_by=self.stop_by,
                give_up_at=to_json_time(give_up_at),
                remember={"state": result.state, "launch_id": result.launch_id, **remember},
            ),
            method_name="execute_complete",
        )

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Go on when the driver is ready, or gone; see the class."""
        known = Waits.of(event["remember"])
        if self.is_patient and event["status"] == "error" and event["retryable"]:
            self.wait_for_storage(context, self.said_of(event).replace("\nHint: ", " Hint: "), known)
        self.raise_for_error(event)
        if event["status"] == "late":
            self.show_driver_failure()
            how_far = event.get("starts") or "it has not reported its queries yet"
            raise AirflowException(
                f"The driver of job {self.job} is not ready in time: {how_far}. Hint: the driver was left "
                "running; a retry waits for it again. Its last lines are in the log above."
            )
        if event["status"] == "gone" and not event["finished"] and event["desired"] != "stopped":
            cause = self.show_driver_failure()
            if self.is_patient and self.died_for_room():
                self.wait_for_storage(context, f"its driver is gone ({event['why']}{cause}).", known)
            self.raise_hopeless(context)
            self.raise_gone(f"The driver of job {self.job} ended before it was ready", event, cause)
        with self.waiting_for_storage(context, known), airflow_failures():
            # It works, so this finds it at once; and tells the same as a start that has not deferred.
            result = self._start(context, known, obey=True, wait=event["status"] == "ready")
            before = event["remember"]
            return self._done(result, before["state"] if result.launch_id == before["launch_id"] else None)

    def _is_fresh(self, context: Context) -> bool:
        """Whether a person lets the job begin again although its records are lost."""
        if self.fresh_start and by_schedule(context):
            raise RefusedError(
                f"A scheduled run asks for a fresh start of job {self.job}: only a person may accept that "
                "its records are lost.",
                code="fresh-start-by-schedule",
                hint="Trigger the DAG by hand, and accept the lost records in its form.",
            )
        return self.fresh_start

    def _start(
        self, context: Context, known: Waits, *, obey: bool, wait: bool, fresh: bool = False
    ) -> StartResult:
        self.begins()
        try:
            result = self.hook.jobs.start(
                self.job,
                obey_desired=obey,
                wait=wait,
                note=self.why,
                by=asked_by(context),
                fresh_start=fresh,
                application_args=self.application_args,
            )
        except Exception as error:
            if isinstance(error, StorageError) and error.code not in DIED:
                if self.is_patient:
                    raise
                hint = f"{error.hint} {_IMPATIENT}".strip()
                raise StorageError(error.message, code=error.code, hint=hint) from error
            cause = self.show_driver_failure()
            if isinstance(error, StreambankError) and error.code == "driver-died":
                if self.is_patient and self.died_for_room():
                    self.wait_for_storage(context, f"{error.message.rstrip('.')}{cause}.", known)
                self.raise_hopeless(context)
            raise
        self.link_to(context, result)
        return result

    def _done(self, result: StartResult, state: str | None = None) -> dict[str, Any]:
        if result.state == "not-desired":
            self._overtaken(result)
        runs = {"finished": "ran to its end", "already-running": "was running already"}
        self.log.info(
            "Job %s %s: %s; batch %s, after %s. The driver's log: %s",
            self.job,
            runs.get(state or result.state, "runs" if result.is_ready else "has its driver up"),
            say_starts(result.queries),
            "none yet" if result.batch is None else result.batch,
            say_duration(result.seconds),
            result.log or result.tracking or result.submission or "not known",
        )
        for warning in result.warnings:
            self.log.warning("%s", in_words(warning))
        return flat(result.to_dict()) | ({"state": state} if state else {})

    def _overtaken(self, result: StartResult) -> NoReturn:
        """End where somebody has stopped the job after this start was asked for.

        Raises:
            AirflowSkipException: The stop counts, and this run has not stopped the job.
            AirflowFailException: It has, so that it must not end well.
        """
        why = f"Job {self.job} was {result.why}. That was after this start was requested."
        if self.if_stopped == "fail":
            raise AirflowFailException(
                f"{why} So this run does not start it, and it stays stopped. Hint: see what that was for, "
                f"and trigger {self.job.partition('/')[0]}.run if the job should run."
            )
        self.log.warning("%s So it is not started.", why)  # Airflow does not log why a task is skipped
        raise AirflowSkipException(f"{why} So it is not started.")


class StopStreamingJobOperator(DriverOperator, StopArguments):
    """Stops a job at a batch boundary, and keeps it stopped; a job that does not run is stopped already.

    Where it defers, it asks the driver to stop and waits for its end in the triggerer, with no lock held; the
    rest is done under the job's operation lock when it goes on. A task that is ended while it waits has asked
    already, so the job stops; another try goes on with what the first one has asked for. Who starts the job
    in between has the last word: the task fails then. Its savepoints are events of the job's asset.

    Args:
        if_running: `stop`, or `refuse` to fail where a driver lives (and still keep the job from being
            started).
        skip_if_stopped: Skip where the job is meant to be stopped already, or was never started.
        shown: The generations that a plan was of (its XCom `planned_generations`): where another one counts
            since, the job is not stopped (`approval-outdated`).
        only_before: A task of the same run for which the job is stopped: fail where that one will not run, as
            after a person has cleared a part of the run.
        deferrable: Wait for the driver's end in the triggerer, with `poll_interval_s` between two looks.

    Returns:
        `job`, `state` (`stopped`, `already-stopped`), `how`, `drained`, `epoch`, `batch`, `savepoint`,
        `seconds`; and under the XCom key `savepoints` that of each query (`main` where there is only one).
    """

    if_running: OneOf[IfRunning] = argument("stop")
    only_if: Templated[bool] = argument(True)
    skip_if_stopped: Templated[bool] = argument(False)
    shown: Templated[Mapping[str, int] | str | None] = argument(None)
    only_before: str | None = None
    deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False)
    poll_interval_s: Seconds[float] = argument(2.0)

    def after_init(self) -> None:
        self.add_savepoint_outlet(sure=False)

    def execute(self, context: Context) -> dict[str, Any]:
        """Stop it; see the class."""
        from streambank.driver.launchers.choose import check_registered

        with airflow_failures():
            self._skip_unless_asked(context)
            self.check_deferrable()
            if self.if_running == "refuse":
                self.hook.jobs.require_stopped(self.job)
            check_registered(self.hook.declared.job(self.job))  # else nothing here could finish the stop
            asked = self.hook.jobs.ask_to_stop(
                self.job, note=self.why, by=tried_by(context), **self.values_of(StopOptions)
            )
        if self.deferrable:
            self.wait_for_end(asked, asdict(asked), "execute_complete")
        return self._finish(context, asked)

    def aftermath(self) -> str:
        """What a failure has left behind, for its alert: a job that stands still for a restore."""
        return left_stopped(self.hook, self.job) if self.only_before else ""

    def _skip_unless_asked(self, context: Context) -> None:
        if not self.only_if:
            raise AirflowSkipException(f"This run does not stop job {self.job}.")
        if self.skip_if_stopped and self.hook.jobs.is_left_stopped(self.job, by=asked_by(context)):
            raise AirflowSkipException(f"Job {self.job} is stopped already, and stays as it is.")
        self._require_what_follows(context)
        self.check_shown(context, self.shown)

    def _require_what_follows(self, context: Context) -> None:
        """Stop nothing for a task that will not run.

        Raises:
            AirflowFailException: It has ended already, or was skipped.
        """
        if self.only_before is None:
            return
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

        instance: Any = context["ti"]
        states = RuntimeTaskInstance.get_task_states(
            dag_id=instance.dag_id, task_ids=[self.only_before], run_ids=[instance.run_id]
        )
        state = states.get(instance.run_id, {}).get(self.only_before)
        if state in ENDED:
            raise AirflowFailException(
                f"Job {self.job} is not stopped, since task {self.only_before} of this run is {state} and "
                f"will not run after it. Hint: clear {self.only_before} and what follows it too, or trigger "
                f"{instance.dag_id} again."
            )

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Go on when the driver is gone, or took too long; see the class."""
        self.raise_for_error(event)
        return self._finish(context, StopAsked(**event["remember"]))

    def _finish(self, context: Context, asked: StopAsked) -> dict[str, Any]:
        """Stop it, or see that it has stopped; and tell of the savepoints."""
        from streambank.job.stop import HOW

        with airflow_failures():
            how = {"note": self.why, "by": asked_by(context), **self.values_of(StopOptions)}
            result = self.hook.jobs.stop(self.job, asked=asked, **how)
            for query, taken in result.savepoints.items():
                name = str(QueryRef.of(self.job, query))
                event = {"savepoint": taken, "job": name, "batch": result.batches[query]}
                self.tell_savepoint(context, event)
        self.log.info(
            "Job %s %s: %s; batch %s, after %s.",
            self.job,
            "was stopped already" if result.state == "already-stopped" else "has stopped",
            HOW[result.how],
            "none" if result.batch is None else result.batch,
            say_duration(result.seconds),
        )
        for query, taken in result.savepoints.items():
            self.log.info("Savepoint %s of query %s holds batch %s.", taken, query, result.batches[query])
        for warning in result.warnings:
            self.log.warning("%s", in_words(warning))
        if result.savepoints:
            self.leave(context, {SAVEPOINTS_KEY: dict(result.savepoints)})
        return flat(result.to_dict()) | (
            {"savepoint": " ".join(result.savepoints.values())} if result.savepoints else {}
        )


class RestartStreamingJobOperator(StartStreamingJobOperator, RestartArguments):
    """Stops a job at a batch boundary and starts it again, in one operation.

    The job is meant to run all the while, so a task that ends in the middle leaves nothing stopped that runs
    under `<job>.run`. A job that somebody has stopped stays stopped: the task is skipped. The driver that
    ran when the task asked first is the one to be replaced; another try of the task never stops the one that
    has replaced it, and a task that a person clears restarts the job again.

    Returns:
        As a start, with `state` (`restarted`; `started` where no driver lived; `finished`), `stopped_epoch`
        and `how` the old driver ended (`boundary`, `forced`, `killed`, `dead`, `none`).
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Restart it; see the class."""
        with airflow_failures():
            if not self.only_if:
                raise AirflowSkipException(f"This run does not restart job {self.job}.")
            self.check_deferrable()
            if self.fresh_start:
                raise InputError(
                    "A restart keeps the job's records: fresh_start is not allowed.",
                    code="bad-option",
                    hint="Use fresh_start with a start instead.",
                )
            asked = None
            if self.deferrable:
                self.begins(restart=True)
                asked = self.hook.jobs.ask_to_restart(self.job, **self._how(context))
        if asked is not None:
            self.wait_for_end(asked.stop, asked.to_dict(), "start_again", restarts=True, stop_by=self.stop_by)
        return self._go_on(context, asked)

    @property
    def is_patient(self) -> bool:
        """Never: what a start would lack is refused before the old driver is stopped."""
        return False

    def _how(self, context: Context) -> dict[str, Any]:
        return {"note": self.why, "by": tried_by(context), **self.values_of(RestartOptions)}

    def start_again(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Go on when the old driver is gone, or took too long; see the class."""
        from streambank.job.restart import RestartAsked

        self.raise_for_error(event)
        return self._go_on(context, decode(RestartAsked, event["remember"], "request"))

    def _go_on(self, context: Context, asked: RestartAsked | None) -> dict[str, Any]:
        """See that the old driver is gone, and start the new one."""
        with airflow_failures():
            result = self._restart(context, asked)
            told = {"state": result.state, "stopped_epoch": result.stopped_epoch, "how": result.how}
            if not self._defers or result.state in ("finished", "not-desired"):
                # By the start alone its driver was running already.
                return self._done(result.start, "started" if result.state == "restarted" else None) | told
            timeout_s = self.hook.declared.job(self.job).start.timeout_s
        self._defer(result.start, utc_now() + timedelta(seconds=timeout_s), told=told)

    def _restart(self, context: Context, asked: RestartAsked | None) -> RestartResult:
        self.begins(restart=True)
        try:
            how = {**self._how(context), "wait": self._waits_here}
            args = self.application_args
            result = self.hook.jobs.restart(self.job, asked=asked, application_args=args, **how)
        except Exception:
            self.show_driver_failure()
            raise
        self.begins()
        self.link_to(context, result.start)
        return result

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Go on when the new driver works, or is gone; see `StartStreamingJobOperator`."""
        return flat(super().execute_complete(context, event) | event["remember"]["told"])
