"""What every place that runs drivers can do: submit one, say whether it is there, end it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from streambank.control.control import JobControl
from streambank.control.processes import ProcessId
from streambank.declaration.declaration import Job
from streambank.driver.spec import LaunchSpec


@dataclass(frozen=True, slots=True)
class Handle:
    """A driver that was submitted.

    Attributes:
        launch_id: Its launch.
        processes: The processes that are known of it.
        log: Its log, where it has one that can be read from here: a path, or a web address.
        submission: What the cluster calls it: `driver-...`, `application_...`, `namespace:pod`; None for a
            driver on this machine.
        tracking: A web page about it.
    """

    launch_id: str
    processes: tuple[ProcessId, ...]
    log: str | None
    submission: str | None = None
    tracking: str | None = None


@dataclass(frozen=True, slots=True)
class DriverState:
    """Whether a submitted driver still is there.

    Attributes:
        state: `running`, or `ended`.
        exit_code: Its exit code, where this process is the one that learns it; -n for signal n. What a
            cluster says is no exit code: a driver that ended with 0 after a query had failed reads FINISHED.
        log: Where its log can be read now.
        tracking: A web page about it.
        why: What a cluster says about it, in its own words.
        submission: What its cluster calls it now, where it has given it another name.
    """

    state: Literal["running", "ended"]
    exit_code: int | None = None
    log: str | None = None
    tracking: str | None = None
    why: str | None = None
    submission: str | None = None


class Launcher(Protocol):
    """A place where drivers run."""

    def log_path(self, control: JobControl, launch_id: str) -> str | None:
        """Where the log of a driver will be; None where nobody collects it as a file."""

    def check(self, job: Job) -> str | None:
        """Refuse a job that cannot be launched, before anything of a launch is recorded.

        Returns:
            The version of the Spark that its driver gets; None where that is not known here.

        Raises:
            FormatError: Its Spark is one that the runner does not support (code `spark-not-supported`).
            InputError: Its application is not a PySpark program; or something that it needs is not installed.
            NotFoundError: Its application is not there.
            StorageError: Its interpreter does not run.
        """

    def submit(self, job: Job, control: JobControl, spec: LaunchSpec) -> Handle:
        """Start a driver; returns as soon as whoever runs it has accepted it.

        Raises:
            InputError: Something that it needs is not installed.
            StorageError: It could not be started; or whether it was is not known (code `submit-unanswered`).
        """

    def find(self, control: JobControl) -> list[Handle]:
        """Drivers of the job that exist, the ones that do not hold the lease (yet) included.

        Raises:
            StorageError: The cluster cannot be asked.
        """

    def status(self, handle: Handle) -> DriverState:
        """Whether a driver still is there.

        Raises:
            StorageError: The cluster cannot be asked.
        """

    def log_lines(self, handle: Handle, count: int) -> list[str]:
        """The last lines of its log; where a cluster does not give them, a line that says why."""

    def kill(self, handle: Handle) -> None:
        """End all of its processes at once, and see to it that nobody brings them back.

        Raises:
            StorageError: The cluster cannot be asked.
        """
