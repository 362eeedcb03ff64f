"""Work on savepoints and their state by Spark, submitted by the Spark provider's hook and its connection.

The Spark face does the rest, and is imported only when there is work for it: a DAG parse pays for neither.

Where a job's driver runs, as a connection of Airflow's Spark provider says it.

What the job declares wins over the connection. Its `spark-binary`, where that is not the usual one, says
which Spark a job runs on that names none, and which one submits work for executors. A keytab in the
connection (Base64) is refused, for a driver that runs for months needs a file that stays: declare its path.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from airflow.providers.common.compat.sdk import AirflowException

from streambank.core.errors import InputError, check_choice
from streambank.declaration.declaration import Job
from streambank.declaration.launch import LaunchPolicy, place_of, settle
from streambank.driver.environment import OWN_PROGRAMS, driver_environment
from streambank.driver.installed import Installation, find_installation
from streambank.work.executor import BySize, Threads

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    from streambank.work.executor import Executor

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
        """Submit, and wait."""
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


def spark_home_of(conn_id: str, extra: Mapping[str, Any]) -> str | None:
    """The distribution whose spark-submit a connection names in its `spark-binary`; None where it names none.

    The form fills in `spark-submit` by itself: that is the installed Spark. Where the name leads to no
    distribution, what is given says so and is no path: only a start refuses it, by this text. A wrapper
    script outside of a distribution, as some Hadoop distributions have it, is such a name.
    """
    name = extra.get("spark-binary") or BINARIES[0]
    if name == BINARIES[0]:
        return None
    path = shutil.which(name) if name in BINARIES else None
    home = None if path is None else Path(path).resolve().parent.parent
    if home is not None and (home / "bin" / "spark-submit").is_file() and (home / "jars").is_dir():
        return str(home)
    return f"spark-binary {name!r} of the connection {conn_id}"


BINARIES = ("spark-submit", "spark2-submit", "spark3-submit")
"""What the Spark provider takes as `spark-binary` (SparkSubmitHook)."""
_FIELDS: Mapping[str, str] = {
    "deploy_mode": "deploy-mode",
    "queue": "queue",
    "principal": "principal",
    "namespace": "namespace",
}
"""Fields of the declaration, each with the name that the connection's extra has for it."""
_REST_PORT = 6066


class SparkConnection(Protocol):
    """What is read of a connection."""

    conn_id: str
    conn_type: str
    host: str | None
    port: int | None

    @property
    def extra_dejson(self) -> dict[str, Any]:
        """Its extra."""


def with_connection(job: Job, connection: SparkConnection) -> LaunchPolicy:
    """The policy of a job, with what its connection says where the job declares nothing.

    Raises:
        InputError: The connection says something that cannot be (code `bad-connection`).
    """
    declared = job.launch.declared
    extra = connection.extra_dejson

    def wrong(name: str, what: str, hint: str) -> InputError:
        return InputError(
            f"The connection {connection.conn_id} does not suit job {job.name}: "
            f"{_FIELDS.get(name, name)}: {what}.",
            code="bad-connection",
            hint=hint,
        )

    said: dict[str, Any] = {"master": _master(connection)}
    for known, name in _FIELDS.items():
        value = extra.get(name)
        if value is not None and not isinstance(value, str):
            raise wrong(known, "it must be text", "Write it in quotation marks in the connection's extra.")
        said[known] = value or None
    if said["deploy_mode"] not in (None, "client", "cluster"):
        raise wrong(
            "deploy_mode", f"{said['deploy_mode']!r} is not one of its values", "One of: client, cluster."
        )
    if extra.get("keytab") and not declared.get("keytab"):
        raise wrong(
            "keytab", "a keytab in a connection is not used", "Declare launch.keytab, the path of a file."
        )
    place = place_of(said["master"])
    said["rest"] = _rest(said["master"], extra) if place == "standalone" else None
    if declared.get("on") or declared.get("master"):
        # The job says itself where it runs: what belongs to another place does not count.
        said["master"] = declared.get("master") or said["master"]
    # Of the connection only what belongs to the place counts: `namespace` is often filled in everywhere.
    values = {name: one for name, one in {**said, **declared}.items() if one is not None}
    policy = settle(job.name, values, job.spark, wrong, inherited=set(said) - set(declared))
    return replace(policy, spark_home=spark_home_of(connection.conn_id, extra))


def _master(connection: SparkConnection) -> str:
    """As the Spark provider's own hook makes it of a connection (SparkSubmitHook._resolve_connection)."""
    host = connection.host or ""
    if connection.conn_type == "spark" and host and ("://" in host or not connection.port):
        master = host
    else:
        master = f"{connection.conn_type}://{host}"
    return f"{master}:{connection.port}" if connection.port else master


def _rest(master: str, extra: Mapping[str, Any]) -> str | None:
    """The address of the master's REST server, where the connection says something about it."""
    if not extra.get("rest-port") and not extra.get("rest-scheme"):
        return None
    scheme, port = extra.get("rest-scheme") or "http", extra.get("rest-port") or _REST_PORT
    hosts = master.removeprefix("spark://").split(",")
    return ",".join(f"{scheme}://{host.rpartition(':')[0] or host}:{port}" for host in hosts)
