"""What drills left behind that were killed: the driver of the copy, and the copy.

Each drill looks for those of earlier ones below the same scratch location, and removes what is older than any
drill may get. A copy of `--keep` is marked as such, and stays.
"""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from streambank.core.errors import StorageError, StreambankError
from streambank.core.python310 import UTC
from streambank.core.units import utc_now
from streambank.declaration.declaration import Job
from streambank.drills.copy_of_job import copy_of
from streambank.driver.launcher import Launcher
from streambank.job.stop import stop_job
from streambank.storage import local_path, open_store
from streambank.storage.store import Store

_log = logging.getLogger(__name__)

KEPT = "kept"
"""A file in the scratch of a drill whose copy stays."""
MARGIN_S = 86_400.0
"""How much older than its application may run a drill is that counts as killed."""
_NAME = re.compile(r"drill-(\d{8}T\d{6})Z-[0-9a-f]{6}")


def name_of(at: datetime, token: str) -> str:
    """The name of a drill's scratch.

    Args:
        at: When the drill began, in UTC.
        token: Six hexadecimal digits.
    """
    return f"drill-{at:%Y%m%dT%H%M%SZ}-{token}"


def keep(scratch: str) -> None:
    """Mark a copy as one that stays."""
    open_store(scratch).write(KEPT, b"")


def clean_up(
    job: Job, folder: str, *, timeout_s: float, by: Mapping[str, str], launcher: Launcher
) -> list[str]:
    """End and remove what killed drills have left.

    Args:
        job: The live job.
        folder: The location below which drills lay out their copies.
        timeout_s: How long the application of a drill may run.
        by: Who asks.
        launcher: Where drivers run.

    Returns:
        The locations that were removed. What could not be is logged, and left for the next drill.
    """
    removed = []
    for scratch in left_by_drills(folder, timeout_s + MARGIN_S):
        try:
            copy = copy_of(job, scratch, {})
            if copy.records().lease.view() is not None:
                stop_job(copy, by=by, why="its drill was killed", force_after_s=0.1, launcher=launcher)
            remove_all(open_store(scratch))
        except StreambankError as error:
            _log.warning("What a drill left in %s could not be removed: %s", scratch, error.message)
            continue
        removed.append(scratch)
    return removed


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


def remove_all(store: Store) -> None:
    """Remove everything at a location, and the location.

    Args:
        store: It.

    Raises:
        StorageError: The environment failed.
    """
    path = local_path(store.uri)
    if path is not None:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError(
                f"The copy of a drill in {path} could not be removed: {error}",
                code="copy-not-removed",
                hint="Remove it yourself; it holds the state of the job as it was.",
            ) from error
        with contextlib.suppress(OSError):  # the folder of the job, where no other drill has a copy in it
            path.parent.rmdir()
        return
    for info in list(store.list()):
        store.delete(info.path)
    store.prune()
