"""Whose state a command is about, and Spark to read it with."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streambank.cli.options import SparkConf, declared_job, jobs_option, open_repository, repository_meant
from streambank.cli.output import console
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

Place = Annotated[
    str,
    typer.Argument(
        metavar="SAVEPOINT|CHECKPOINT",
        help="A savepoint, by any of its names, of -r or of the repository that the jobs file declares; or a "
        "checkpoint directory.",
    ),
]
OfBatch = Annotated[
    int | None,
    typer.Option(
        "--batch", min=0, metavar="N", help="Of a checkpoint: a committed batch instead of the newest."
    ),
]
Operator = Annotated[
    int | None, typer.Option("--operator", min=0, metavar="N", help="Only this stateful operator.")
]
OfPart = Annotated[
    str | None,
    typer.Option(
        "--part", "--store", metavar="NAME",
        help="Only this part: left or right of a join, a state variable, timers, a store.",
    ),
]  # fmt: skip
LIMITED_TO = "OPERATOR: or OPERATOR/PART: before it limits it to these. May be repeated."
"""How the help of an option ends whose text may begin with an operator and a part."""
SQL_OF_ROWS = "SQL over key and value, with {now}, {watermark}."
"""How the help of an option ends that takes a condition."""
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        envvar="STREAMBANK_SPARK_MASTER",
        metavar="URL",
        help="Spark's master: spark://host:7077, yarn. Default: all cores of this machine.",
    ),
]
Work = Annotated[
    str | None,
    typer.Option(
        "--work",
        metavar="LOCATION",
        help="Staging directory for state; on a cluster, all machines must see it.",
    ),
]

Jobs = Annotated[
    str | None, jobs_option("The file that declares the job, and may name the Spark that works on its state.")
]


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """How Spark is started; each property of `conf` is `KEY=VALUE`."""

    master: str | None
    conf: Sequence[str] | None
    work: str | None
    jobs: str | None = None


def with_spark(command: Callable[..., None]) -> Callable[..., None]:
    """Give a verb that takes `spark`, the `SparkOptions`, the options that these are made of."""

    def verb(
        *,
        master: Master = None,
        spark_conf: SparkConf = None,
        work: Work = None,
        jobs: Jobs = None,
        **own: Any,
    ) -> None:
        if "jobs" in wanted:  # for more than this
            own["jobs"] = jobs
        command(**own, spark=SparkOptions(master, spark_conf, work, jobs))

    wanted, given = (inspect.signature(each, eval_str=True).parameters for each in (command, verb))
    parameters = [
        each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, each in {**wanted, **given, **wanted}.items()
        if name not in ("spark", "own")
    ]
    # Typer reads both: the one for names and defaults, the other for what is annotated.
    verb.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # as PEP 362 has it
    verb.__annotations__ = {each.name: each.annotation for each in parameters}
    verb.__name__, verb.__doc__ = command.__name__, command.__doc__
    return verb


@dataclass(frozen=True, slots=True)
class StateOf:
    """State that can be read, and whose it is: of `job/savepoint`, or of the checkpoint."""

    of: str
    state: QueryState
    spark: SparkSession


def require_pyspark(job: Job | None) -> None:
    """Settle which PySpark this process imports: that of the Spark that works on the state of a declared job.

    Raises:
        InputError: There is none (code `no-pyspark`).
    """
    from streambank.driver.installed import installation_for_state

    use_own_pyspark(installation_for_state(job, rewrites=False).spark_home)  # what rewrites asks again


Check = Callable[["Readable", "Closure"], None]
"""Refuses what does not fit some state, by its small files."""


@contextmanager
def state_of(
    place: str,
    repository: str | None,
    job: str | None,
    batch: int | None,
    spark: SparkOptions,
    check: Check | None = None,
) -> Iterator[StateOf]:
    """The state of a savepoint, or of a committed batch of a checkpoint, for a `with`.

    Args:
        repository: Where the savepoint is; see `repository_meant`.
        batch: Of a checkpoint: which batch; the newest for None.
        check: What has to hold before any of it is copied and Spark is started.

    Raises:
        InputError: The options do not go together, or there is no PySpark.
    """
    with several([place], repository, job, batch, spark, check) as (found,):
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
    reference: str, location: str, job: str | None, spark: SparkOptions, order: Mapping[str, Any]
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

    repository = open_repository(location)
    owner, savepoint = repository.find(reference, job)
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
    from streambank.cli.options import pair
    from streambank_spark.submit.session import spark_session

    conf = dict(pair(each) for each in spark.conf or ())
    console.note("starting Spark")
    with spark_session(spark.master, conf) as session:
        yield session


def as_text(value: Any) -> str:
    """A key, a value or a row in one line."""
    return json.dumps(value, ensure_ascii=False)
