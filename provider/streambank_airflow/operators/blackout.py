"""The task that ends a scheduled run in a window in which nothing is to be done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pendulum
from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import BaseOperator

from streambank.core.errors import InputError
from streambank.core.options import as_texts
from streambank.core.units import utc_now
from streambank.core.zones import check_time_zone
from streambank.declaration.savepoints import Blackout, parse_blackout
from streambank_airflow.failures import airflow_failures
from streambank_airflow.operators.base import by_schedule

if TYPE_CHECKING:
    from airflow.sdk import Context


class SkipInBlackoutOperator(BaseOperator):
    """Skips what comes after it where a scheduled run begins within a blackout window; others go on.

    What counts is the moment at which the task works, so that a run that was late does not begin its work in
    the window all the same.

    Args:
        windows: Windows of the day such as `22:00-06:00`.
        time_zone: By whose clocks, such as `Europe/Berlin`.
    """

    template_fields: Sequence[str] = ("windows", "time_zone")
    ui_color = "#d6e8ee"

    def __init__(self, *, windows: Sequence[str], time_zone: str = "UTC", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.windows: Any = windows
        self.time_zone = time_zone

    def execute(self, context: Context) -> None:
        """Skip, or do nothing; see the class."""
        if not by_schedule(context):
            self.log.info("A person or another DAG asked for this run, so blackout windows do not apply.")
            return
        with airflow_failures():
            check_time_zone(self.time_zone)
        now = pendulum.instance(utc_now()).in_timezone(self.time_zone)
        for text in self._texts():
            if _window(text).holds(now.time()):
                raise AirflowSkipException(
                    f"It is {now.format('HH:mm')} in {self.time_zone}, within the blackout {text}: no "
                    "scheduled savepoint is taken. Trigger the DAG by hand to take one anyway."
                )

    def _texts(self) -> list[str]:
        """The windows; where a template gave none, nothing would be kept from running in them."""
        texts = as_texts(self.windows)
        with airflow_failures():
            if not texts:
                raise InputError(
                    f"windows of task {self.task_id} is {self.windows!r}, which names no blackout window.",
                    code="bad-option",
                    hint="Name one, such as 22:00-06:00; or leave the task out of the DAG.",
                )
        return texts


def _window(text: str) -> Blackout:
    with airflow_failures():
        window = parse_blackout(text)
        if window is None:
            raise InputError(
                f"{text!r} is not a daily window such as 22:00-06:00.",
                code="bad-option",
                hint="Write two times from 00:00 to 24:00; the second is not included.",
            )
    return window
