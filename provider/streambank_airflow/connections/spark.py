"""Work on savepoints and their state by Spark, submitted by the Spark provider's hook and its connection.

The Spark face does the rest, and is imported only when there is work for it: a DAG parse pays for neither.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException

from streambank.core.errors import check_choice
from streambank.driver.environment import OWN_PROGRAMS, driver_environment
from streambank.driver.installed import Installation, find_installation
from streambank.work.executor import BySize, Threads

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    from streambank.work.executor import Executor
from streambank_airflow.connections.spark_connection import spark_home_of

SPARK = "streambank_spark.submit.executor"
REWRITE = "streambank_spark.submit.state_change"
OUTPUT = "the log of this task"

CHOICES = ("auto", "spark")


@dataclass(frozen=True, slots=True)
class SparkChoice:
    """Where an operator's work may go.

    Attributes:
        conn_id: The Spark provider's connection; None for this worker alone.
        properties: A file of Spark properties on the worker, for what is secret.
        on: `auto` where there is much to do, `spark` always.
    """

    conn_id: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    properties: str | None = None
    on: str = "auto"

    def executor(self, say: Callable[[str], None], own: Callable[[], Installation | None]) -> Executor | None:
        """Who does the work; None for threads of this process.

        Args:
            say: Told where Spark's output goes.
            own: Finds the Spark that the job runs on, for where the connection names none and none is
                installed; None where it has none.

        Raises:
            InputError: `on` is none of its choices (code `bad-choice`).
        """
        check_choice(self.on, "on", CHOICES)
        if not self.conn_id:
            return None
        spark: Executor = importlib.import_module(SPARK).SparkExecutor(
            f"connection {self.conn_id}",
            conf=dict(self.conf),
            properties=Path(self.properties) if self.properties else None,
            say=say,
            installation=partial(_named, self.conn_id),
            own=own,
            submit=partial(submitted, self.conn_id),
            output=OUTPUT,
        )
        return spark if self.on == "spark" else BySize(Threads(), spark)

    def rewrite(
        self,
        plan: Mapping[str, Any],
        *,
        installation: Installation,
        master: str,
        conf: Mapping[str, str],
        say: Callable[[str], None],
    ) -> dict[str, Any]:
        """Carry out an order on a savepoint's state: by the connection's Spark, or the master that is named.

        Args:
            plan: As `streambank_spark.submit.state_change.submit_rewrite` takes it.
            master: Spark's master where there is no connection.
            conf: Spark's settings, under those of the operator.
            say: Told what is being done, and where Spark's output goes.
        """
        options: dict[str, Any] = {
            "conf": {**conf, **self.conf},
            "properties": Path(self.properties) if self.properties else None,
            "say": say,
            "installation": lambda: installation,
        }
        if self.conn_id:
            master = f"connection {self.conn_id}"
            options |= {"submit": partial(submitted, self.conn_id), "output": OUTPUT}
        spark = importlib.import_module(SPARK).SparkExecutor(master, **options)
        report: dict[str, Any] = importlib.import_module(REWRITE).submit_rewrite(plan, spark)
        return report


@contextmanager
def submitted(conn_id: str, submission: Any) -> Iterator[_Submitting]:
    """Submit by the Spark provider's hook; whoever leaves the `with` early ends the application.

    Args:
        conn_id: The connection; its master, queue and credentials are used, its deploy mode is not.
        submission: A `streambank_spark.submit.submission.Submission`.
    """
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    hook = SparkSubmitHook(
        conn_id=conn_id,
        name=submission.name,
        py_files=str(submission.py_files),
        archives=submission.archives,
        properties_file=str(submission.properties),
        application_args=list(submission.arguments),
        # The one that is installed, not the first on a PATH that a worker may not have.
        spark_binary=str(submission.installation.spark_submit),
        deploy_mode="client",
    )
    running = _Submitting(hook, submission)
    running.start()
    try:
        yield running
    finally:
        if running.is_alive():
            hook.on_kill()
        running.join()
        process: subprocess.Popen[str] | None = getattr(hook, "_submit_sp", None)
        if process is not None and process.stdout is not None:
            process.stdout.close()  # the hook leaves that to the garbage collector


class _Submitting(threading.Thread):
    """The hook's `submit`, which returns when the application has ended."""

    def __init__(self, hook: SparkSubmitHook, submission: Any) -> None:
        super().__init__(name="streambank-submit", daemon=True)
        self._hook = hook
        self._submission = submission
        self._exit_code = 0

    def run(self) -> None:
        environment = driver_environment(
            os.environ, extra=OWN_PROGRAMS, settings=self._submission.environment
        )
        try:
            self._hook.submit(str(self._submission.entry), env=environment, start_new_session=True)
        except AirflowException as error:
            # The report tells what was done; what Spark said is in the log, line by line.
            self._hook.log.error("%s", error)
            self._exit_code = 1
        except BaseException:
            self._exit_code = 1
            raise

    def wait(self, seconds: float) -> int | None:
        """How it ended; None where it still runs after so long."""
        self.join(seconds)
        return None if self.is_alive() else self._exit_code


def _named(conn_id: str) -> Installation | None:
    """The Spark that a connection names; None where it names none."""
    from airflow.sdk import BaseHook

    connection = BaseHook.get_connection(conn_id)
    home = spark_home_of(conn_id, connection.extra_dejson)
    return None if home is None else find_installation(spark_home=home)
