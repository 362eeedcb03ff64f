"""From the command line of `run_query.py`, by the launch spec that it stands for, to its exit code.

spark-submit run_query.py --digest SHA256 --launch CONTROL/JOB/launches/ID.json    as the launcher writes it
spark-submit run_query.py --job NAME [--jobs FILE] -- app.py ARGS     by hand, or from another scheduler
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import replace

from streambank.code.chosen import as_chosen
from streambank.control.processes import who
from streambank.core.errors import InputError, StreambankError
from streambank.core.signing import VARIABLE
from streambank.declaration.declaration import Job
from streambank.declaration.load import read_jobs
from streambank.driver.prepare import prepare_launch
from streambank.driver.spec import LaunchSpec, decode_launch, write_launch
from streambank.storage import open_store
from streambank.storage.store import read_record
from streambank_spark.failures import say_error
from streambank_spark.runner import signals


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the arguments name; the application's exit code, or that of the error that stderr shows."""
    # Before any other thread is there, so before pyspark is imported.
    signals.block_term()
    _log_to_stderr()
    from streambank_spark.runner import entry, runner, superseded

    spec = None
    try:
        spec = entry.parse(list(sys.argv[1:] if argv is None else argv))
        return runner.run(spec)
    except StreambankError as error:
        code = say_error(error)
        if spec is None:
            return code
        try:
            return superseded.exit_code(spec, error)
        except StreambankError as later:
            return say_error(later)


def _log_to_stderr() -> None:
    """Send what the runner and the engine log to the driver's log; the application's logging is its own."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("streambank: %(message)s"))
    for name in ("streambank", "streambank_spark"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
        logger.propagate = False


def parse(argv: Sequence[str]) -> LaunchSpec:
    """The launch spec that the arguments name, or that is made (and kept among the job's records) from them.

    Raises:
        InputError: The arguments are wrong (code `bad-arguments`).
        NotFoundError: There is no such launch spec or job.
        IntegrityError: The launch spec is not the one that was launched (code `changed-launch`).
    """
    parser = _Parser(prog="run_query.py", description="Run a streaming application as a declared job.")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--launch", help="the launch spec, a path or a URI")
    which.add_argument("--job", help="name of a declared job")
    parser.add_argument("--digest", help="the digest of the launch spec, as its launcher wrote it")
    parser.add_argument("--jobs", help="the file that declares it (default: STREAMBANK_JOBS)")
    parser.add_argument("application", nargs="?", help="the application (default: the declared one)")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="its arguments (default: the declared ones)")
    # Everything behind `--` belongs to the application, whatever it looks like.
    at = argv.index("--") if "--" in argv else len(argv)
    entry = parser.parse_args(argv[:at])
    command = [*([entry.application] if entry.application else []), *entry.args, *argv[at + 1 :]]
    if entry.launch is not None:
        if command:
            raise InputError(
                "--launch already names the application.",
                code="bad-arguments",
                hint="Leave out the application and its arguments.",
            )
        return _read(entry.launch, entry.digest)
    jobs = entry.jobs or os.environ.get("STREAMBANK_JOBS")
    if not jobs:
        raise InputError(
            "No jobs file is given.", code="bad-arguments", hint="Give --jobs FILE, or set STREAMBANK_JOBS."
        )
    return _launch(read_jobs(jobs).around(entry.job).job(entry.job), command)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]  # it raises, so it does not return either
        raise InputError(
            f"The arguments of run_query.py are wrong: {message}.",
            code="bad-arguments",
            hint="Write run_query.py --job NAME [--jobs FILE] [-- app.py ARGS], or --launch SPEC.",
        )


def _read(location: str, digest: str | None) -> LaunchSpec:
    folder, _, name = location.rpartition("/")
    return decode_launch(read_record(open_store(folder or "."), name), location, digest)


def _launch(job: Job, command: Sequence[str]) -> LaunchSpec:
    control = job.records()
    application, args = (command[0], command[1:]) if command else (None, None)
    if not command:
        job, _ = as_chosen(job, control)
    spec = prepare_launch(job, control, by=who("spark-submit"), application=application, args=args)
    # Whoever asks runs spark-submit in client mode, whatever is declared for drivers that are started.
    spec = replace(spec, deploy_mode="client", supervised=False)
    write_launch(control, spec)
    os.environ.pop(VARIABLE, None)  # the application has no need of it
    return spec
