"""Streambank's drivers on another machine, which is reached by ssh: an example of a launcher of one's own."""

from __future__ import annotations

import re
import shlex
import subprocess

from streambank.control.control import JobControl
from streambank.core.errors import InputError, StorageError
from streambank.declaration.declaration import Job
from streambank.declaration.launch import LaunchPolicy
from streambank.driver.application import check_is_pyspark
from streambank.driver.bundle import program
from streambank.driver.installed import entry_path
from streambank.driver.launcher import DriverState, Handle
from streambank.driver.launchers.local import launch_arguments, launch_prefix, own_settings
from streambank.driver.spark_properties import property_lines
from streambank.driver.spec import LaunchSpec, launch_key

TIMEOUT_S = 60
ANY = "[l]aunch-[0-9a-f]{32}[.]json"  # with brackets, it does not match the command line that it stands in
LAUNCH = re.compile(r"launch-[0-9a-f]{32}")


class SshLauncher:
    """Drivers that spark-submit runs on one other machine, in client mode."""

    def __init__(self, policy: LaunchPolicy) -> None:
        told = dict(policy.settings)
        self.host = told.pop("host", "")
        self.ssh = shlex.split(told.pop("ssh", "ssh -o BatchMode=yes"))
        self.spark_submit = told.pop("spark_submit", "spark-submit")
        self.folder = told.pop("folder", ".streambank")  # relative to the home directory there
        if not self.host or self.host.startswith("-") or told:
            raise InputError(
                f"The ssh launcher needs launch.settings.host, and does not know {sorted(told)}.",
                hint="It also knows: ssh, spark_submit, folder.",
            )

    def log_path(self, control: JobControl, launch_id: str) -> None:
        """The log stays on the machine: the runner must not rotate it."""

    def check(self, job: Job) -> None:
        """Which Spark is there is not known here: the runner looks."""
        check_is_pyspark(job.application)

    def submit(self, job: Job, control: JobControl, spec: LaunchSpec) -> Handle:
        """Send the code, then start it; only the last step can leave a driver behind."""
        folder, home = shlex.quote(self.folder), shlex.quote(f"{self.folder}/{spec.launch_id}")
        # What another user has made would be theirs to exchange: code and settings lie in it.
        own = f"mkdir -p -m 700 {folder} && test -O {folder} && test ! -L {folder} && chmod 700 {folder}"
        if self.run(own)[0] != 0:
            raise StorageError(
                f"{self.folder} on {self.host} is not a folder of the user that ssh logs in as.",
                code="not-started",
                hint="Name another one in launch.settings.folder, or remove that one.",
            )
        files = {
            "streambank.zip": program(),
            "run_query.py": entry_path().read_bytes(),
            "spark.conf": property_lines(own_settings(job)).encode(),  # not arguments, which others can read
        }
        for name, data in files.items():
            if self.run(f"umask 077 && mkdir -p {home} && cat > {home}/{name}", data)[0] != 0:
                raise StorageError(f"{name} could not be sent to {self.host}.", code="not-started")
        command = ["env", f"PYSPARK_PYTHON={job.python}", self.spark_submit, "--master", job.master]
        command += ["--name", job.name, "--properties-file", "spark.conf", "--py-files", "streambank.zip"]
        command += ["run_query.py", *launch_arguments(control, spec)]
        start = f"cd {home} && setsid -f {shlex.join(command)} > driver.log 2>&1 < /dev/null"
        if self.run(start)[0] != 0:
            raise StorageError(f"{self.host} did not start the driver.", code="not-started")
        return self.handle(spec.launch_id)

    def find(self, control: JobControl) -> list[Handle]:
        """By their arguments, and only launches that the job's records know."""
        prefix = re.escape(launch_prefix(control))
        found = set(re.findall(rf" {prefix}({LAUNCH.pattern})\.json", self.processes(ANY)))
        return [self.handle(one) for one in sorted(found) if control.store.exists(launch_key(one))]

    def status(self, handle: Handle) -> DriverState:
        """Ended only if the machine has answered, and has no such process."""
        running = bool(self.processes(pattern(handle)).strip())
        return DriverState("running" if running else "ended")

    def log_lines(self, handle: Handle, count: int) -> list[str]:
        """The end of what spark-submit wrote."""
        pattern(handle)
        log = shlex.quote(f"{self.folder}/{handle.launch_id}/driver.log")
        code, said = self.run(f"tail -n {int(count)} {log}")
        return said.splitlines() if code == 0 else [f"(The log is not there: {self.host}, {log})"]

    def kill(self, handle: Handle) -> None:
        """All of its processes: the JVM, and Python, have the launch in their arguments."""
        if self.run(f"pkill -KILL -f -- {shlex.quote(pattern(handle))}")[0] > 1:
            raise StorageError(f"{self.host} could not end the driver.", code="cluster-refused")

    def handle(self, launch_id: str) -> Handle:
        """The machine calls a driver by its launch, so its name is known before it is started."""
        return Handle(launch_id, (), None, f"{self.host}:{launch_id}")

    def processes(self, pattern: str) -> str:
        """Command lines; asked three times, as a process has none while it becomes another program."""
        look = f"pgrep -af -- {shlex.quote(pattern)}"
        code, said = self.run(f"for i in 1 2 3; do {look}; test $? -le 1 || exit 9; sleep 0.1; done")
        if code != 0:
            raise StorageError(f"{self.host} does not list its processes.", code="cluster-refused")
        return said

    def run(self, command: str, data: bytes = b"") -> tuple[int, str]:
        """A command's exit code and output; ssh itself ends with 255."""
        ssh = [*self.ssh, self.host, command]
        try:
            done = subprocess.run(ssh, input=data, capture_output=True, timeout=TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise StorageError(f"{self.host} did not answer: {error}.", code="submit-unanswered") from error
        if done.returncode == 255:
            why = done.stderr.decode(errors="replace").strip()
            raise StorageError(f"{self.host} cannot be reached: {why}.", code="submit-unanswered")
        return done.returncode, done.stdout.decode(errors="replace")


def pattern(handle: Handle) -> str:
    """What finds its processes. A handle may come from a record, which may say anything."""
    if not LAUNCH.fullmatch(handle.launch_id):
        raise StorageError(f"{handle.launch_id!r} is no launch.", code="cluster-refused")
    return f"[l]{handle.launch_id[1:]}[.]json"
