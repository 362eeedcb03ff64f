"""The quarantine of one compaction: a folder beside the checkpoint that says what is in it, and can go back.

```
quarantine.json     what is to be moved and why; written before the first file moves, never changed
files/<path>        the files
done.json           what was won; written when everything is moved and the checkpoint was planned again
purging.json        that it is being deleted for good
```

Whoever finds `quarantine.json` without `done.json` knows that a compaction, or an undo, broke off: an undo
brings everything back, however far it came.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from streambank.compaction.dead_files import DeadFile
from streambank.compaction.plan import CompactionPlan, Mode
from streambank.core.errors import InputError, NotFoundError
from streambank.core.shape import JsonName, decode, encode
from streambank.core.units import to_json_time, utc_now
from streambank.repository.digest import DEFAULT_DIGEST
from streambank.repository.sealed import damaged, decode_record, encode_record
from streambank.storage import Store, is_inside, normalize_location
from streambank.storage.store import read_record

RECORD_KEY = "quarantine.json"
DONE_KEY = "done.json"
PURGING_KEY = "purging.json"


@dataclass(frozen=True, slots=True)
class QuarantineRecord:
    """What `quarantine.json` says."""

    checkpoint: str
    mode: Mode
    query_id: str | None
    batch: int | None
    commit_digest: str | None
    kept_batches: tuple[int, ...]
    created_at: datetime
    by: Mapping[str, str]
    why: str
    entries: Annotated[tuple[DeadFile, ...], JsonName("files")]

    @classmethod
    def of(
        cls, plan: CompactionPlan, checkpoint: Store, *, by: Mapping[str, str], why: str
    ) -> QuarantineRecord:
        return cls(
            checkpoint=checkpoint.uri,
            mode=plan.mode,
            query_id=plan.query_id,
            batch=plan.batch,
            commit_digest=plan.commit_digest,
            kept_batches=tuple(closure.batch for closure in plan.kept),
            created_at=utc_now(),
            by=dict(by),
            why=why,
            entries=plan.dead,
        )


class Quarantine:
    """One quarantine."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def begin(self, record: QuarantineRecord) -> None:
        """Say what is going to be moved, before anything is.

        Raises:
            ConflictError: Another compaction has this folder (code `exists`).
        """
        self.store.write(RECORD_KEY, encode_record(encode(record), DEFAULT_DIGEST), exclusive=True)

    def record(self) -> QuarantineRecord | None:
        """What is in it; None where there is no quarantine.

        Raises:
            IntegrityError: The record is damaged (code `record-damaged`).
            FormatError: A newer Streambank wrote it.
        """
        try:
            data = read_record(self.store, RECORD_KEY)
        except NotFoundError:
            return None
        what = f"record {RECORD_KEY} of the quarantine {self.store.uri}"
        return decode(QuarantineRecord, decode_record(data, what), what, refuse=damaged)

    def existing(self) -> QuarantineRecord:
        """Its record.

        Raises:
            NotFoundError: There is no quarantine (code `not-a-quarantine`).
        """
        record = self.record()
        if record is None:
            raise NotFoundError(
                f"There is no quarantine at {self.store.uri}.",
                code="not-a-quarantine",
                hint=f"Name the folder that holds {RECORD_KEY}; a compaction says where it is.",
            )
        return record

    def checkpoint(self) -> str:
        """URI of the checkpoint that it is of, for as long as a purge has not ended.

        Raises:
            NotFoundError: There is no quarantine (code `not-a-quarantine`).
        """
        record = self.record()
        if record is None and self.is_purging:
            what = f"record {PURGING_KEY} of the quarantine {self.store.uri}"
            return str(decode_record(read_record(self.store, PURGING_KEY), what)["checkpoint"])
        return self.existing().checkpoint

    def finish(self, won: Mapping[str, Any]) -> None:
        """Say that everything is moved, and what was won."""
        fields = {"at": to_json_time(utc_now()), "won": dict(won)}
        self.store.write(DONE_KEY, encode_record(fields, DEFAULT_DIGEST))

    def won(self) -> dict[str, Any] | None:
        """What `finish` said; None where the compaction, or an undo, broke off."""
        try:
            data = read_record(self.store, DONE_KEY)
        except NotFoundError:
            return None
        found = decode_record(data, f"record {DONE_KEY} of the quarantine {self.store.uri}")["won"]
        return dict(found)

    @property
    def is_purging(self) -> bool:
        return self.store.exists(PURGING_KEY)


def quarantine_location(checkpoint: str, label: str) -> str:
    """Where the quarantine of a compaction (`label`: a time, or a run) is by default: beside its checkpoint.

    Raises:
        InputError: The checkpoint is the whole of a bucket or of a file system (code `no-sibling`).
    """
    scheme, slashes, rest = normalize_location(checkpoint).partition("://")
    if "/" not in rest.strip("/") and not (scheme == "file" and rest.strip("/")):
        raise InputError(
            f"There is no place beside {checkpoint} for a quarantine.",
            code="no-sibling",
            hint="Name one with --quarantine.",
        )
    return f"{scheme}{slashes}{rest}.quarantine-{label}"


def check_place(checkpoint: str, quarantine: str) -> None:
    """Make sure that a quarantine and its checkpoint lie apart.

    Raises:
        InputError: One lies in the other (code `inside-checkpoint`).
    """
    if is_inside(quarantine, checkpoint) or is_inside(checkpoint, quarantine):
        raise InputError(
            f"The quarantine {quarantine} and the checkpoint {checkpoint} must not contain each other.",
            code="inside-checkpoint",
            hint="Leave --quarantine out, or name a separate location, best on the same disk.",
        )
