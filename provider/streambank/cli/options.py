"""Options that several verbs share."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from streambank.cli.output import console
from streambank.cli.output.console import MODE
from streambank.core.choices import LockMode, WorkPlace
from streambank.core.errors import InputError, NotFoundError
from streambank.core.options import Option
from streambank.core.verb_options import KAFKA

if TYPE_CHECKING:
    from streambank.declaration.declaration import Job
    from streambank.kafka.settings import Brokers, KafkaConnection
    from streambank.repository.locks import LockPolicy
    from streambank.repository.repository import Repository
    from streambank.work.executor import Executor, Pace
OUTPUT, WORK = "Output", "Who does the work, and how fast"
"""Headings of options in the help."""


def _json(value: bool) -> bool:
    MODE.json = value
    return value


_JOBS_FILE = "streaming_jobs.toml"
_named_jobs: list[str] = []
"""What `--jobs` says in this command, for the default of `--repository`; see `forget_jobs_file`."""


def forget_jobs_file() -> None:
    """Begin another command, which may have no `--jobs`."""
    _named_jobs.clear()


def jobs_file(value: str | None) -> str | None:
    """The callback of `--jobs` where there is `--repository` too, whose default it is then."""
    _named_jobs[:] = [] if value is None else [value]
    return value


def jobs_option(text: str) -> Any:
    """`--jobs` where there is `--repository` too; a text says what the file is for."""
    return typer.Option(
        "--jobs",
        callback=jobs_file,
        is_eager=True,
        envvar="STREAMBANK_JOBS",
        metavar="FILE",
        help=text,
    )


def known_repository() -> str | None:
    """The repository where none is given: the environment's, or the one that the jobs file declares.

    Raises:
        InputError: The jobs file is wrong.
    """
    if found := os.environ.get("STREAMBANK_REPOSITORY"):
        return found
    named = _named_jobs[0] if _named_jobs else os.environ.get("STREAMBANK_JOBS")
    if not named:
        return None
    from streambank.declaration.load import read_jobs

    return read_jobs(named).repository


def _declared_repository() -> str:
    """The default of `--repository`.

    Raises:
        InputError: None is known (code `usage`), or the jobs file is wrong.
    """
    known = known_repository()
    if known is None and "_STREAMBANK_COMPLETE" not in os.environ:  # else a shell asks what may follow
        raise InputError(
            "Missing option '--repository' / '-r' (env var: 'STREAMBANK_REPOSITORY').",
            code="usage",
            hint="Name the repository, or set STREAMBANK_JOBS to the jobs file that declares it.",
        )
    return known or ""


def _missing_jobs() -> str:
    """The jobs file where none is given.

    Raises:
        InputError: It has to be given (code `usage`). One in this directory is named, and not taken: whose
            jobs are started does not depend on where a person stands.
    """
    if "_STREAMBANK_COMPLETE" in os.environ:
        return ""
    here = f", such as the {_JOBS_FILE} in this directory" if Path(_JOBS_FILE).is_file() else ""
    raise InputError(
        "Missing option '--jobs' (env var: 'STREAMBANK_JOBS').",
        code="usage",
        hint=f"Name the jobs file{here}, by --jobs or by STREAMBANK_JOBS.",
    )


def _debug(value: bool) -> bool:
    MODE.debug = value
    return value


Json = Annotated[
    bool,
    typer.Option(
        "--json",
        callback=_json,
        is_eager=True,
        rich_help_panel=OUTPUT,
        help="Answer with one JSON document on stdout.",
    ),
]
Debug = Annotated[
    bool,
    typer.Option(
        "--debug",
        callback=_debug,
        is_eager=True,
        rich_help_panel=OUTPUT,
        help="Show the traceback of an error, and what is logged for debugging.",
    ),
]
Kafka = Annotated[str | None, KAFKA]
KafkaJobsFile = Annotated[
    str | None, jobs_option("The file that declares the job, and how its Kafka is reached.")
]
RepositoryOption = Annotated[
    str,
    typer.Option(
        "--repository",
        "-r",
        envvar="STREAMBANK_REPOSITORY",
        metavar="LOCATION",
        default_factory=_declared_repository,
        show_default=False,
        help="The savepoint repository; by default the one that the jobs file declares (STREAMBANK_JOBS, or "
        "--jobs where there is that option).",
    ),
]
RepositoryOfPlace = Annotated[
    str | None,
    # Not from the environment as elsewhere: where it is given, a savepoint is meant, even if a directory has
    # the same name; see `repository_meant`.
    Option(
        "The repository of the savepoint; by default STREAMBANK_REPOSITORY, or the one that the jobs "
        "file declares.",
        flag="--repository -r",
        metavar="LOCATION",
    ),
]
JobOption = Annotated[str | None, Option("Only this job, or job/query.", metavar="NAME")]
JobName = Annotated[str, Option("A job that the jobs file declares.", metavar="NAME", positional=True)]
Why = Annotated[str, Option("Why, for the job's records.", metavar="TEXT")]
JobsFile = Annotated[
    str,
    typer.Option(
        "--jobs",
        envvar="STREAMBANK_JOBS",
        metavar="FILE",
        default_factory=_missing_jobs,
        show_default=False,
        help="The file that declares the jobs.",
    ),
]
OptionalJobsFile = Annotated[str | None, jobs_option("The file that declares the jobs.")]
SparkJobsFile = Annotated[
    str | None, jobs_option("The file that declares the job, whose Spark is used where none is installed.")
]
Unsigned = Annotated[
    bool,
    Option("Also sign what was changed since it was signed and, of several keys, what none has signed."),
]
Parallel = Annotated[
    int | None,
    Option("Files or objects processed at once: 4, or 8 if one side is on S3.", metavar="N", least=1),
]
Checkpoint = Annotated[
    str, Option("A checkpoint directory: a path or a URI.", metavar="CHECKPOINT", positional=True)
]
Note = Annotated[str, Option("What you want to remember about it.", metavar="TEXT")]
SavepointName = Annotated[
    str,
    Option(
        "A savepoint's id or its unique beginning, its name, latest, latest-good, a batch "
        "(batch:41), or a time (03:00, 2026-11-26T03:00): the newest from then or before.",
        metavar="SAVEPOINT",
        positional=True,
    ),
]
DryRun = Annotated[
    bool, Option("Only show what would be done, and what prevents it, with the exit code that it would have.")
]


def brokers_of(
    kafka: str | None, declared: KafkaConnection | None = None, timeout_s: float | None = None
) -> Brokers:
    """Who is asked about Kafka: the servers that `--kafka` names, with the declared properties."""
    from streambank.kafka.settings import ASK_TIMEOUT_S, Brokers, KafkaConnection

    connection = (declared or KafkaConnection()).at(kafka)
    return Brokers(connection, timeout_s=timeout_s or ASK_TIMEOUT_S)


def job_named(name: str, jobs: str) -> Job:
    """A declared job by its name, as for `Declarations.job`; what it says is printed.

    Raises:
        StreambankError: See there; or the file is wrong.
    """
    from streambank.declaration.load import read_jobs

    return read_jobs(jobs).around(name).job(name, console.note)


def declared_job(job: str, jobs: str | None) -> Job | None:
    """What a jobs file declares of a job; None where there is no file, or no such job."""
    from streambank.core.names import QueryRef
    from streambank.declaration.load import read_jobs

    name = QueryRef.parse(job).job
    if jobs is None:
        return None
    declared = read_jobs(jobs).around(name)
    known = name in declared.jobs or declared.copy_named(name)
    return declared.job(name, console.note) if known else None


def open_repository(location: str) -> Repository:
    """The repository that is there; times are read in the zone that the jobs file declares for a job."""
    from streambank.repository.repository import Repository
    from streambank.storage import open_store

    opened = Repository.open(open_store(location))
    opened.zone_of = zone_of
    return opened


def zone_of(job: str) -> tuple[str, tzinfo]:
    """The time zone that the jobs file declares for a job; UTC where there is no file, or no such job."""
    from streambank.repository.references import utc_of

    named = _named_jobs[0] if _named_jobs else os.environ.get("STREAMBANK_JOBS")
    declared = declared_job(job, named or None)
    return utc_of(job) if declared is None else declared.zone_of(job)


SPARK = "streambank_spark.submit.executor"
"""Where the `Executor` on Spark is; imported when it is asked for, since the engine does without it."""


@dataclass(kw_only=True)
class Machines:
    """Where the work of a verb is done."""

    PANEL: ClassVar = WORK
    on: Annotated[
        WorkPlace,
        Option(
            "here: threads of this process; spark: executors of --master; "
            "auto: spark if a master is named and there is much to do."
        ),
    ] = "auto"
    master: Annotated[
        str | None,
        Option("Spark's master: spark://host:7077, yarn.", metavar="URL", env="STREAMBANK_SPARK_MASTER"),
    ] = None
    spark_conf: Annotated[tuple[str, ...], Option("A Spark property.", metavar="KEY=VALUE")] = ()
    spark_properties: Annotated[
        str | None, Option("A file of Spark properties, for secrets.", metavar="FILE")
    ] = None

    def executor(
        self,
        of: Callable[[], Job | None] = lambda: None,
        *,
        parallel: int | None = None,
        max_bytes_per_s: int | None = None,
    ) -> Executor:
        """Who does the work; this machine alone where a rate is to be kept, since only here it can be.

        Args:
            of: Finds the declared job that the work is for: its Spark submits it where none is installed.
            parallel: Files at once.

        Raises:
            InputError: Spark is asked for and no master is named, or a rate is; or a property is none (code
                `usage`).
        """
        from streambank.driver.installed import own_installation
        from streambank.work.executor import BySize, Threads

        if self.on == "spark" and max_bytes_per_s is not None:
            raise InputError(
                "--max-rate limits what this machine reads, so it cannot be combined with --on spark.",
                code="usage",
                hint="Leave one of them out. The number of executors limits their rate.",
            )
        here = Threads(parallel)
        if self.on == "here" or (self.on == "auto" and (self.master is None or max_bytes_per_s is not None)):
            return here
        if self.master is None:
            raise InputError(
                "--on spark needs the address of a Spark master.",
                code="usage",
                hint="Give --master spark://host:7077, or set STREAMBANK_SPARK_MASTER.",
            )
        spark: Executor = importlib.import_module(SPARK).SparkExecutor(
            self.master,
            conf=dict(map(pair, self.spark_conf)),
            properties=Path(self.spark_properties) if self.spark_properties is not None else None,
            parallel=parallel,
            say=console.note,
            own=partial(own_installation, of),
        )
        return spark if self.on == "spark" else BySize(here, spark)


@dataclass(kw_only=True)
class WorkOptions(Machines):
    """Who does the work of a verb, and how fast."""

    PANEL: ClassVar = WORK
    parallel: Annotated[
        int | None,
        Option("Files or objects processed at once: 4, or 8 if one side is on S3.", metavar="N", least=1),
    ] = None
    max_rate: Annotated[str | None, Option("Limit reading to this rate, such as 50MB/s.", metavar="RATE")] = (
        None
    )

    def pace(self, of: Callable[[], Job | None], *, alone: bool = True) -> Pace:
        """How the work goes on, with nobody told of its progress yet.

        Args:
            of: As for `executor`.
            alone: Whether all of the work is here where a rate is to be kept; else executors may do theirs
                beside what this machine reads at that rate.

        Raises:
            InputError: As `executor`, or the rate is none (code `bad-rate`).
        """
        from streambank.work.executor import Pace
        from streambank.work.pace import parse_rate

        rate = None if self.max_rate is None else parse_rate(self.max_rate)
        machines = self.executor(of, parallel=self.parallel, max_bytes_per_s=rate if alone else None)
        return Pace(parallel=self.parallel, max_bytes_per_s=rate, executor=machines)


@contextmanager
def with_progress(pace: Pace) -> Iterator[Pace]:
    """The same pace, whose progress is shown as long as the work goes on."""
    with console.progress() as progress:
        yield replace(pace, progress=progress)


@dataclass(kw_only=True)
class LockOptions:
    """Whether what is written is locked."""

    lock_s: Annotated[
        float | None, Option("Protect it from deletion for this long, for example 30d, by S3 Object Lock.")
    ] = None
    lock_mode: Annotated[
        LockMode,
        Option("A governance lock can be ended by a special permission, a compliance lock cannot be ended."),
    ] = "governance"

    def policy(self) -> LockPolicy | None:
        """What these say."""
        from streambank.repository.locks import LockPolicy

        return None if self.lock_s is None else LockPolicy(self.lock_s, self.lock_mode)


def pair(text: str) -> tuple[str, str]:
    """A Spark property from `KEY=VALUE`.

    Raises:
        InputError: It is none (code `usage`).
    """
    key, equals, value = text.partition("=")
    if not equals or not key.startswith("spark."):
        raise InputError(
            f"--spark-conf {text} is not a Spark property.",
            code="usage",
            hint="Write it like --spark-conf spark.executor.memory=2g, once for each property.",
        )
    return key, value


def repository_meant(
    places: Sequence[str], repository: str | None, job: str | None, batch: int | None
) -> str | None:
    """The repository of the savepoints that a verb names; None where it names checkpoints.

    Without `-r` and `--job`, a directory that is there and what is written as a location are checkpoints. All
    else names savepoints of the declared repository.

    Raises:
        InputError: The options do not go together, or a savepoint is meant and no repository is known (code
            `usage`).
        NotFoundError: There is neither such a directory nor a repository (code `not-a-checkpoint`).
    """
    named = repository
    if named is None and (job is not None or not all(map(is_checkpoint, places))):
        named = known_repository()
        if named is None and job is not None:
            raise InputError(
                "--job needs a repository: give -r, or the jobs file.",
                code="usage",
                hint="Add --help for the options of this command.",
            )
        if named is None:
            place = next(place for place in places if not is_checkpoint(place))
            raise NotFoundError(
                f"There is no directory {place}.",
                code="not-a-checkpoint",
                hint="For a savepoint, name its repository by -r, or set STREAMBANK_JOBS to the jobs file.",
            )
    if named is not None and batch is not None:
        raise InputError(
            "--batch is for checkpoints: a savepoint holds only one batch.",
            code="usage",
            hint="Add --help for the options of this command.",
        )
    return named


def is_checkpoint(place: str) -> bool:
    """Whether a checkpoint is meant: by `./ck`, `/data/ck`, `s3://b/ck`, or the name of a directory here."""
    return place.startswith((".", "/")) or "://" in place or Path(place).is_dir()
