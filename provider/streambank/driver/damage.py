"""A job's checkpoint that is damaged: found before a start, and where a start has failed.

Spark would find the damage, too: minutes later, when a task loads the state, in words that name neither the
way out nor, often, the file. No number of further starts repairs it. The way out is the newest savepoint that
no verification found damaged; where there is none, nothing is refused, so that Spark has its try.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streambank.checkpoint.closure import ClosurePlanner
from streambank.checkpoint.index import CheckpointIndex
from streambank.checkpoint.listing import list_checkpoint
from streambank.checkpoint.position import batches_of
from streambank.core.errors import RefusedError, StreambankError
from streambank.core.names import MAIN, QueryRef
from streambank.core.units import say_duration, utc_now
from streambank.driver.failure import recorded_failure, shown
from streambank.driver.spec import spec_of
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank.savepoint.live_damage import CheckpointDamage, find_damage
from streambank.sites.forks import newest_own
from streambank.storage import open_store

if TYPE_CHECKING:
    from streambank.control.control import JobControl
    from streambank.declaration.declaration import Job

_log = logging.getLogger(__name__)

SAVEPOINTS = 5
"""So many of the newest savepoints are looked at for one of the same checkpoint."""
_SHOWN = 3

_HOPELESS = re.compile(
    r"CANNOT_LOAD_STATE_STORE\.(?:AUTO_SNAPSHOT_REPAIR_FAILED|CANNOT_FIND_BASE_SNAPSHOT_CHECKPOINT|"
    r"CANNOT_READ_\w+|INVALID_CHECKPOINT_LINEAGE|UNEXPECTED_FILE_SIZE)"
    r"|CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED|STATE_STORE_ROW_CHECKSUM_VERIFICATION_FAILED"
    r"|STREAMING_CHECKPOINT_MISSING_METADATA_FILE|MALFORMED_LOG_FILE"
    r"|[Ee]xception: (?:batch \d+ doesn't exist|Incomplete log file)"
    r"|Unable to find batch \S*/(?:offsets|commits|sources)/"
)
"""What Spark says of a checkpoint with files that are damaged or missing: the same at each start."""
_PERHAPS = re.compile(r"CANNOT_LOAD_STATE_STORE|CHECKSUM_VERIFICATION_FAILED")
"""What may have passed at the next start: behind it is whatever a store was disturbed by, a network, too."""
_DAMAGED_BYTES = re.compile(
    r"java\.io\.EOFException|Stream is corrupted|Stream ended prematurely|ZipException|"
    r"ChecksumException|RocksDBException: Corruption"
)
"""What Java says of bytes that end too early or are not what they were."""


@dataclass(frozen=True, slots=True)
class DamagedQuery:
    """A query whose checkpoint is damaged, and its newest good savepoint, without files, if it has one."""

    job: str
    query: str
    checkpoint: str
    damages: tuple[CheckpointDamage, ...]
    savepoint: Manifest | None

    @property
    def fatal(self) -> bool:
        """Whether the query cannot go on from it."""
        return any(damage.fatal for damage in self.damages)

    def error(self, ended: str = "") -> RefusedError:
        """The refusal of a start; `ended` says as a sentence how a driver ended that tried."""
        fatal = [damage for damage in self.damages if damage.fatal]
        more = f" {len(fatal) - _SHOWN} more files are damaged, too." if len(fatal) > _SHOWN else ""
        which = "" if self.query == MAIN else f" of its query {self.query}"
        return RefusedError(
            f"{ended}{' ' if ended else ''}The checkpoint {self.checkpoint} of job {self.job}{which} is "
            f"damaged: {' '.join(one.cause for one in fatal[:_SHOWN])}{more}",
            code="checkpoint-damaged",
            hint=f"Starting again does not repair it. {way_out(self.job, self.query, self.savepoint)}",
        )


def way_out(job: str, query: str, savepoint: Manifest | None) -> str:
    """Which savepoint to restore, how old it is, and how that is done."""
    if savepoint is None:
        return "It has no good savepoint: repair the files from a backup, if there is one."
    age = say_duration(max(0, round((utc_now() - savepoint.taken_at).total_seconds())))
    name = QueryRef.of(job, query)
    return (
        f"Restore {savepoint.savepoint} ({age} old): trigger {job}.restore in Airflow, or run "
        f"`streambank restore {savepoint.savepoint} --job {name} --generation`."
    )


def savepoints_of(job: Job, query: str) -> tuple[list[Manifest], Repository | None]:
    """The newest good savepoints of a query's line, and their repository; none where that cannot be read."""
    try:
        repository = job.open_repository()
        name = job.savepoint_name(query)
        return newest_own(job.records(), repository.store, name, SAVEPOINTS), repository
    except StreambankError:
        return [], None  # what keeps savepoints from being read must not keep a job from being started


def damaged_query(job: Job, query: str, location: str) -> DamagedQuery | None:
    """What is damaged in the checkpoint of a query that is about to start, or has failed to.

    Costs one listing of the checkpoint, its logs, the newest savepoint's manifest, and what `find_damage`
    says.

    Returns:
        None where nothing is, and where the checkpoint cannot be read or is not understood: that is Spark's
        to say.
    """
    try:
        store = open_store(location)
        if not store.names("commits"):
            return None
        planner = ClosurePlanner(CheckpointIndex.build(list_checkpoint(store)), store.read)
        savepoints, repository = savepoints_of(job, query)
        found = find_damage(store, planner, savepoints, repository)
    except StreambankError as error:
        _log.debug("Not searched for damage: %s: %s", location, error)
        return None
    if not found:
        return None
    return DamagedQuery(job.name, query, store.uri, found, savepoints[0] if savepoints else None)


def refuse_damaged(job: Job, query: str, location: str) -> None:
    """Refuse to start a query on a checkpoint that it cannot go on from, where there is a way out.

    Raises:
        RefusedError: It is damaged, and there is a savepoint (code `checkpoint-damaged`).
    """
    found = damaged_query(job, query, location)
    if found is not None and found.fatal and found.savepoint is not None:
        raise found.error()


def unloadable(
    job: Job,
    control: JobControl,
    launch_id: str,
    checkpoints: Mapping[str, str],
    lines: Sequence[str],
    ended: str,
) -> RefusedError | None:
    """What to say of a driver that died since it could not load its checkpoint; None for another death.

    Args:
        checkpoints: Query -> the checkpoint that it worked in.

    Returns:
        `checkpoint-damaged` where the damage was found; `state-not-loadable` where Spark's words are such
        that another start would end the same way.
    """
    # A log also has what passed: a task that was tried again, a snapshot that Spark repaired.
    tail = () if _has_worked(control, launch_id) else lines
    text = "\n".join([recorded_failure(control, launch_id) or "", *tail])
    said = _HOPELESS.search(text)
    perhaps = _PERHAPS.search(text)
    if said is None and perhaps is None:
        return None
    for query, checkpoint in checkpoints.items():
        found = damaged_query(job, query, checkpoint)
        if found is not None and found.fatal:
            return found.error(ended)
    if said is None and (perhaps is None or not _DAMAGED_BYTES.search(text, perhaps.start())):
        return None
    what = said or perhaps
    assert what is not None, "one of them was found"
    newest = {query: next(iter(savepoints_of(job, query)[0]), None) for query in checkpoints}
    ways = " ".join(way_out(job.name, query, savepoint) for query, savepoint in newest.items())
    return RefusedError(
        f"{ended} Spark cannot load its checkpoint ({shown(what.group())}), and starting again does not "
        "change that.",
        code="state-not-loadable",
        hint=ways,
    )


def _has_worked(control: JobControl, launch_id: str) -> bool:
    """Whether each query has committed a batch since a driver was launched: it has loaded its state."""
    try:
        spec = spec_of(control, launch_id)
        return spec is not None and all(
            _number(batches_of(query.checkpoint).committed) > _number(query.committed)
            for query in spec.queries.values()
        )
    except StreambankError:
        return False


def _number(batch: int | None) -> int:
    return -1 if batch is None else batch
