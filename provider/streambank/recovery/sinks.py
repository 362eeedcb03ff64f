"""Where the sinks of a savepoint stand, what a choice makes of that, and taking them back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from streambank.errors import IntegrityError, RefusedError
from streambank.savepoint.entry import FileEntry
from streambank.savepoint.manifest import Manifest
from streambank.savepoint.repository import Repository
from streambank.sinks.file_rollback import RollbackReport, roll_back, stand
from streambank.sinks.file_sink import KIND
from streambank.sinks.file_standing import FileSinkStanding, SavedLog, read_saved_log
from streambank.storage import normalize_location, open_store
from streambank.storage.base import Store

SinkChoice = Literal["refuse", "rollback", "accept"]
Mode = Literal["no-claim", "claim", "fork"]


@dataclass(frozen=True, slots=True)
class GuardedSink:
    """A file sink of the savepoint as it is now.

    Attributes:
        was: Where it was when the savepoint was taken.
        store: Where it is now.
        saved: The log that the savepoint keeps.
        standing: How it compares.
    """

    was: str
    store: Store
    saved: SavedLog
    standing: FileSinkStanding


@dataclass(frozen=True, slots=True)
class Sinks:
    """All sinks of a savepoint.

    Attributes:
        guarded: Those that can be judged and taken back.
        unguarded: Those that are only named: kind and path.
    """

    guarded: tuple[GuardedSink, ...]
    unguarded: tuple[tuple[str, str], ...]

    def to_dicts(self) -> list[dict[str, Any]]:
        """Each sink as JSON, for plans and reports."""
        named = [
            {
                "kind": kind,
                "path": path,
                "guarded": False,
                "safe": None,
                "says": f"The sink {path} is not guarded: what it was sent after the savepoint stays there.",
            }
            for kind, path in self.unguarded
        ]
        return [*(sink.standing.to_dict() for sink in self.guarded), *named]


def look_at_sinks(repository: Repository, manifest: Manifest, moved: Mapping[str, str]) -> Sinks:
    """Compare each sink with the savepoint. Reads only.

    Args:
        repository: Where the savepoint is.
        manifest: The savepoint.
        moved: Sinks that are elsewhere now: the location in the savepoint to the one now.

    Raises:
        IntegrityError: What the savepoint keeps of a sink is damaged.
        FormatError: It cannot be understood.
    """
    places = {normalize_location(old): normalize_location(new) for old, new in moved.items()}
    guarded: list[GuardedSink] = []
    unguarded: list[tuple[str, str]] = []
    for record in manifest.sinks:
        kind, path = str(record.get("kind")), str(record.get("path"))
        if kind != KIND or record.get("guarded") is not True:
            unguarded.append((kind, path))
            continue
        entries = [FileEntry.from_dict(fields) for fields in record.get("files", ())]
        content = {entry.path: repository.read_object(entry.digest) for entry in entries}
        store = open_store(places.get(path, path))
        if record.get("batch") != manifest.batch:
            raise IntegrityError(
                f"Savepoint {manifest.savepoint} is of batch {manifest.batch}, but what it keeps of the sink "
                f"{path} is of batch {record.get('batch')}.",
                code="savepoint-damaged",
                hint="Use another savepoint.",
            )
        saved = read_saved_log(record, content, store.uri)
        guarded.append(GuardedSink(path, store, saved, stand(saved, store, path)))
    return Sinks(tuple(guarded), tuple(unguarded))


def refusals(sinks: Sinks, choice: SinkChoice, mode: Mode) -> list[RefusedError]:
    """Why a restore must not go on with this choice; empty where it may."""
    found = []
    for sink in sinks.guarded:
        standing = sink.standing
        if mode == "fork":
            if choice != "accept":
                found.append(
                    RefusedError(
                        f"The file sink {standing.path} belongs to the query that is forked, and two queries "
                        "in one output directory lose each other's rows.",
                        code="fork-shares-sink",
                        hint="Let the fork write elsewhere, and say so with --sink accept.",
                    )
                )
        elif standing.safe:
            continue
        elif choice == "refuse":
            found.append(
                RefusedError(
                    standing.sentence(),
                    code="sink-would-lose-rows",
                    hint=_ways_out(standing),
                )
            )
        elif choice == "rollback" and not standing.can_roll_back:
            found.append(
                RefusedError(
                    standing.sentence(),
                    code="sink-cannot-roll-back",
                    hint="Bring back what is missing, use another savepoint, or say --sink accept.",
                )
            )
        elif choice == "accept" and standing.unfinished:
            found.append(
                RefusedError(
                    standing.sentence(),
                    code="sink-rollback-unfinished",
                    hint="Finish it: restore with --sink rollback.",
                )
            )
    return found


def _ways_out(standing: FileSinkStanding) -> str:
    rollback = "--sink rollback takes the sink back to the savepoint and sets later files aside; "
    accept = "--sink accept restores all the same and leaves the sink as it is."
    return (rollback if standing.can_roll_back else "") + accept


def roll_back_sinks(sinks: Sinks, savepoint: str) -> list[RollbackReport]:
    """Take every guarded sink back.

    Raises:
        RefusedError, ConflictError, StorageError: See `file_rollback.roll_back`; a second try goes on from
        there.
    """
    return [roll_back(sink.saved, sink.store, sink.was, savepoint) for sink in sinks.guarded]
