"""Where a job's records are, for a job that declares no `control`: beside the repository, or inside it.

Whoever writes savepoints should not write records as well, so a job that begins has its records at
`<repository>.control/<job>`. Records that were made inside the repository, at `<repository>/jobs/<job>`, stay
in use until somebody moves them (move.py): wherever a job has records, it never reads as one that never ran.

```
<repository>/jobs/<job>/moved.json       these records are used no more: they are in the place beside it
<repository>.control/<job>/moving.json   a copy that is not finished: those inside the repository still count
```
"""

from __future__ import annotations

from pathlib import Path

from streambank.core.errors import ConflictError, NotFoundError, RefusedError, StorageError
from streambank.core.json_text import loads
from streambank.core.text import visible
from streambank.storage.locations import local_path, normalize_location, open_store
from streambank.storage.store import Store, read_record

SUFFIX = ".control"
"""The records of jobs with savepoints in `x` are in `x.control`."""
INSIDE = "jobs"
"""The folder of a repository that older versions kept records in."""
MOVED = "moved.json"
MOVING = "moving.json"


def beside(repository: str) -> str | None:
    """The control location beside a repository; None where nothing beside it is sure to be seen with it.

    That is so for the root of a bucket, a server or a disk, and for a directory where a disk is mounted: what
    is beside that is on another disk, which another host may not have.
    """
    uri = normalize_location(repository)
    if not uri.partition("://")[2].strip("/").count("/") and not uri.startswith("file:///"):
        return None
    path = local_path(uri)
    return None if path is not None and _is_apart(path) else f"{uri}{SUFFIX}"


def find_records(repository: Store, job: str, *, guess: bool = False) -> Store:
    """The store of a job's records, where no `control` is declared.

    Args:
        repository: The store at the root of the repository, which need not exist.
        guess: Whoever has no right to look beside the repository looks inside only: for those who have
            savepoints and no declaration, and change nothing of the job.

    Returns:
        Where its records are; where they are to be made if it has none.

    Raises:
        ConflictError: It has records both in the repository and beside it (code `records-twice`).
        RefusedError: Its records were moved, and are in neither place (`records-moved`).
        StorageError: One of the places cannot be read.
    """
    inside = repository.child(f"{INSIDE}/{job}")
    place = beside(repository.uri)
    if place is None:
        _refuse_hidden(repository.uri, inside, job)
        return at_declared(inside, job)
    apart = open_store(place).child(job)
    here = inside.names()
    try:
        there = apart.names()
    except StorageError as error:
        if error.code != "no-permission" or not (guess or (here and MOVED not in here)):
            raise
        return inside  # rights on the repository alone are what a job had that keeps its records there
    if MOVED in there or (MOVED in here and not there):
        raise _moved(job, apart if MOVED in there else inside)
    if MOVING in there and not here:
        raise _moving(job, apart)
    if not here or MOVED in here:
        return apart
    if there and MOVING not in there:
        raise ConflictError(
            f"Job {job} has records both at {inside.uri} and at {apart.uri}, so it is not known which count.",
            code="records-twice",
            hint="Look at the newest files of both, and move the folder away that is not the job's; or "
            "declare as `control` the place that is.",
        )
    return inside


def at_declared(store: Store, job: str) -> Store:
    """The same store, if the records of a job are in it, or may be made in it.

    Raises:
        ConflictError: Records are being copied into it (code `records-moving`).
        RefusedError: They were moved away (`records-moved`).
    """
    names = store.names()
    if MOVED in names:
        raise _moved(job, store)
    if MOVING in names:
        raise _moving(job, store)
    return store


def moved_to(store: Store) -> str | None:
    """The control location that the records of a place were moved to; None where they were not moved.

    It is what a file says: to be shown and compared, and not to be opened.
    """
    try:
        said = loads(read_record(store, MOVED))
    except (NotFoundError, ValueError):
        return None
    return str(said.get("to")) if isinstance(said, dict) else None


def _moved(job: str, store: Store) -> RefusedError:
    to = moved_to(store) or "another place"
    return RefusedError(
        f"The records of job {job} were moved from {store.uri} to {visible(to)}, which is not where this "
        "looks for them, or is empty.",
        code="records-moved",
        hint="Declare that location as `control`. If it is empty, bring it back: mount its disk, or copy it "
        f"from a backup. If it is lost for good, remove {store.uri}/{MOVED}: the job then counts as one that "
        "has lost its records.",
    )


def _moving(job: str, store: Store) -> ConflictError:
    return ConflictError(
        f"The records of job {job} are being copied to {store.uri}, or the copy has broken off.",
        code="records-moving",
        hint=f"Wait until it has ended; or finish it: `streambank job move-records {job} --to LOCATION`, "
        "with the same jobs file as before.",
    )


def _refuse_hidden(repository: str, inside: Store, job: str) -> None:
    """A disk that was mounted at the repository later must not hide the records that were made beside it."""
    uri = normalize_location(repository)
    if local_path(uri) in (None, Path("/")):
        return
    apart = open_store(f"{uri}{SUFFIX}").child(job)
    try:
        there = apart.names()
    except StorageError as error:
        if error.code != "no-permission":
            raise
        return  # this may not look there, so it has not made records there
    if not there or MOVED in there or MOVING in there:
        return
    raise ConflictError(
        f"Job {job} has records at {apart.uri}, beside {uri}, where a disk or a folder is mounted now. So it "
        f"is not known whether these count, or those at {inside.uri}.",
        code="records-twice",
        hint="Look at the newest files of both. Declare as `control` the place that is the job's, or move "
        "the other folder away.",
    )


def _is_apart(path: Path) -> bool:
    """Whether a directory is on another file system than its parent, or a disk or folder is mounted there."""
    from streambank.storage.local.mounts import mount_of

    mount, parent = mount_of(path), mount_of(path.parent)
    return path == path.parent or (mount != parent and path.exists())
