"""State where Spark can read it: a checkpoint directory of our own, made from a savepoint and removed again.

Never a live checkpoint, whose files Spark deletes while they are read: of one, a savepoint of the batch is
taken first, into a repository that lasts only as long. Large files are linked where that is possible, and
nothing that reads state writes to them.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j ships no types
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from streambank.checkpoint.index import CheckpointIndex
from streambank.checkpoint.reader import CheckpointReader
from streambank.checkpoint.schema.unnamed import write_missing_metadata
from streambank.control.processes import who
from streambank.control.target_owner import restoring
from streambank.core.errors import (
    FormatError,
    InputError,
    NotFoundError,
    RefusedError,
    StorageError,
    StreambankError,
)
from streambank.declaration.launch import is_local
from streambank.inputs.folders import folders_of_live, folders_of_savepoint
from streambank.repository.holds import Holds
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank.savepoint.materialize import materialize, openness_of
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import FileInfo, Store, local_path, open_store
from streambank.storage.local.modes import Openness, make_directory, openness
from streambank.storage.local.trees import is_private
from streambank.storage.locations import is_inside
from streambank.work.executor import Pace
from streambank.work.pace import Progress
from streambank.work.remove import just_made, remove_tree
from streambank.work.staging import INSPECTED, TEMPORARY, beside, checkpoint_name, is_staging, repository_name
from streambank.work.target import check_target_apart
from streambank_spark.failures import first_line

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Materialized:
    """State where Spark can read it.

    Attributes:
        of: Whose state: `job/savepoint`, or the checkpoint.
        location: The directory, for as long as the `with` lasts.
        described: Operator metadata that was written beside it, since Spark 3.5 writes none; relative paths.
    """

    of: str
    location: str
    manifest: Manifest
    described: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Staging:
    """Where and how state is laid out.

    Attributes:
        master: Spark's master. What is not this machine cannot see its temporary folder.
        work: Under which location; a temporary folder of this machine where nobody says.
        warn: Told what goes wrong and does no harm.
    """

    master: str
    work: str | None
    warn: Callable[[str], None]
    progress: Progress | None = None


@contextmanager
def materialized_savepoint(
    repository: Repository, job: str, savepoint: str, staging: Staging
) -> Iterator[Materialized]:
    """A savepoint as a checkpoint directory, for a `with`; nobody lets it expire meanwhile.

    Raises:
        InputError: On a cluster nobody said where (code `usage`), or it lies where nothing is ever laid out.
        StreambankError: As `materialize`.
    """
    with ExitStack() as stack:
        work = _work(stack, staging)
        found = stack.enter_context(_laid_out(repository, job, savepoint, work, staging))
        yield found


@contextmanager
def materialized_checkpoint(checkpoint: str, batch: int | None, staging: Staging) -> Iterator[Materialized]:
    """A committed batch of a checkpoint, whose query may be running, as a checkpoint directory for a `with`.

    Raises:
        InputError: As `materialized_savepoint`, or the work would lie in the checkpoint.
        StreambankError: As `take` and `materialize`.
    """
    source = open_store(checkpoint)
    CheckpointReader(source).query_id()  # before anything is made for what is not there
    with ExitStack() as stack:
        work = _work(stack, staging)
        place = open_store(f"{work}/{repository_name()}")
        if is_inside(place.uri, source.uri):
            raise InputError(
                f"{work} is inside the checkpoint {source.uri}.",
                code="inside-checkpoint",
                hint="Give a --work outside of it: nothing is ever written into a live checkpoint.",
            )
        if staging.work is not None:
            folders_of_live(source).without([source.uri]).check(place.uri, "staging directory")
        found = openness(source.uri)
        stack.enter_context(_made(place, None if found is None else found.readers(), staging.warn))
        repository = Repository.open(place, create=True, like=source.uri)
        taken = take(
            TakeRequest(source, repository, INSPECTED, batch=batch, closure="minimal"),
            pace=Pace(progress=staging.progress),
        )
        laid = stack.enter_context(_laid_out(repository, INSPECTED, taken.savepoint, work, staging))
        yield replace(laid, of=source.uri)


@contextmanager
def place_beside(location: str, warn: Callable[[str], None] = _log.warning) -> Iterator[Store]:
    """An empty place beside what was laid out, for a `with`; gone with all that is in it when that ends."""
    target = open_store(beside(location))
    with _made(target, openness(location), warn):
        yield target


@contextmanager
def _made(target: Store, like: Openness | None, warn: Callable[[str], None]) -> Iterator[None]:
    """A new directory, for a `with`; it goes with all that is in it when that ends.

    What cannot be removed is told, and raises nothing: what was done meanwhile, such as a savepoint, is done.
    """
    make_directory(target.uri, like or Openness(0o777))  # whatever the umask leaves
    made = just_made(target)
    try:
        yield
    finally:
        try:
            remove_tree(target, judged=made)
        except StreambankError as error:
            warn(f"State that was laid out is left at {target.uri}: remove it yourself. {error.message}")


def _work(stack: ExitStack, staging: Staging) -> str:
    _sweep(tempfile.gettempdir(), _is_our_temporary)
    if staging.work is not None:
        _sweep(staging.work, is_staging)
        return for_spark(staging.work.rstrip("/"))
    if not is_local(staging.master):
        raise InputError(
            "On a cluster, all machines must see the staging directory for state.",
            code="usage",
            hint="Give a work location, such as a folder on a shared disk or on S3.",
        )
    return stack.enter_context(TemporaryDirectory(prefix=TEMPORARY))


def _is_our_temporary(name: str) -> bool:
    """Whether a folder in the temporary folder is one of ours, and of this user."""
    return name.startswith(TEMPORARY) and is_private(Path(tempfile.gettempdir()) / name)


def _sweep(work: str, is_ours: Callable[[str], bool]) -> None:
    """Remove state that a command has left behind which was killed: what has not changed for a week."""
    before_ns = time.time_ns() - int(_LEFT_S * 1e9)
    store = open_store(work)
    for name in filter(is_ours, store.names()):
        left = store.child(name)
        with suppress(StorageError, NotFoundError, RefusedError):  # another user's, or another one removes it
            changed_ns = [info.mtime_ns for info in left.list()]
            if changed_ns and max(changed_ns) < before_ns:
                remove_tree(left)


def for_spark(location: str) -> str:
    """A location as Spark spells it: `s3a://` for S3, which has no other file system there."""
    return f"s3a{location[2:]}" if location.startswith("s3://") else location


@contextmanager
def _laid_out(
    repository: Repository, job: str, savepoint: str, work: str, staging: Staging
) -> Iterator[Materialized]:
    folder = f"{work}/{checkpoint_name()}"
    target = open_store(folder)
    holds = Holds(repository, "restore", who("inspect_state"))
    with ExitStack() as stack:
        with holds.held(job, savepoint), restoring(exclusive=False) as owner:
            manifest = repository.load(job, savepoint)
            check_target_apart(target.uri, repository.store.uri, manifest.checkpoint)
            if staging.work is not None:
                folders = folders_of_savepoint(repository, manifest).without([manifest.checkpoint])
                folders.check(target.uri, "staging directory")
            # On this machine nobody but this user's processes has to read it.
            like = Openness(0o700) if is_local(staging.master) else openness_of(manifest)
            stack.enter_context(_made(target, like, staging.warn))
            materialize(
                repository, manifest, target, owner=owner, link=True, pace=Pace(progress=staging.progress)
            )
        for warning in holds.warnings:
            staging.warn(warning)
        described: tuple[str, ...] = ()
        if any(one.get("name") is None for one in manifest.operators):
            with suppress(NotFoundError, FormatError):  # damage is an answer of what reads the state
                described = write_missing_metadata(target, CheckpointReader(target).closure(None, "minimal"))
        yield Materialized(f"{job}/{savepoint}", folder, manifest, described)


def require_schemas(manifest: Manifest) -> None:
    """Make sure that Spark's state reader can read the state of a savepoint, before Spark is started.

    Raises:
        RefusedError: An operator has no state schema (code `no-state-schema`).
    """
    index = CheckpointIndex.build(
        {entry.path: FileInfo(entry.path, entry.size_bytes, 0, "") for entry in manifest.files}
    )
    for number, operator in sorted(index.operators.items()):
        if operator.stores and not operator.has_schema:
            raise RefusedError(
                f"Operator {number} has no state schema, so Spark's state reader cannot read its state.",
                code="no-state-schema",
                hint="Spark writes it when the query starts: let it run a batch, and take another savepoint. "
                "Savepoints and restores need no schema.",
            )


_LEFT_S = 7 * 86_400.0
_EACH = 2
"""Probes for each task that the cluster has room for."""


def require_shared(spark: SparkSession, location: str) -> None:
    """Make sure that executors see a checkpoint that the driver has laid out, by its `metadata`.

    Only of a folder on a disk there is doubt, and only on a cluster. Not every executor is bound to get a
    probe; one that got none fails later, when it opens state that is not there.

    Raises:
        RefusedError: One does not (code `paths-not-shared`).
    """
    context = spark.sparkContext
    if local_path(location) is None or is_local(context.master):
        return
    probe = spark.read.text(f"{location}/metadata")
    many = [probe] * (_EACH * context.defaultParallelism)
    try:
        reduce(DataFrame.unionAll, many).collect()
    except (PySparkException, Py4JError) as error:
        raise RefusedError(
            f"An executor does not see {location}, where the driver staged the state: {first_line(error)}",
            code="paths-not-shared",
            hint="Give a --work that all machines see at the same path, such as s3://bucket/work.",
        ) from error
