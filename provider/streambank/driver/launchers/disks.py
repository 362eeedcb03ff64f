"""The disks of this machine on which a job works, and what they have left."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from streambank.control.control import JobControl
from streambank.declaration.declaration import Job
from streambank.driver.environment import driver_environment
from streambank.storage import local_path, normalize_location
from streambank.storage.local.space import Space, space_at

LOCAL_DIR = "spark.local.dir"
TEMPORARY = "temporary files"


@dataclass(frozen=True, slots=True)
class DiskLocation:
    """Where files of a job lie, such as `checkpoint`, and whether a driver cannot work without room there."""

    what: str
    location: str
    needed: bool = True

    @property
    def path(self) -> Path | None:
        """The path; None for what is not on a file system of this machine."""
        path = local_path(self.location)
        return None if path is None else Path(path)

    @property
    def is_there(self) -> bool:
        """Whether it is on a file system of this machine, and may be seen."""
        return self.path is not None and os.path.exists(self.path)  # noqa: PTH110 - that one raises

    def __str__(self) -> str:
        """Its name in a sentence: `the checkpoint /data/ck`, `the folder of records /data/control`."""
        folder = "folder of " if self.what.endswith("s") else ""
        return f"the {folder}{self.what} {self.path or self.location}"


@dataclass(frozen=True, slots=True)
class Disk:
    """One file system, and what lies there."""

    space: Space
    places: tuple[DiskLocation, ...]

    @property
    def holds(self) -> str:
        """What lies there, as a list in a sentence."""
        *first, last = map(str, self.places)
        return f"{', '.join(first)} and {last}" if first else last


def places_of(job: Job, control: JobControl, query: str) -> Iterator[DiskLocation]:
    """Where one query of a job and what keeps it lie, as far as that is known."""
    generation = control.generation(query)
    yield DiskLocation("checkpoint", generation.location if generation is not None else job.queries[query])
    yield DiskLocation("records", control.store.uri)
    yield DiskLocation("repository", job.repository, needed=False)
    facts = control.query_facts(query) or {}
    written = facts.get("sink_path")
    if isinstance(written, str) and written:
        # What an earlier generation wrote to, the next driver may have left: it refuses no start.
        same = generation is None or facts.get("generation") == generation.number
        left = {} if generation is None else generation.new_sinks
        yield DiskLocation("output", left.get(normalize_location(written), written), needed=same)
    if not job.launch.in_cluster:
        told = driver_environment(os.environ, extra=job.env)
        named = told.get("SPARK_LOCAL_DIRS") or job.spark.get(LOCAL_DIR) or tempfile.gettempdir()
        yield from (DiskLocation("local state", one.strip()) for one in named.split(",") if one.strip())
        yield DiskLocation(TEMPORARY, tempfile.gettempdir(), needed=False)


def disks_of_job(job: Job, control: JobControl) -> tuple[Disk, ...]:
    """The file systems of this machine on which a job works; places that are not there are left out.

    Raises:
        StreambankError: The records cannot be read, or a file system cannot be asked.
    """
    places = (place for name in job.queries for place in places_of(job, control, name))
    return disks_of(place for place in places if place.is_there)


def disks_of(places: Iterable[DiskLocation]) -> tuple[Disk, ...]:
    """The file systems of some places, each once; what is not on one of this machine is left out.

    So is a file system that does not say how large it is. Of a place that is not there yet it is the one on
    which it would be made.

    Raises:
        StorageError: One cannot be asked.
    """
    found: dict[int, tuple[Space, list[DiskLocation]]] = {}
    for place in places:
        if place.path is not None:
            space = space_at(place.path)
            there = found.setdefault(space.device, (space, []))[1]
            if place not in there:
                there.append(place)
    return tuple(Disk(space, tuple(there)) for space, there in found.values() if space.total_bytes)


def check_room(job: Job, control: JobControl) -> None:
    """Make sure that a driver which is started now could work: that no disk it writes to is full.

    Of a driver in a cluster only the records are asked: its machines may mount other disks.

    Raises:
        StorageError: One is full (code `disk-full`) or read-only (`read-only`); the message names it.
    """
    places = [place for name in job.queries for place in places_of(job, control, name) if place.needed]
    if job.launch.in_cluster:
        places = [place for place in places if place.what == "records"]
    for disk in disks_of(places):
        one, *others = disk.places
        lies = f" (so are {' and '.join(map(str, others))})" if others else ""
        refusal = disk.space.refusal(f"No driver of job {job.name} can work now: {one}{lies}")
        if refusal is not None:
            raise refusal
