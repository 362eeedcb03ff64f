"""The link from a task to the log of the driver that it started or watches.

A driver in a cluster has a page there, to which the link leads. Any other writes on the machine that runs it,
so a browser has no URL for its file, and serving files from the API server would need a route of its own. The
tasks therefore copy the driver's last lines into their own log, which Airflow shows to those who may read it
and to nobody else; the link leads there, and the lines name the whole file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink
from airflow.sdk.execution_time.xcom import XCom

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context
    from airflow.sdk.types import TaskInstanceKey

DRIVER_LOG_KEY = "streambank_driver_log_link"
"""XCom key under which a task leaves the URL; the API server reads it from there."""


class DriverLogLink(BaseOperatorLink):
    """Leads to the driver's page in its cluster, or to the task log that holds its last lines."""

    name = "Driver log"

    @property
    def xcom_key(self) -> str:
        """Where the URL is kept."""
        return DRIVER_LOG_KEY

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """The URL, or an empty string (no button) where the task has not said one yet.

        Airflow asks at the end of each task too, with the running task for a key: that knows its own, and
        its operator the page of the driver that it has started.
        """
        if (page := getattr(operator, "driver_page", None)) is not None:
            return str(page)
        return getattr(ti_key, "log_url", None) or XCom.get_value(ti_key=ti_key, key=self.xcom_key) or ""


def persist_driver_log_link(context: Context) -> None:
    """Leave the URL of the running task's log for the link.

    Args:
        context: Of the task whose log will hold the driver's lines.
    """
    task_instance: Any = context["ti"]
    task_instance.xcom_push(key=DRIVER_LOG_KEY, value=task_instance.log_url)


def persist_driver_page(context: Context, page: str) -> None:
    """Leave the URL of a driver's page for the link, in place of the task's log.

    Args:
        context: Of the task that has started or found the driver.
        page: The URL.
    """
    task_instance: Any = context["ti"]
    task_instance.xcom_push(key=DRIVER_LOG_KEY, value=page)
