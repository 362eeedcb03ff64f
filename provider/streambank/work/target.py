"""The place that a layout writes into: whether it may be used, and its note while it is not finished."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from streambank.core.errors import ConflictError, InputError, NotFoundError, RefusedError
from streambank.core.json_text import loads
from streambank.storage.locations import is_inside
from streambank.storage.store import FileInfo, Store

METADATA = "metadata"
NOTE = "streambank_restore"
"""The field of an unfinished target's `metadata` that holds the note."""
_MOST_BYTES = 256 << 20
"""Room for the names of two million files; what is larger is no note of ours."""
NOTE_EVERY_S = 1.0
"""So often whoever writes into a target looks whether it is still theirs."""

IsLive = Callable[[Mapping[str, Any]], bool | None]
"""Whether the process that an owner describes still lives; None where that is not known from here."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who lays out, for the note in the target.

    Attributes:
        details: What tells the process from others: host, boot, pid, ...
        is_live: Judges the details of another note.
        exclusive: A lock elsewhere makes sure that nobody else lays out into this target, so that a note
            that is there is that of a dead process whatever it says.
    """

    details: Mapping[str, Any]
    is_live: IsLive
    exclusive: bool = False


def check_target_apart(target: str, repository: str, checkpoint: str) -> None:
    """Make sure that a restore writes neither into the repository nor into the checkpoint that was saved.

    Raises:
        InputError: It would (codes `inside-repository`, `inside-checkpoint`).
    """
    if is_inside(target, repository):
        raise InputError(
            f"{target} lies in the repository {repository}.",
            code="inside-repository",
            hint="Restore into a directory elsewhere: what is in a repository belongs to it alone.",
        )
    # What a manifest says is a text, which need not be a location of this machine.
    if checkpoint and target.startswith(checkpoint.rstrip("/") + "/"):
        raise InputError(
            f"{target} lies in the checkpoint {checkpoint} that was saved.",
            code="inside-checkpoint",
            hint="Restore into a directory beside it: nothing is ever written into a live checkpoint.",
        )


def check_target(target: Store, owner: Owner) -> list[FileInfo]:
    """Make sure that a target may be used, and return what has to be removed from it first. Reads only.

    Raises:
        RefusedError: `target-not-empty`: it holds files that no dead layout left.
        ConflictError: `restore-in-progress`: a layout that may be alive is at work there.
    """
    there = list(target.list())
    if not there:
        return []
    note = read_note(target)
    if note is None:
        some = ", ".join(sorted(info.path for info in there)[:3])
        raise RefusedError(
            f"{target.uri} is not empty: it holds {some}{', ...' if len(there) > 3 else ''}.",
            code="target-not-empty",
            hint="Restore into a new or empty directory, or into the job's next generation.",
        )
    foreign = {info.path for info in there} - set(note["files"]) - {METADATA}
    if foreign:
        raise RefusedError(
            f"{target.uri} holds files of a dead restore, and {min(foreign)}, which it did not write.",
            code="target-not-empty",
            hint="Look at that file, remove the directory, or restore into another one.",
        )
    live = False if owner.exclusive else owner.is_live(note["owner"])
    if live is not False:
        who = ", ".join(f"{name} {value}" for name, value in note["owner"].items())
        raise ConflictError(
            f"A restore {'is' if live else 'may be'} at work in {target.uri} ({who}).",
            code="restore-in-progress",
            hint="Wait for it. If you know that it is dead, remove the directory and restore again.",
        )
    return there


def read_note(target: Store) -> dict[str, Any] | None:
    """The note of an unfinished layout; None where the target's `metadata` is none."""
    try:
        if target.stat(METADATA).size_bytes > _MOST_BYTES:
            return None
        fields = loads(target.read(METADATA))
        note = fields[NOTE]
        files = note["files"]
        if isinstance(note["owner"], dict) and isinstance(files, list) and {*map(type, files)} <= {str}:
            return dict(note)
    except (NotFoundError, ValueError, KeyError, TypeError):
        return None
    return None


class Fence:
    """Keeps whoever was left behind out of a target that is somebody else's by now.

    A process may stand still for long (a machine that sleeps, a storage that hangs), and be taken for dead;
    an executor may outlive its restore. When it goes on, another restore may be at work in its place, or a
    query.
    """

    def __init__(self, target: Store, token: str | None) -> None:
        self._target = target
        self._token = token
        self._lock = threading.Lock()
        self._looked_s = -NOTE_EVERY_S

    def check(self) -> None:
        """Look, unless that was done just now.

        Raises:
            ConflictError: The note is gone, or another one (code `target-moved`).
        """
        with self._lock:
            if time.monotonic() - self._looked_s >= NOTE_EVERY_S:
                self._look()

    def look(self) -> None:
        """Look, before a step that cannot be taken back.

        Raises:
            ConflictError: As `check`.
        """
        with self._lock:
            self._look()

    def _look(self) -> None:
        note = read_note(self._target)
        if note is None or note.get("token") != self._token:
            raise ConflictError(
                f"The restore into {self._target.uri} that this process worked for is over.",
                code="target-moved",
                hint="Nothing to do if it was ended. Otherwise see who else restores into this directory.",
            )
        self._looked_s = time.monotonic()
