"""The command line of `run_query.py`, and the launch spec that it stands for.

spark-submit run_query.py --launch CONTROL/JOB/launches/ID.json       as the launcher writes it
spark-submit run_query.py --job NAME [--jobs FILE] -- app.py ARGS     by hand, or from another scheduler
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace

from streambank.control.processes import who
from streambank.core.errors import InputError
from streambank.declaration.declaration import Job, load_jobs
from streambank.driver.prepare import prepare_launch
from streambank.driver.spec import LaunchSpec, decode_launch, write_launch
from streambank.storage import open_store


def parse(argv: Sequence[str]) -> LaunchSpec:
    """The launch spec that the arguments name, or that is made (and kept among the job's records) from them.

    Raises:
        InputError: The arguments are wrong (code `bad-arguments`).
        NotFoundError: There is no such launch spec or job.
    """
    parser = _Parser(prog="run_query.py", description="Run a streaming application as a declared job.")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--launch", help="the launch spec, a path or a URI")
    which.add_argument("--job", help="name of a declared job")
    parser.add_argument("--jobs", help="the file that declares it (default: STREAMBANK_JOBS)")
    parser.add_argument("application", nargs="?", help="the application (default: the declared one)")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="its arguments (default: the declared ones)")
    # Everything behind `--` belongs to the application, whatever it looks like.
    at = argv.index("--") if "--" in argv else len(argv)
    arguments = parser.parse_args(argv[:at])
    command = [*([arguments.application] if arguments.application else []), *arguments.args, *argv[at + 1 :]]
    if arguments.launch is not None:
        if command:
            raise InputError(
                "--launch names the application itself.",
                code="bad-arguments",
                hint="Leave out what comes after it.",
            )
        return _read(arguments.launch)
    jobs = arguments.jobs or os.environ.get("STREAMBANK_JOBS")
    if not jobs:
        raise InputError(
            "No jobs file is known.", code="bad-arguments", hint="Give --jobs FILE, or set STREAMBANK_JOBS."
        )
    return _launch(load_jobs(jobs).job(arguments.job), command)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]  # it raises, so it does not return either
        raise InputError(
            f"The arguments of run_query.py are wrong: {message}.",
            code="bad-arguments",
            hint="Write run_query.py --job NAME [--jobs FILE] [-- app.py ARGS], or --launch SPEC.",
        )


def _read(location: str) -> LaunchSpec:
    folder, _, name = location.rpartition("/")
    return decode_launch(open_store(folder or ".").read(name), location)


def _launch(job: Job, command: Sequence[str]) -> LaunchSpec:
    control = job.records()
    application, args = (command[0], command[1:]) if command else (None, None)
    spec = prepare_launch(job, control, by=who("spark-submit"), application=application, args=args)
    # Whoever asks runs spark-submit in client mode, whatever is declared for drivers that are started.
    spec = replace(spec, deploy_mode="client", supervised=False)
    write_launch(control, spec)
    return spec
