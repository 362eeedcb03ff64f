"""Whose state a command is about, and Spark to read it with."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from streambank.cli.options import (
    WORK,
    JobOption,
    RepositoryOfPlace,
    RepositoryOption,
    declared_job,
    jobs_option,
    open_repository,
    pair,
    repository_meant,
)
from streambank.cli.output import console
from streambank.core.options import Option
from streambank_spark.private.own_pyspark import use_own_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streambank.checkpoint.closure import Closure
    from streambank.declaration.declaration import Job
    from streambank.repository.repository import Repository as SavepointRepository
    from streambank.storage.store import Readable
    from streambank.work.pace import Progress
    from streambank_spark.state.staging import Materialized, Staging
    from streambank_spark.state.state import QueryState


@dataclass(kw_only=True)
class StateSubject:
    """Whose state is read."""

    place: Annotated[
        str,
        Option(
            "A savepoint, by any of its names, of -r or of the repository that the jobs file declares; or a "
            "checkpoint directory.",
            metavar="SAVEPOINT|CHECKPOINT",
            positional=True,
        ),
    ]
    repository: RepositoryOfPlace = None
    job: JobOption = None
    batch: Annotated[
        int | None, Option("Of a checkpoint: a committed batch instead of the newest.", metavar="N", least=0)
    ] = None


@dataclass(kw_only=True)
class SavepointSubject:
    """Of which savepoint another one is made."""

    savepoint: Annotated[
        str, Option("A savepoint's id, or the beginning of one.", metavar="SAVEPOINT", positional=True)
    ]
    repository: RepositoryOption
    job: JobOption = None


@dataclass(kw_only=True)
class SparkOptions:
    """How Spark is started."""

    PANEL: ClassVar = WORK
    master: Annotated[
        str | None,
        Option(
            "Spark's master: spark://host:7077, yarn. Default: all cores of this machine.",
            metavar="URL",
            env="STREAMBANK_SPARK_MASTER",
        ),
    ] = None
    spark_conf: Annotated[tuple[str, ...], Option("A Spark property.", metavar="KEY=VALUE")] = ()
    work: Annotated[
        str | None,
        Option("Staging directory for state; on a cluster, all machines must see it.", metavar="LOCATION"),
    ] = None
    jobs: Annotated[
        str | None,
        jobs_option("The file that declares the job, and may name the Spark that works on its state."),
    ] = None


@dataclass(frozen=True, slots=True)
class StateOf:
    """State that can be read.

    Attributes:
        of: Whose: `job/savepoint`, or the checkpoint.
    """

    of: str
    state: QueryState
    spark: SparkSession


def require_pyspark(job: Job | None) -> None:
    """Settle which PySpark this process imports: that of the Spark that works on the state of a declared job.

    Args:
        job: None for state of no declared job.

    Raises:
        InputError: There is none (code `no-pyspark`).
    """
    from streambank.driver.installed import installation_for_state

    use_own_pyspark(installation_for_state(job, rewrites=False).spark_home)  # what rewrites asks again


Check = Callable[["Readable", "Closure"], None]
"""Refuses what does not fit some state, by its small files."""


@contextmanager
def state_of(subject: StateSubject, spark: SparkOptions, check: Check | None = None) -> Iterator[StateOf]:
    """The state of a savepoint, or of a committed batch of a checkpoint, for a `with`.

    Args:
        check: What has to hold before any of it is copied and Spark is started.

    Raises:
        InputError: The options do not go together, or there is no PySpark.
    """
    of_place = (subject.repository, subject.job, subject.batch)
    with several([subject.place], *of_place, spark, check) as (found,):
        yield found


@contextmanager
def several(
    places: Sequence[str],
    repository: str | None,
    job: str | None,
    batch: int | None,
    spark: SparkOptions,
    check: Check | None = None,
) -> Iterator[list[StateOf]]:
    """As `state_of`, of several places at once."""
    repository = repository_meant(places, repository, job, batch)
    opened = open_repository(repository) if repository is not None else None
    named = [] if opened is None else [opened.find(place, job) for place in places]
    if check is not None:
        for number, place in enumerate(places):
            _checked(place, None if opened is None else (opened, *named[number]), batch, check)
    require_pyspark(declared_job(named[0][0], spark.jobs) if named else None)
    from streambank_spark.state.staging import (
        materialized_checkpoint,
        materialized_savepoint,
        require_schemas,
        require_shared,
    )
    from streambank_spark.state.state import QueryState

    with ExitStack() as stack:
        found: list[Materialized] = []
        for number, place in enumerate(places):
            console.note(f"copying the files of {place} for Spark")
            with console.progress() as progress:
                staging = staging_of(spark, progress)
                if opened is None:
                    one = materialized_checkpoint(place, batch, staging)
                else:
                    one = materialized_savepoint(opened, *named[number], staging)
                found.append(stack.enter_context(one))
            require_schemas(found[-1].manifest)
        session = stack.enter_context(spark_of(spark))
        for each in found:
            require_shared(session, each.location)
        states = [StateOf(each.of, QueryState(session, each.location), session) for each in found]
        console.note("reading state")
        yield states


def _checked(
    place: str, savepoint: tuple[SavepointRepository, str, str] | None, batch: int | None, check: Check
) -> None:
    from streambank.checkpoint.reader import CheckpointReader
    from streambank.savepoint.view import SavedFiles
    from streambank.storage import open_store

    if savepoint is None:
        store = open_store(place)
        check(store, CheckpointReader(store).closure(batch, "minimal"))
    else:
        repository, job, name = savepoint
        files = SavedFiles(repository, repository.load(job, name))
        check(files, files.closure())


def staging_of(spark: SparkOptions, progress: Progress | None = None) -> Staging:
    """Where state is staged."""
    from streambank_spark.state.staging import Staging
    from streambank_spark.submit.session import LOCAL

    return Staging(spark.master or LOCAL, spark.work, console.note, progress)


def savepoint_of(
    subject: SavepointSubject, spark: SparkOptions, order: Mapping[str, Any]
) -> tuple[SavepointRepository, str, str]:
    """The savepoint that a verb names; afterwards PySpark can be imported.

    Args:
        order: What is asked of its state, as JSON; see `foresee_savepoint`.

    Returns:
        The repository, `job` or `job/query`, and the savepoint's id.

    Raises:
        StreambankError: There is no such repository or savepoint, or no PySpark (code `no-pyspark`); or the
            state does not fit what is asked.
    """
    from streambank.declaration.launch import is_local
    from streambank.recovery.foresee import foresee_savepoint

    repository = open_repository(subject.repository)
    owner, savepoint = repository.find(subject.savepoint, subject.job)
    foresee_savepoint(repository, owner, savepoint, order, elsewhere=not is_local(spark.master))
    require_pyspark(declared_job(owner, spark.jobs))
    return repository, owner, savepoint


@contextmanager
def spark_of(spark: SparkOptions) -> Iterator[SparkSession]:
    """A session for a `with`.

    Raises:
        InputError: A property is none (code `usage`).
        StorageError: Spark fails (code `spark-failed`).
    """
    from streambank_spark.submit.session import spark_session

    conf = dict(map(pair, spark.spark_conf))
    console.note("starting Spark")
    with spark_session(spark.master, conf) as session:
        yield session


def as_text(value: Any) -> str:
    """A key, a value or a row in one line."""
    return json.dumps(value, ensure_ascii=False)
