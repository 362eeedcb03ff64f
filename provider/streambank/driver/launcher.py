"""What every place that runs drivers can do: submit one, say whether it is there, end it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from streambank.control.control import JobControl
from streambank.control.processes import ProcessId
from streambank.core.errors import StorageError
from streambank.declaration.declaration import Job
from streambank.driver.application import check_is_pyspark
from streambank.driver.spec import LaunchSpec

NOT_ITS_DRIVER = "not-its-driver"
"""The code of the error where what a record names is not the driver of its launch."""


@dataclass(frozen=True, slots=True)
class Handle:
    """A driver that was submitted.

    Attributes:
        log: Its log, where it has one that can be read from here: a path, or a web address.
        submission: What the cluster calls it: `driver-...`, `application_...`, `namespace:pod`; None for a
            driver on this machine.
        job: The job whose records name it: its cluster has to say the same of it. None where the cluster
            itself was asked for the drivers of a job.
    """

    launch_id: str
    processes: tuple[ProcessId, ...]
    log: str | None
    submission: str | None = None
    tracking: str | None = None
    job: str | None = field(default=None, compare=False)


def not_its_driver(handle: Handle, why: str) -> StorageError:
    """The error where a record's driver is not seen to be its launch's; why is half a sentence."""
    return StorageError(
        f"{handle.submission!r} is not seen to be the driver of {handle.launch_id!r}: {why}. It is not "
        "ended, and its log is not read.",
        code=NOT_ITS_DRIVER,
        hint="Look at it in its cluster, and at who can write among the job's records. If it is the driver, "
        "end it there by hand.",
    )


@dataclass(frozen=True, slots=True)
class DriverState:
    """Whether a submitted driver still is there.

    Attributes:
        exit_code: Its exit code, where this process is the one that learns it; -n for signal n. What a
            cluster says is no exit code: a driver that ended with 0 after a query had failed reads FINISHED.
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
    """A place where drivers run.

    A handle may come from the job's records, and who can write there could name anything as its submission.
    So `status`, `log_lines` and `kill` ask the place whether that is the driver of the launch.
    """

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
        """

    def submit(self, job: Job, control: JobControl, spec: LaunchSpec) -> Handle:
        """Start a driver; returns as soon as whoever runs it has accepted it.

        Raises:
            InputError: Something that it needs is not installed.
            StorageError: It could not be started; or whether it was is not known (code `submit-unanswered`).
        """

    def find(self, control: JobControl) -> list[Handle]:
        """Drivers of the job that exist, the ones that do not hold the lease (yet) included."""

    def status(self, handle: Handle) -> DriverState:
        """Whether a driver still is there.

        Raises:
            StorageError: The cluster cannot be asked; or says that this is not the driver of the launch (code
                `not-its-driver`).
        """

    def log_lines(self, handle: Handle, count: int) -> list[str]:
        """The last lines of its log; where a cluster does not give them, a line that says why."""

    def kill(self, handle: Handle) -> None:
        """End all of its processes at once, and see to it that nobody brings them back.

        Raises:
            StorageError: The cluster cannot be asked; or does not say that this is the driver of the launch
                (code `not-its-driver`).
        """


class ClusterLauncher:
    """What launchers have in common whose cluster keeps the logs of its drivers."""

    def log_path(self, control: JobControl, launch_id: str) -> None:
        """See `Launcher.log_path`: the cluster keeps it."""

    def check(self, job: Job) -> str | None:
        """See `Launcher.check`. Which Spark a cluster has is not known here: the runner checks it there."""
        check_is_pyspark(job.application)
        return None

    def log_lines(self, handle: Handle, count: int) -> list[str]:
        """See `Launcher.log_lines`."""
        if handle.submission is None:
            return []
        try:
            return self._read_log(handle, handle.submission, count)
        except StorageError as error:
            return [f"(The driver's log cannot be read: {error.message})"]

    def _read_log(self, handle: Handle, submission: str, count: int) -> list[str]:
        raise NotImplementedError
