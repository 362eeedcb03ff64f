"""An `Executor` that sends tasks to a Spark cluster: one spark-submit for each call, in client mode.

An application is submitted from a folder of its own (mode 0700), which holds the plan, the report, the zips,
the configuration and the log. The configuration may hold secrets, so it is a file of mode 0600 and never an
argument. The folder goes away at the end; where Spark failed, its log stays and the error names it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from streambank.core.errors import ConflictError, InputError, StorageError, StreambankError
from streambank.core.json_text import loads
from streambank.driver.environment import driver_environment
from streambank.driver.installed import Installation, entry_path, find_installation
from streambank.driver.spark_properties import property_lines
from streambank.storage import scheme_of
from streambank.storage.local.trees import judge, remove_directory
from streambank.work.executor import O, T, Threads, Work
from streambank.work.plan_lines import read_error, write_plan
from streambank_spark.submit.bundle import PACKAGES, write_bundle, write_packages
from streambank_spark.submit.submission import Running, Submission, Submit, spark_submit

ENTRY = "execute_plan.py"
POLL_S = 0.2
TRIES = 3
"""How often Spark tries a portion, unless the cluster's own settings say otherwise."""


@dataclass(frozen=True, slots=True)
class SparkExecutor:
    """Sends tasks to Spark executors.

    Attributes:
        master: Master URL: `spark://host:7077`, `yarn`, `k8s://...`, `local[2]`.
        properties: A properties file of the user's, for what is secret.
        parallel: How many tasks of one portion an executor does at once; None for as many as is best.
        say: Told where Spark's output goes.
        installation: Finds the Spark of this machine that submits it, once there is work for it; None, also
            as its answer, for the installed one.
        output: Where Spark's output is, in an error; the log file where nothing else is said.
    """

    master: str
    conf: Mapping[str, str] = field(default_factory=dict)
    properties: Path | None = None
    parallel: int | None = None
    say: Callable[[str], None] = lambda text: None
    installation: Callable[[], Installation | None] = lambda: None
    own: Callable[[], Installation | None] = lambda: None
    submit: Submit = spark_submit
    output: str | None = None

    def run(self, work: Work[T, O], tasks: Sequence[T], done: Callable[[T, O], None]) -> None:
        """See `Executor.run`.

        Raises:
            StorageError: Spark did not do all of it (code `spark-failed`); the message names its log.
            RefusedError: A worker does not see the same files (code `paths-not-shared`).
        """
        near = [task for task in tasks if not work.is_portable(task)]
        Threads(self.parallel).run(work, near, done)
        far = [task for task in tasks if work.is_portable(task)] if near else tasks
        if not far:
            return
        with submit_folder() as folder:
            _Run(self, work, far, done, folder).run()

    def submits(self) -> Installation:
        """The Spark of this machine that submits the work.

        Raises:
            InputError: There is none (code `no-pyspark`).
        """
        named = self.installation()
        if named is not None:
            return named
        try:
            return find_installation()
        except InputError as error:
            own = self.own() if error.code == "no-pyspark" else None
            if own is None:
                raise
            self.say(f"No Spark is installed: the job's own in {own.spark_home} submits it.")
            return own


@dataclass
class _Run:
    """One application, from its plan to its report."""

    executor: SparkExecutor
    work: Work[Any, Any]
    tasks: Sequence[Any]
    done: Callable[[Any, Any], None]
    folder: Path
    ended: bool = False
    moved: StreambankError | None = None

    def __post_init__(self) -> None:
        self.log = self.folder / LOG
        self.output = self.executor.output or str(self.log)
        self.waiting = set(range(len(self.tasks)))

    def run(self) -> None:
        installation = self.executor.submits()
        plan, report = self.folder / "plan.jsonl", self.folder / "report.jsonl"
        write_plan(plan, self.work, self.tasks, self.executor.parallel)
        report.touch()
        submission = Submission(
            installation=installation,
            master=self.executor.master,
            name=f"streambank-{self.work.kind}",
            entry=entry_path(ENTRY),
            arguments=("--plan", str(plan), "--report", str(report), "--owner", str(os.getpid())),
            properties=self._properties(installation),
            py_files=write_bundle(self.folder / "streambank.zip"),
            archives=f"{self._write_packages()}#{PACKAGES}",
            log=self.log,
        )
        self.executor.say(
            f"{self.work.kind}: {len(self.tasks)} tasks go to {self.executor.master}; log: {self.output}"
        )
        if not self.work.keeps():
            self._judge(self._submit(submission, report))
            return
        with closing(self.work.portions(self.tasks)) as portions:
            kept, here = next(portions)
            exit_code = self._submit(submission, report)
            self._rescue(len(kept), here)
        self._judge(exit_code)

    def _submit(self, submission: Submission, report: Path) -> int:
        """From the first line of the report to the end of the application."""
        with (
            report.open(encoding="utf-8") as lines,
            self.executor.submit(submission) as running,
        ):
            try:
                return self._follow(running, lines)
            finally:
                self.work.done_elsewhere()

    def _properties(self, installation: Installation) -> Path:
        ours = {"spark.driver.maxResultSize": "0"}
        always = {"spark.task.maxFailures": str(TRIES)}
        if self.work.kind in ("move", "place"):
            # A second attempt that lost would leave files of a restore that are there and not yet durable, or
            # a copy by the service that nobody has compared.
            always["spark.speculation"] = "false"
        given, conf = self.executor.properties, self.executor.conf
        return write_properties(self.folder, installation, given, conf, ours, always)

    def _write_packages(self) -> Path:
        header = self.work.header()
        texts = [value for value in header.values() if isinstance(value, str)]
        names = ["blake3"] if find_spec("blake3") is not None else []  # a repository may do without
        if any(scheme_of(text) in ("s3", "s3a") for text in texts):
            names.append("boto3")
        return write_packages(self.folder / "packages.zip", names)

    def _follow(self, running: Running, lines: IO[str]) -> int:
        """Take the report in as it grows, until the application has ended and all of it is read."""
        rest = ""
        while True:
            # What it wrote last is read after it has ended.
            exit_code = running.wait(POLL_S)
            while text := lines.readline():
                rest += text
                if rest.endswith("\n"):
                    self._take(loads(rest))
                    rest = ""
            if exit_code is not None:
                return exit_code

    def _take(self, line: Mapping[str, Any]) -> None:
        if "task" in line:
            number = line["task"]
            if number in self.waiting:
                self.waiting.discard(number)
                task = self.tasks[number]
                self.done(task, self.work.read_outcome(task, line["outcome"]))
        elif "counts" in line:
            self.work.absorb(line["counts"])
        elif "error" in line:
            error = read_error(line["error"])
            if error.code == "spark-failed":
                raise self._failed(error.message)
            if not isinstance(error, ConflictError):
                raise error
            # Whoever asked plans again; what the others are at is worth waiting for.
            self.moved = self.moved or error
        elif "end" in line:
            self.ended = True

    def _rescue(self, kept: int, here: Callable[[Any], Any]) -> None:
        """Copy here what executors found gone and this process has held: `kept` tasks, from the first one on.

        Raises:
            ConflictError: One was not held, and is gone.
        """
        if (
            self.moved is None
            or self.moved.code != "checkpoint-moved"
            or max(self.waiting, default=0) >= kept
        ):
            return

        def one(number: int) -> None:
            self.done(self.tasks[number], here(self.tasks[number]))

        with ThreadPoolExecutor(self.executor.parallel or self.work.at_once()) as pool:
            list(pool.map(one, sorted(self.waiting)))
        self.waiting.clear()
        self.moved = None

    def _judge(self, exit_code: int) -> None:
        if self.moved is not None:
            raise self.moved
        if not self.ended:
            raise self._failed(f"spark-submit ended with {exit_code}")
        if self.waiting:
            raise self._failed(f"{len(self.waiting)} of {len(self.tasks)} tasks were not reported")

    def _failed(self, why: str) -> StorageError:
        kept = (
            " Files that were copied are kept: a second try copies only the rest."
            if self.work.kind == "copy"
            else ""
        )
        return StorageError(
            f"Spark at {self.executor.master} did not finish: {why}. Its output is in {self.output}.",
            code="spark-failed",
            hint=f"Read the log, and try again.{kept}",
        )


LOG = "spark.log"


@contextmanager
def submit_folder() -> Iterator[Path]:
    """A folder that nobody else may look into; of a run that failed only Spark's log stays there."""
    folder = Path(tempfile.mkdtemp(prefix="streambank-spark-"))
    made = judge(folder, made=True)
    try:
        yield folder
    except StorageError as error:
        if error.code != "spark-failed" or not (folder / LOG).exists():
            remove_directory(folder, made)
            raise
        for path in folder.iterdir():
            if path.name != LOG:
                path.unlink()
        raise
    except BaseException:
        remove_directory(folder, made)
        raise
    remove_directory(folder, made)


def write_properties(
    folder: Path,
    installation: Installation,
    given: Path | None,
    conf: Mapping[str, str],
    defaults: Mapping[str, str],
    always: Mapping[str, str],
) -> Path:
    """The configuration: Spark's defaults, the user's file, the user's options, and what has to be so.

    Args:
        installation: Whose `spark-defaults.conf` counts least: beside a properties file Spark passes over it.
        given: A properties file of the user's, for what is secret.
        conf: The user's options, which count more than that file.
        defaults: What both may say otherwise.

    Raises:
        InputError: The file, or Spark's defaults, cannot be read (code `bad-spark-conf`).
    """
    try:
        text = given.read_text(encoding="utf-8") if given is not None else ""
    except (OSError, UnicodeError) as error:
        raise InputError(
            f"The Spark properties {given} cannot be read: {error}.",
            code="bad-spark-conf",
            hint="Name a file with lines such as `spark.key value` that this user may read.",
        ) from error
    lines = property_lines({"spark.ui.enabled": "false", **defaults})
    ours = {
        "spark.submit.deployMode": "client",
        "spark.pyspark.driver.python": sys.executable,
        **always,
    }
    target = folder / "spark.conf"
    target.touch(mode=0o600, exist_ok=False)
    least = installation.defaults(driver_environment(os.environ))
    target.write_text(f"{least}{lines}{text}\n{property_lines(conf)}{property_lines(ours)}", encoding="utf-8")
    return target
