"""Tables that a query writes to and that can be rolled back: what each kind of them tells and does.

A table remembers which batches of a query it holds: Delta by its transaction identifiers, Iceberg in the
summaries of its snapshots, a database by a ledger that is written together with the rows. So a query that
goes back to batch N loses, in silence, what its new batches N+1, N+2, ... carry, unless the table goes back
as well, together with what it remembers.

* `sinks/delta.py`, `sinks/iceberg.py`, `sinks/ledger.py`: one module for each kind
* `sinks/declared.py`: what a job declares of them
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, Protocol

from streambank.core.errors import ConflictError, RefusedError, StorageError, StreambankError
from streambank.core.shape import JsonName, encode
from streambank.core.units import say_count
from streambank.savepoint.sinks import Captured, SinkCapture

Position = Literal["even", "ahead", "behind", "diverged", "not-known"]
BeforeChange = Callable[[], object]
"""What a rollback calls right before it changes the first file of a sink."""
Changing = Callable[[], AbstractContextManager[object]]
"""What a rollback of a table enters right before it commits, and leaves after that.

A `RefusedError` or `ConflictError` that leaves it says that the table is as it was: whoever keeps it has
refused the commit. After any other error it may have been changed.
"""
_MOST_SHOWN = 3


@dataclass(frozen=True, slots=True)
class TableStanding:
    """Where a table stands against the batch of a savepoint.

    Attributes:
        position: `even`: it holds the query's batches up to the savepoint's and no later one; `ahead`: it has
            later ones; `behind`: it lacks some; `diverged`: it went back further since, and has other batches
            of those numbers; `not-known`: it cannot be asked, or does not tell.
        later_batches: How many batches of the query after the savepoint's it holds.
        later_rows: Their rows; None where the table does not tell.
        others: What others have changed since the savepoint's batch, which a rollback would undo.
        cannot: Why it cannot be rolled back, as the rest of a sentence; empty where it can.
        not_known: Why its position is not known, as a sentence.
        transient: Whether asking again may tell what is not known now.
        seen: The state in which the table was compared; a rollback refuses if it has changed since.
        target: Where a rollback leads: a version, a snapshot; empty where that needs no name.
        skips_computing: A batch that the table takes for done is not computed at all, so that a query with
            state cannot go on after it.
        own_name: It remembers batches under a name of the application's own, which a fork shares.
    """

    kind: str
    path: str
    savepoint_batch: int
    position: Position
    sink_batch: int | None = None
    later_batches: int = 0
    later_rows: int | None = None
    others: tuple[str, ...] = ()
    cannot: str = ""
    not_known: str = ""
    hint: str = ""
    transient: bool = False
    seen: str = ""
    target: str = ""
    skips_computing: bool = False
    own_name: bool = False

    @property
    def name(self) -> str:
        return f"{TITLES[self.kind]} {self.path}"

    @property
    def safe(self) -> bool | None:
        """Whether a query that resumes after the savepoint's batch loses and repeats no row, if known."""
        return None if self.position == "not-known" else self.position == "even"

    @property
    def can_roll_back(self) -> bool:
        return self.position in ("even", "ahead", "diverged") and not self.cannot and not self.others

    def sentence(self) -> str:
        """What is wrong, for a person who decides; empty where nothing is."""
        if self.position == "even":
            return ""
        if self.position == "not-known":
            return f"It is not known how far the {self.name} is: {self.not_known}"
        at = "holds no batch" if self.sink_batch is None else f"is at batch {self.sink_batch}"
        begin = f"The {self.name} {at} of the query, and the savepoint is at batch {self.savepoint_batch}"
        if self.position == "behind":
            return f"{begin}: rows of the batches between are missing from it."
        if self.position == "diverged":
            return f"{begin}: it was rolled back further since, and went on from there.{self._others()}"
        rows = "" if self.later_rows is None else f" ({say_count(self.later_rows, 'row')})"
        said = (
            f"{begin}. It takes {self._batches()}{rows} for done: the query numbers its batches from "
            f"{self.savepoint_batch + 1} again, with other rows in each, and their new rows are skipped for "
            "good."
        )
        return said + self._others()

    def _batches(self) -> str:
        first, last = self.savepoint_batch + 1, self.sink_batch
        return f"batch {first}" if last == first or last is None else f"batches {first} to {last}"

    def _others(self) -> str:
        if not self.others:
            return ""
        some = ", ".join(self.others[:_MOST_SHOWN]) + (", ..." if len(self.others) > _MOST_SHOWN else "")
        return f" Others have changed it since, which a rollback would undo: {some}."

    def why_not(self) -> str:
        """Why it cannot be rolled back, as a sentence; empty where it can."""
        if self.can_roll_back:
            return ""
        said = []
        if self.others or not self.cannot:
            without = " without undoing what others have written to it" if self.others else ""
            said.append(f"The {self.name} cannot be rolled back{without}.")
        if self.cannot:
            said.append(f"The {self.name} cannot be rolled back: {self.cannot}")
        return " ".join(said)

    def require_possible(self) -> None:
        """Make sure that a rollback can make it safe.

        Raises:
            RefusedError: It cannot (code `sink-cannot-roll-back`).
        """
        if not self.can_roll_back:
            raise RefusedError(
                self.why_not(), code="sink-cannot-roll-back", hint="Use another savepoint, or accept."
            )

    def require_even(self) -> None:
        """Make sure that the table is where a rollback has led it.

        Raises:
            ConflictError: It is not (code `sink-moved`).
        """
        if self.position != "even":
            raise sink_moved(f"The {self.name} changed while it was rolled back: {self.sentence()}")

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "path": self.path,
            "guarded": True,
            "position": self.position,
            "safe": self.safe,
            "can_roll_back": self.can_roll_back,
            "savepoint_batch": self.savepoint_batch,
            "sink_batch": self.sink_batch,
            "later_batches": self.later_batches,
            "later_rows": self.later_rows,
            "changed_by_others": list(self.others),
            "roll_back_to": self.target or None,
            "says": " ".join(filter(None, (self.sentence(), self.why_not() if self.safe is False else ""))),
        }


TITLES: Mapping[str, str] = {
    "delta": "Delta table",
    "iceberg": "Iceberg table",
    "ledger": "ledger",
}
"""What messages call a table of each kind."""


@dataclass(frozen=True, slots=True)
class TableRollback:
    """What a rollback of a table did.

    Attributes:
        done: What was done, as a sentence; empty where there was nothing to do.
        rows: How many rows of later batches are gone from it; None where it does not tell.
    """

    kind: str
    path: str
    batch: int
    done: Annotated[str, JsonName("did")] = ""
    rows: Annotated[int | None, JsonName("rows_removed")] = 0
    target: str = ""

    @property
    def changed(self) -> bool:
        return bool(self.done)

    def to_dict(self) -> dict[str, Any]:
        return encode(self) | {"target": self.target or None}


class TableGuard(SinkCapture, Protocol):
    """One table of one query: captured at a savepoint, judged and rolled back at a restore.

    Its kind is `delta`, `iceberg` or `ledger`, and its path is the table as it is declared, without
    credentials. It keeps no files, and never stops a savepoint: `capture` records what cannot be asked as
    such, with a warning.
    """

    def stand(self, batch: int, record: Mapping[str, Any] | None) -> TableStanding:
        """Where the table stands against a savepoint, by its record. Reads only, and never raises."""

    def same_batch(self, batch: int, at: datetime) -> bool | None:
        """Whether its batch of this number is the one that it held at a moment; None where that is not known.

        Never raises. A savepoint that says nothing of a table has only the number of its batch. The table may
        have been rolled back further since, and hold another batch of that number. Clocks may differ by less
        than it takes to restore a job and to start it.
        """

    def roll_back(self, standing: TableStanding, changing: Changing = nullcontext) -> TableRollback:
        """Take the table back to the savepoint's batch, at once or not at all.

        A second call goes on from what the first one has done.

        Args:
            changing: Entered around the change. Where it was not entered, the table is as it was; what it
                raises ends the rollback.

        Raises:
            ConflictError: Somebody has written to it since (code `sink-moved`).
            RefusedError: It cannot be rolled back (code `sink-cannot-roll-back`).
            StorageError: It cannot be reached (code `sink-not-reachable`).
        """


class AskedTable(ABC):
    """A `TableGuard` that asks its table; what its records `keeps` is None where it cannot be asked."""

    kind: str
    path: str
    keeps_files = False
    keeps: tuple[str, ...] = ()
    skips_computing = False

    def capture(self, batch: int) -> Captured:
        record: dict[str, Any] = {"kind": self.kind, "path": self.path, "guarded": True, "batch": batch}
        record |= dict.fromkeys((*self.keeps, "not_asked"))
        try:
            warning = self._capture(batch, record)
        except StreambankError as error:
            record["not_asked"] = error.message
            warning = f"The savepoint does not say how far its sink is: {error.message}"
        return Captured(record, warning=warning)

    def stand(self, batch: int, record: Mapping[str, Any] | None) -> TableStanding:
        try:
            return self._stand(batch, record or {})
        except StreambankError as error:
            return self._not_known(
                batch, error.message, error.hint, transient=isinstance(error, StorageError)
            )

    def same_batch(self, batch: int, at: datetime) -> bool | None:
        try:
            return self._same_batch(batch, at)
        except StreambankError:
            return None

    @abstractmethod
    def _capture(self, batch: int, record: dict[str, Any]) -> str:
        """Complete the record; the warning, empty for none."""

    @abstractmethod
    def _stand(self, batch: int, record: Mapping[str, Any]) -> TableStanding:
        """As `stand`; raises where the table cannot be asked."""

    @abstractmethod
    def _same_batch(self, batch: int, at: datetime) -> bool | None: ...

    def _not_known(self, batch: int, why: str, hint: str, *, transient: bool = False) -> TableStanding:
        return TableStanding(
            self.kind,
            self.path,
            batch,
            "not-known",
            not_known=why,
            hint=hint,
            transient=transient,
            skips_computing=self.skips_computing,
        )


class UnknownTable(AskedTable):
    """A declared table that cannot be asked from here, whatever it holds."""

    def __init__(self, kind: str, path: str, why: StreambankError) -> None:
        self.kind, self.path, self._why = kind, path, why

    def _capture(self, batch: int, record: dict[str, Any]) -> str:
        raise self._why

    def _stand(self, batch: int, record: Mapping[str, Any]) -> TableStanding:
        raise self._why

    def _same_batch(self, batch: int, at: datetime) -> bool | None:
        raise self._why

    def roll_back(self, standing: TableStanding, changing: Changing = nullcontext) -> TableRollback:
        raise self._why


ANEW = "Restore into a new table with another query id, or use --sink accept."
"""What to do where a table is another one than that of the savepoint."""


def sink_moved(message: str, hint: str = "Stop whatever writes to it, then restore again.") -> ConflictError:
    """That somebody has written to a sink meanwhile (code `sink-moved`)."""
    return ConflictError(message, code="sink-moved", hint=hint)


def same_or_unknown(now: int | None, then: int | None) -> bool | None:
    """Whether what wrote a batch is the same; None where either is not known."""
    return None if now is None or then is None else now == then
