"""That jobs, their sites and their copies share no places in which one would destroy the other's.

And that nobody who may only name a place, in a form, names one of them, or one that is ours by its name.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from streambank.control.place import SUFFIX
from streambank.core.names import STANDBY
from streambank.declaration.declaration import Job
from streambank.declaration.fields import Source
from streambank.declaration.places.copies import NEAREST, are_apart, without_generation
from streambank.storage import followed, is_inside, upwards

_CHECKPOINT, OUTPUT, TABLE = "the checkpoint", "the output", "the table"
SCRATCH, STAGED = "the scratch of drills", "the staged state"
_DATA = (_CHECKPOINT, OUTPUT, TABLE)
_OURS = re.compile(
    r"[._]streambank.*|.+\.(?:control|drills|savepoints|work)|.+\.(?:streambank|restored)\.json|.+\.quarantine-.*",
    re.IGNORECASE,
)
"""Names that Streambank gives to what it lays beside a checkpoint, an output and a repository, or in them."""


@dataclass(frozen=True, slots=True)
class Place:
    """A location that a job, a site or a copy uses, and what messages call both."""

    owner: str
    what: str
    location: str


def refuse_shared(jobs: Mapping[str, Job], source: Source) -> None:
    """Hold all jobs of a file against each other.

    Raises:
        InputError: Two share what they must not (code `bad-declaration`).
    """
    live, copies = _everywhere(jobs)
    names = ((one.original.name, one.copy.name, one.name) for one in copies if one.original and one.copy)
    _refuse_shared_names(names, jobs, source)
    checkpoints = (
        ((job.original or job).name, job.savepoint_name(query), location)
        for job in (*live, *copies)
        for query, location in job.queries.items()
    )
    _refuse_shared_checkpoints(checkpoints, source)
    _refuse_in_data(live, source)
    _refuse_copies_not_apart(live, copies, source)


def _refuse_shared_checkpoints(checkpoints: Iterable[tuple[str, str, str]], source: Source) -> None:
    """Two queries in one directory destroy each other's state, nested directories included.

    Args:
        checkpoints: Of each query its job, what messages call it, and its checkpoint.

    Raises:
        InputError: Two share one (code `bad-declaration`).
    """
    at: dict[str, tuple[str, str]] = {}
    inside: dict[str, tuple[str, str]] = {}  # what holds a checkpoint, with the first one that it holds
    for job, owner, location in checkpoints:
        place, *above = upwards(followed(location))
        taken = inside.get(place) or next((at[one] for one in (place, *above) if one in at), None)
        if taken is not None:
            other, taken_by = taken
            raise source.mistake(
                ("jobs", job, "checkpoint"),
                f"{location} is, contains or is inside the checkpoint {other} of {taken_by}",
                "Name another directory.",
            )
        at[place] = (location, owner)
        for one in above:
            inside.setdefault(one, at[place])


def _refuse_shared_names(
    copies: Iterable[tuple[str, str, str]], jobs: Collection[str], source: Source
) -> None:
    """A cluster finds drivers by the name of their job: a copy must not have that of another job.

    Args:
        copies: Of each copy its job, its name, and what its drivers are called.

    Raises:
        InputError: Two have one name (code `bad-declaration`).
    """
    taken = dict.fromkeys(jobs, "a job")
    for job, copy, name in copies:
        if name in taken:
            raise source.mistake(
                ("jobs", job, "copies", copy),
                f"its drivers would be called {name}, and so are those of {taken[name]}",
                "Give the copy another name.",
            )
        taken[name] = f"the copy {copy} of job {job}"


def declared_places(jobs: Mapping[str, Job]) -> Iterator[Place]:
    """Every location that the jobs of a file are declared to use, at each of their sites and on each copy."""
    live, copies = _everywhere(jobs)
    for job in live:
        yield from _of_live(job)
    for job in copies:
        yield from (place for _, place in _of_copy(job))


def _everywhere(jobs: Mapping[str, Job]) -> tuple[list[Job], list[Job]]:
    standbys = [job.at_site(STANDBY) for job in jobs.values() if job.standby is not None]
    return [*jobs.values(), *standbys], [job.as_copy(name) for job in jobs.values() for name in job.copies]


def why_taken(place: str, jobs: Iterable[Job], within: str) -> str | None:
    """Why nobody may be let write to a place by its name alone; None where nothing speaks against it.

    Args:
        within: The location below which places may be named. It may lie in a declared place itself.
    """
    names = followed(place).removeprefix(followed(within)).strip("/").split("/")
    if any(_OURS.fullmatch(one) or without_generation(one) != one for one in names):
        return "Streambank gives such names to what it keeps"
    by_name = {job.name: job for job in jobs}
    records = (
        Place(f"job {job.name}", "the records", job.control) for job in by_name.values() if job.control
    )
    for one in (*declared_places(by_name), *records):
        apart = are_apart(followed(place), followed(one.location))
        if not apart and not is_inside(within, one.location):
            return f"it is not apart from {one.what} {one.location} of {one.owner}"
    return None


def _refuse_in_data(live: Sequence[Job], source: Source) -> None:
    """Make sure that nothing lies in a checkpoint, and nothing of ours in an output that is declared.

    What is in a checkpoint is lost with it; what is in an output is read as rows, or removed by VACUUM as no
    part of the table. A checkpoint may be in an output of files: of that doctor warns.

    Raises:
        InputError: Something does (code `bad-declaration`).
    """
    places = [(job.name, place) for job in live for place in _of_live(job)]
    paths = {location: list(_upwards(location)) for location in {one.location for _, one in places}}
    data = {paths[one.location][0]: (job, one) for job, one in reversed(places) if one.what in _DATA}
    for job, place in places:
        for other, holder in (data[one] for one in paths[place.location] if one in data):
            if _is_lost(place, holder):
                raise source.mistake(
                    ("jobs", other, "checkpoint") if holder.what == _CHECKPOINT else ("jobs", job),
                    f"{place.what} {place.location} is inside {holder.what} {holder.location} "
                    f"of {holder.owner}",
                    "Name a directory elsewhere, best on another disk.",
                )


def _is_lost(place: Place, holder: Place) -> bool:
    if holder.what == _CHECKPOINT:
        return place.what != _CHECKPOINT
    if place.what in (OUTPUT, TABLE) or (place.what == _CHECKPOINT and holder.what == OUTPUT):
        return False
    from streambank.inputs.folders import DataFolders  # where a DAG is parsed, only if something is suspected

    return DataFolders(outputs=(holder.location,)).refusal(place.location, place.what) is not None


def _refuse_copies_not_apart(live: Sequence[Job], copies: Sequence[Job], source: Source) -> None:
    """Make sure that nothing of a copy is in anything of a job, a site or another copy, or the other way.

    Raises:
        InputError: Something is (code `bad-declaration`).
    """
    places = [place for job in live for place in _of_live(job)] if copies else []
    written = {job.name: list(_of_copy(job)) for job in copies}
    at: dict[str, list[Place]] = defaultdict(list)
    below: dict[str, list[Place]] = defaultdict(list)
    for place in (*places, *(one for own in written.values() for _, one in own)):
        for level, above in enumerate(_upwards(place.location)):
            (below if level else at)[above].append(place)
    for job in copies:
        assert job.copy is not None and job.original is not None
        for field, own in written[job.name]:
            path = list(_upwards(own.location))
            for other in (*(one for above in path for one in at[above]), *below[path[0]]):
                if other.owner != own.owner and not are_apart(
                    followed(own.location), followed(other.location)
                ):
                    raise source.mistake(
                        ("jobs", job.original.name, "copies", job.copy.name, field),
                        f"{own.location} is not apart from {other.what} {other.location} of {other.owner}",
                        "Name a directory elsewhere.",
                    )


def _of_live(job: Job) -> Iterator[Place]:
    """What a job is declared to use at one of its sites."""
    owner = f"job {job.name}" if job.primary is None else f"the standby of job {job.name}"
    for place in job.queries.values():
        yield Place(owner, _CHECKPOINT, place)
    yield Place(owner, "the repository", job.repository)
    control = f"{job.control}/{job.name}" if job.control else f"{job.repository}{SUFFIX}"
    yield Place(owner, "the control location", control)
    for place in job.replicate.to:
        yield Place(owner, "the replica", place)
    for what, at in ((SCRATCH, job.drill.scratch), (STAGED, job.state.work)):
        if at is not None:
            yield Place(owner, what, at)
    for sink in job.sinks:
        if sink.kind == "delta":
            yield Place(owner, TABLE, sink.table)
    if job.primary is not None and job.standby is not None:
        for place in job.standby.outputs.values():
            yield Place(owner, OUTPUT, place)
        return
    for copy in job.copies.values():
        if copy.repository not in (None, NEAREST):
            yield Place(owner, "the repository", str(copy.repository))
    moved = (*job.copies.values(), *([job.standby] if job.standby else ()))
    for old in {old for one in moved for old in one.outputs if "/" in old}:
        yield Place(owner, OUTPUT, old)


def _of_copy(job: Job) -> Iterator[tuple[str, Place]]:
    """What is written for a copy, each with the field of the declaration."""
    assert job.copy is not None and job.original is not None
    owner = f"the copy {job.copy.name} of job {job.original.name}"
    for field, place in job.copy.places():
        if field == "control":
            yield field, Place(owner, "the control location", f"{place}/{job.name}")
        elif field == "outputs":
            yield field, Place(owner, OUTPUT, place)
        else:
            yield field, Place(owner, f"the {'savepoints' if place == job.repository else field}", place)


def _upwards(location: str) -> Iterator[str]:
    """A location without numbers of generations, then each that holds it; links of this machine followed."""
    scheme, mark, path = followed(location).partition("://")
    yield from upwards(f"{scheme}{mark}{'/'.join(map(without_generation, path.split('/')))}")
