"""Another host that sees the same disks: `python -m tests.nights.elsewhere JOBS_FILE JOB` in a namespace.

It starts a driver as soon as the lease lets it, and lives as long as it does. No process here is visible from
there, so one host judges the other's driver by its heartbeat alone.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

from streambank.control.processes import who
from streambank.core.errors import ConflictError, RefusedError
from streambank.declaration.load import load_jobs
from streambank.job.start import start_job

COMMAND = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, "-m", __name__)


def main(jobs_file: str, name: str) -> None:
    """Start the job, and stay until SIGKILL."""
    job = load_jobs(Path(jobs_file)).job(name)
    control = job.records()  # one observer, who sees how long the other driver's heartbeat has not changed
    while True:
        try:
            if start_job(job, by=who("elsewhere"), control=control, wait=False).state == "started":
                break
        except (ConflictError, RefusedError) as error:
            print(error.code, error.message, flush=True)
        time.sleep(1)
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
