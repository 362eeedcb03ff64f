"""What drills left behind that were killed: the driver of the copy, and the copy.

Each drill looks for those of earlier ones below the same scratch location, and removes what is older than any
drill may get and says itself that it is of this job. A copy of `--keep` is marked as such, and stays.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

from streambank.control.control import JobControl
from streambank.control.records import encode_json
from streambank.core.errors import NotFoundError, RefusedError, StreambankError
from streambank.core.json_text import loads
from streambank.core.units import say_count, utc_now
from streambank.declaration.declaration import Job
from streambank.drills.copy_of_job import copy_of
from streambank.driver.launcher import NOT_ITS_DRIVER, Launcher
from streambank.job.stop import stop_job
from streambank.storage import local_path, open_store, service_name
from streambank.storage.local.trees import DirectoryIdentity
from streambank.storage.store import read_record
from streambank.work.remove import just_made, remove_tree

_log = logging.getLogger(__name__)

KEPT = "kept"
"""A file in the scratch of a drill whose copy stays."""
MARGIN_S = 86_400.0
"""How much older than its application may run a drill is that counts as killed."""
MARKER = "drill.json"
"""A file in the scratch of a drill that says whose it is: others may drill below the same folder."""
_NAME = re.compile(r"drill-(\d{8}T\d{6})Z-[0-9a-f]{6}")


def name_of(at: datetime, token: str) -> str:
    """The name of a drill's scratch.

    Args:
        token: Six hexadecimal digits.
    """
    return f"drill-{at:%Y%m%dT%H%M%SZ}-{token}"


def keep(scratch: str) -> None:
    """Mark a copy as one that stays."""
    open_store(scratch).write(KEPT, b"")


def mark(scratch: str, control: JobControl) -> DirectoryIdentity | None:
    """Say of what job a copy is, before anything else is written there; which directory that has made."""
    store = open_store(scratch)
    store.write(MARKER, encode_json(_said_of(control)))
    return just_made(store)


def is_of(scratch: str, control: JobControl) -> bool:
    """Whether a copy says that it is of the job with these records; one that says nothing is nobody's."""
    try:
        return bool(loads(read_record(open_store(scratch), MARKER)) == _said_of(control))
    except (NotFoundError, ValueError):
        return False


def _said_of(control: JobControl) -> dict[str, str | None]:
    return {"job": control.name, "records": service_name(control.store.uri)}


def clean_up(
    job: Job, folder: str, *, timeout_s: float, by: Mapping[str, str], launcher: Launcher
) -> list[str]:
    """End and remove what killed drills have left.

    Returns:
        The locations that were removed. What could not be is logged, and left for the next drill; what does
        not say that it is of this job is logged, and stays, but for an empty folder.
    """
    removed: list[str] = []
    strange: list[str] = []
    control = job.records()
    for scratch in left_by_drills(folder, timeout_s + MARGIN_S):
        try:
            if not is_of(scratch, control):  # all is gone where a removal was killed right before its end
                (removed if _end_empty(scratch) else strange).append(scratch)
                continue
            copy = copy_of(job, scratch, {})
            if copy.records().lease.view() is not None:
                check_was_started(copy)
                stop_job(copy, by=by, why="its drill was killed", force_after_s=0.1, launcher=launcher)
            remove(scratch)
        except StreambankError as error:
            _log.warning("What a drill left in %s could not be removed: %s", scratch, error.message)
            continue
        removed.append(scratch)
    if strange:
        _log.warning(
            "%s, such as %s, may be what killed drills have left, and none says that it is of job %s with "
            "the records that it has now: they stay. Remove yourself what is yours.",
            say_count(len(strange), "folder"),
            strange[0],
            job.name,
        )
    return removed


def check_was_started(copy: Job) -> None:
    """Make sure that a start has begun the driver of a copy: by what it signs, where there are keys.

    Raises:
        IntegrityError: That is not signed, and has to be.
        RefusedError: Nothing says that a start did (code `not-its-driver`).
    """
    records = copy.records()
    for name in copy.queries:
        records.generation(name)
    if records.desired() is None:
        raise RefusedError(
            f"The records in {records.store.uri} name a driver, and no start has ever been recorded there.",
            code=NOT_ITS_DRIVER,
            hint="Look at who can write where drills have their scratch, and remove that directory by hand.",
        )


def left_by_drills(folder: str, older_than_s: float) -> Iterator[str]:
    """Scratch locations of drills that began so long ago, but for those that are kept."""
    store = open_store(folder)
    begun = utc_now() - timedelta(seconds=older_than_s)
    for name in sorted(store.names("")):
        found = _NAME.fullmatch(name)
        if found is None or store.exists(f"{name}/{KEPT}"):
            continue
        if datetime.strptime(found[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC) < begun:
            yield f"{store.uri.rstrip('/')}/{name}"


def remove(scratch: str, made: DirectoryIdentity | None = None) -> None:
    """Remove everything at a scratch location, and the location; what says whose it is goes last.

    Args:
        made: What `mark` gave, of a scratch of one's own; None for what was found.

    Raises:
        RefusedError: Something else lies there by now; see `remove_tree`.
    """
    store = open_store(scratch)
    remove_tree(store, last=(MARKER,), judged=made)
    _end_empty(store.uri.rpartition("/")[0])  # the folder of the job, where no other drill has a copy in it


def _end_empty(location: str) -> bool:
    """Remove a folder of this machine in which there is nothing; whether it was removed."""
    path = local_path(location)
    with contextlib.suppress(OSError):
        if path is not None:
            path.rmdir()
            return True
    return False
