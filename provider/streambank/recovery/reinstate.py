"""Letting an earlier generation of a query count again, where the one after it has not gone on.

It is the way back of who has exchanged a query's state (exchange_state.py): the earlier directory was not
touched, and nothing was given to a sink since, so going on in it is the restart that would have been. Whoever
cannot show that is refused: a query that went on in it would lose or repeat rows without a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streambank.checkpoint.position import Batches, batches_of
from streambank.control.control import JobControl
from streambank.control.generations import Generation, Generations
from streambank.control.marker import renew_marker
from streambank.control.processes import person
from streambank.control.rollbacks import check_not_rolled_back
from streambank.core.errors import NotFoundError, RefusedError
from streambank.core.names import MAIN, QueryRef
from streambank.core.shape import JsonObject
from streambank.recovery.choices import SinkChoices
from streambank.recovery.sinks.sinks import check_stands_at, look_at_sinks, refusals, shown
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank.sinks.file.capture import KIND as FILE
from streambank.sinks.unguarded import harm_of, sink_name

OPERATION = "reinstate"
"""What operation lock and lease say meanwhile."""
EVENT = "reinstated"
"""The kind of event that says that an earlier generation counts again."""


@dataclass(frozen=True, slots=True)
class Reinstated(JsonObject):
    """A generation that counts again.

    Attributes:
        job: `job` or `job/query`.
        left: The directory that counted before; None where nothing was to be done.
    """

    job: str
    generation: int
    again: int
    location: str
    left: str | None
    batch: int


def reinstate(
    repository: Repository,
    job: str,
    savepoint: str,
    *,
    generation: int,
    control: JobControl,
    by: Mapping[str, str],
    why: str = "",
) -> Reinstated:
    """Let an earlier generation count again.

    Args:
        repository: Where the savepoint is.
        job: `job` or `job/query`.
        savepoint: A savepoint that was taken in that generation at its last batch; by it the sinks are
            judged.

    Raises:
        NotFoundError: There is no such generation (code `no-such-generation`), or no such savepoint; or its
            directory was removed (`generation-removed`).
        RefusedError: The query has gone on since, in this generation or the one that counts
            (`query-went-on`), or may have given rows to a sink that cannot be asked (`batch-begun`); a sink
            is further than the savepoint (`sink-would-lose-rows`), or was taken back by a restore that was
            not finished (`sinks-taken-back`); a driver lives (`lease-held`).
        ConflictError: Another operation works on the job.
        IntegrityError, FormatError, StorageError: What the savepoint keeps of its sinks cannot be read.
    """
    query = QueryRef.parse(job).query
    manifest = repository.load(job, savepoint)
    with (
        control.operation(OPERATION, by=by) as operation,
        control.lease.held(OPERATION, by=by) as lease,
    ):
        generations = control.generations(query)
        earlier, current = _find(generations, generation), generations.current()
        assert current is not None, "one of them was found"
        _check_not_removed(generations, earlier)
        check_not_rolled_back(control, query, current)
        check_stands_at(manifest.job, earlier.location, manifest.batch)
        called = earlier.again or earlier.number
        if current.location == earlier.location:
            return Reinstated(job, current.number, called, earlier.location, None, manifest.batch)
        _check_not_gone_on(repository, manifest, current)
        following = generations.reinstated(earlier, by=by)
        lease.check()
        generations.switch(following, operation=operation)
        why_not = renew_marker(
            following.base,
            job=control.name,
            query=query or MAIN,
            generation=following,
            control=control,
            by=by,
        )
        if why_not is not None:
            control.record_event("marker-not-written", query=query or MAIN, by=dict(by), why=why_not)
        done = Reinstated(job, following.number, called, earlier.location, current.location, manifest.batch)
        control.record_event(EVENT, savepoint=savepoint, by=dict(by), why=why, **done.to_dict())
    return done


def check_not_gone_on(repository: Repository, job: str, savepoint: str, control: JobControl) -> None:
    """Make sure that no batch was committed since a savepoint, before a driver is stopped to go back to it.

    Args:
        repository: Where the savepoint is.
        job: `job` or `job/query`.

    Raises:
        RefusedError: One was (code `query-went-on`).
    """
    current = control.generation(QueryRef.parse(job).query)
    if current is not None:
        _check_batch(repository.load(job, savepoint), current)


def _find(generations: Generations, number: int) -> Generation:
    for one in generations.all():
        if one.number == number:
            return one
    raise NotFoundError(
        f"Job {generations.job} has no generation {number} of query {generations.query}.",
        code="no-such-generation",
        hint=f"`streambank job status {generations.job}` shows the current one.",
    )


def _check_not_removed(generations: Generations, earlier: Generation) -> None:
    gone = generations.removal(earlier)
    if gone is not None:
        by = gone.data.get("by")
        who = f" by {person(by)}" if isinstance(by, Mapping) else ""
        raise NotFoundError(
            f"The directory {earlier.location} of generation {earlier.number} was removed at "
            f"{gone.data.get('at')}{who}, as {generations.removals.describe(gone.number)} says.",
            code="generation-removed",
            hint="Go back by a savepoint: `streambank list` shows them, and `streambank restore SAVEPOINT "
            f"--job {QueryRef.of(generations.job, generations.query)} --generation` restores one.",
        )


def _check_not_gone_on(repository: Repository, manifest: Manifest, current: Generation) -> None:
    """No batch after the savepoint's has given anything to a sink."""
    found = _check_batch(manifest, current)
    sinks = look_at_sinks(repository, manifest, {}, {})
    for refusal in refusals(sinks, SinkChoices(), "no-claim"):
        raise refusal
    named = [
        sink_name(str(one.get("kind")), str(one.get("path")))
        for one in manifest.sinks
        if (one.get("kind"), one.get("guarded")) != (FILE, True)
        and harm_of(str(one.get("kind"))) not in ("none", "overwritten")
    ]
    if found.planned != manifest.batch and (named or not manifest.sinks):
        which = ", ".join(named) or "its sink, which the savepoint does not name"
        raise RefusedError(
            f"{manifest.job} has begun {shown(found.planned)} in {current.location}, and it is not known how "
            f"much of it reached {which}.",
            code="batch-begun",
            hint=f"Start the job to go on there, which repeats that batch as any restart does; or restore "
            f"{manifest.savepoint} with `--sink accept`: rows may be repeated then, or skipped for good by a "
            "sink that remembers batch ids.",
        )


def _check_batch(manifest: Manifest, current: Generation) -> Batches:
    found, batch = batches_of(current.location), manifest.batch
    if found.committed != batch:
        raise RefusedError(
            f"{manifest.job} has gone on after batch {batch}: the last that was committed in "
            f"{current.location} is {shown(found.committed)}.",
            code="query-went-on",
            hint="Its later output is valid. To go back anyway, restore with a choice for the sinks: "
            f"`streambank restore {manifest.savepoint} --generation --sink rollback`.",
        )
    return found
