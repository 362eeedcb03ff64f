"""What the operators on a driver share: its log, and what its end means to a task.

A driver in a cluster has a page there, to which the task's link leads. Any other writes on the machine that
runs it, so a browser has no URL for its file, and serving files from the API server would need a route of its
own: there is no link. A task whose driver failed copies the exception into its own log, which Airflow shows
to those who may read it and to nobody else, and names the whole file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn, Self, cast

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from airflow.sdk import BaseOperatorLink
from airflow.sdk.execution_time.xcom import XCom

from streambank.control.processes import who
from streambank.core.errors import (
    FormatError,
    InputError,
    IntegrityError,
    NotFoundError,
    RefusedError,
    StorageError,
    StreambankError,
)
from streambank.core.shape import JsonObject, decode
from streambank.core.units import from_json_time, to_json_time, utc_now
from streambank.driver.failure import shown
from streambank_airflow.arguments import Templated, argument
from streambank_airflow.failures import describe, engine_error, said
from streambank_airflow.hints import hint_for
from streambank_airflow.operators.base import StreambankOperator, asked_by

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import TaskInstanceKey
    from airflow.sdk import BaseOperator, Context

    from streambank.job.start import StartResult
    from streambank.job.stop_request import StopAsked

DRIVER_LOG_KEY = "streambank_driver_log_link"
"""XCom key under which a task leaves the URL; the API server reads it from there."""


class DriverLogLink(BaseOperatorLink):
    """Leads to the driver's page in its cluster; there is no button for a driver without one."""

    name = "Driver log"

    @property
    def xcom_key(self) -> str:
        """Where the URL is kept."""
        return DRIVER_LOG_KEY

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """The URL, or an empty string (no button) where the driver has no page.

        Airflow asks at the end of each task, too, and keeps the answer. A task that was deferred has left the
        page before.
        """
        page = getattr(operator, "driver_page", None)
        return str(page or XCom.get_value(ti_key=ti_key, key=self.xcom_key) or "")


HOPELESS = frozenset(
    kind.exit_code for kind in (InputError, NotFoundError, FormatError, IntegrityError, RefusedError)
)
"""Exit codes of a driver that another start would end with as well."""

UNSTARTABLE = frozenset({"checkpoint-damaged", "state-not-loadable"})
"""Codes of a checkpoint on which no further start succeeds."""

FIRST_WAIT_S, LONGEST_WAIT_S = 15.0, 60.0
"""How long is waited after a start that came to no driver: twice as long each time, up to the longest."""
ALERTED_AGAIN = timedelta(hours=1)
"""After how long it is alerted again that the job still cannot be started."""
DIED = frozenset({"driver-died", "start-timeout"})
"""Codes of a start for which a driver was launched; with any other one there is none to blame."""
CANNOT_START = "cannot-start"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits(JsonObject):
    """What is remembered of starts that came to no driver.

    Attributes:
        waits: How many in a row, since the last driver that committed a batch.
        alerted: When that was alerted last, ISO-8601; None where it was not.
    """

    waits: int = 0
    alerted: str | None = None

    @property
    def pause_s(self) -> float:
        """How long to wait now."""
        return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(self.waits, 60))

    @property
    def is_alerted(self) -> bool:
        """Whether it was alerted of late that the job cannot be started."""
        return self.alerted is not None and utc_now() - from_json_time(self.alerted) < ALERTED_AGAIN

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """From what `to_dict` gave, now or in an earlier version; what else is there is left aside."""
        return decode(cls, data, "memory of a task")


class DriverOperator(StreambankOperator):
    """What the operators on a driver share."""

    operator_extra_links = (DriverLogLink(),)
    driver_page = cast("str | None", None)  # annotated, it would be an argument
    """The page, in its cluster, of the driver that this task has started or found; None for none."""

    @property
    def is_patient(self) -> bool:
        """Whether it waits for what a start lacks."""
        return True

    @contextmanager
    def waiting_for_storage(self, context: Context, known: Waits) -> Iterator[None]:
        """Do a block that starts the job; wait where a disk, a storage or a cluster keeps it from that."""
        try:
            yield
        except (AirflowException, StorageError) as error:
            cause = None if isinstance(error, AirflowFailException) else engine_error(error)
            if self.is_patient and isinstance(cause, StorageError) and cause.code not in DIED:
                self.wait_for_storage(context, said(cause), known)
            raise

    def wait_for_storage(self, context: Context, why: str, known: Waits) -> NoReturn:
        """Wait for what a start lacks, and try again with `start_again`, for as long as it takes."""
        message = (
            f"Job {self.job} cannot be started, or looked after, now: {why} It is tried again at least once "
            "a minute: when that is repaired, the job goes on by itself."
        )
        self.log.warning("%s", message)
        until = utc_now() + timedelta(seconds=known.pause_s)
        known = replace(known, waits=known.waits + 1)
        # Whoever is woken when a job is given up is woken for this, too: it is what was given up before.
        if not known.is_alerted and self.send_alert(context, message, CANNOT_START, "giving-up"):
            known = replace(known, alerted=to_json_time(utc_now()))
        self.pause(until, known.to_dict(), "start_again")  # always in the triggerer: it may take days

    def pause(self, until: datetime, remember: Mapping[str, Any], then: str) -> NoReturn:
        """Pause in the triggerer, and go on with the method `then`."""
        from streambank_airflow.triggers.job import PauseTrigger

        trigger = PauseTrigger(until=to_json_time(until), remember=remember)
        self.defer(trigger=trigger, method_name=then)

    def wait_for_end(self, asked: StopAsked, remember: Mapping[str, Any], then: str, **how: Any) -> None:
        """Wait in the triggerer for a driver that was asked to stop, if there is one; go on with `then`.

        Args:
            how: What else the trigger has to know.
        """
        from streambank_airflow.triggers.job import DriverGoneTrigger

        if asked.epoch is None:
            return
        give_up_at = to_json_time(from_json_time(asked.at) + timedelta(seconds=asked.patience_s))
        trigger = DriverGoneTrigger(
            **self.trigger_arguments, epoch=asked.epoch, give_up_at=give_up_at, remember=remember, **how
        )
        self.defer(trigger=trigger, method_name=then)

    def died_for_room(self) -> bool:
        """Whether a full disk has ended the newest driver."""
        failure = self.hook.jobs.driver_log(self.job).failure
        return failure is not None and failure.is_for_room

    def send_alert(self, context: Context, message: str, *kinds: str, subject: str = "") -> int:
        """Alert whom the job names for any of these kinds, the most special first; how many were sent."""
        from streambank_airflow.notify.alerts import Alert, send_alert

        return send_alert(self.hook, self.job, Alert(kinds, message, subject=subject), {**context})

    def link_to(self, context: Context, result: StartResult) -> None:
        """Let the task's link lead to the driver's page, where it has one."""
        if result.tracking is not None:
            self.driver_page = result.tracking
            self.leave(context, {DRIVER_LOG_KEY: result.tracking})

    def show_driver_failure(self) -> str:
        """Copy into this task's log what ended the driver, or keeps it: the cause, then its exception.

        Where no exception is in the driver's log, its last lines are copied.

        Returns:
            The cause, to be put behind how it ended: `: ...`; empty where none is known.
        """
        found = self.hook.jobs.driver_log(self.job)
        if found.failure is not None and found.failure.lines:
            self.log.error("The driver failed: %s", self.in_words(found.failure.sentence))
        for line in (found.failure.lines if found.failure else ()) or found.lines:
            self.log.info("driver | %s", shown(line))
        if found.where is not None:
            self.log.info("The driver's whole log: %s", found.where)
        if found.failure is None or not found.failure.known:
            return ""
        return f": {self.in_words(found.failure.sentence).rstrip('.')}"

    def raise_gone(self, what: str, event: dict[str, Any], cause: str = "") -> NoReturn:
        """End the task because the driver is gone.

        Args:
            what: What happened, as the beginning of a sentence.
            cause: What `show_driver_failure` gave.

        Raises:
            AirflowFailException: It gave up with an exit code that says so: starting it again would not help.
        """
        kind = AirflowFailException if event["exit_code"] in HOPELESS else AirflowException
        found = self.hook.jobs.driver_log(self.job).failure
        if found is not None and found.hint:
            hint = hint_for("driver-refused", found.hint, self.job.partition("/")[0])
            raise kind(f"{what}: {self.in_words(found.sentence)} Hint: {hint}")
        why = self.in_words(event["why"])
        raise kind(f"{what}: {why}{cause}. Hint: the end of the driver's log is above.")

    def raise_hopeless(self, context: Context) -> None:
        """End the task for good where its driver has died in a way that another start would repeat.

        That is so where the checkpoint cannot be loaded, and where the driver that this run launched before
        died by the same error, with no batch in between.

        Raises:
            AirflowFailException: It is so; the message names the way out.
        """
        by = asked_by(context)
        try:
            why = self.hook.health.hopeless_death(self.job)
            if why is None and (error := self.hook.health.died_alike(self.job, by=by)) is not None:
                why = f"two drivers in a row died before their first batch by the same error: {error}"
                why = self.hook.health.give_up(self.job, why=why, by=by, failures=2, restarts=1)
        except StreambankError as error:
            self.log.warning("It is not known whether a retry can help: %s", describe(error))
            return
        if why is not None:
            raise AirflowFailException(self.in_words(why))


class LaunchesDriver(DriverOperator):
    """An operator that launches a driver, which outlives the task.

    Args:
        stop_on_kill: Ask the job to stop at a batch boundary where the task is ended from outside once it has
            begun to start the job: marked as failed or successful, cleared, out of its `execution_timeout`,
            or its worker is shut down. Without it the stream runs on then. While the task is deferred that
            takes Airflow 3.3, and marking or clearing.
    """

    stop_on_kill: Templated[bool] = argument(False)
    _by = cast("dict[str, str] | None", None)
    left = cast("str | None", None)
    """What is said of the job where the task is ended now; None as long as it has not begun to start it."""

    def pre_execute(self, context: Any) -> None:
        """Note who asks: whoever ends the task is not told."""
        self._by = asked_by(context)

    @property
    def stop_by(self) -> dict[str, str] | None:
        """By whom the job is asked to stop where the task is ended; None for not at all."""
        return (self._by or who("airflow", dag_id=self.dag_id)) if self.stop_on_kill is True else None

    def on_kill(self) -> None:
        """Leave the stream, or ask it to stop, and say so; Airflow ends this process 5 seconds later."""
        from streambank_airflow.triggers.job import NOT_BEGUN, leave_or_stop

        by = None if self.left is None else self.stop_by
        leave_or_stop(self.hook, self.job, by, self.log, self.left or NOT_BEGUN)

    def resume_execution(self, *args: Any, **kwargs: Any) -> Any:
        """Go on; the driver was launched, or found, before the task has deferred."""
        self.begins()
        return super().resume_execution(*args, **kwargs)

    def begins(self, *, restart: bool = False) -> None:
        """Note that the task starts the job from now on, or stops it first."""
        from streambank_airflow.triggers.job import BETWEEN, RUNS_ON

        self.left = BETWEEN if restart else RUNS_ON
