"""Requests to a running driver, and its answers.

```
requests/0000000004.json    what is asked, by whom, of which epoch of the lease
answers/0000000004.json     what came of it; created exclusively, so the first answer is the answer
```

A request is addressed to one epoch: what was asked of a driver that died is never obeyed by the next one. Yet
a stop is also a mark, by its number, against every launch that was made before it (driver/stops.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streambank.control.records import JsonDict, RecordStream, decode_json
from streambank.core.errors import NotFoundError
from streambank.core.units import to_json_time, utc_now
from streambank.storage.store import Store, read_record

STOP = "stop"
"""The kind of request that ends a driver: `{"drain": bool, "force_after_s": x, "drain_timeout_s": y}`."""
NO_EPOCH = 0
"""To whom a stop is addressed that is a mark against the launches before it, and asks no driver that runs."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        epoch: The epoch of the lease it is addressed to.
        at: When, ISO-8601.
    """

    number: int
    kind: str
    epoch: int
    by: Mapping[str, str]
    why: str
    at: str
    options: Mapping[str, Any]


class Requests:
    """The requests and answers of one job."""

    def __init__(self, store: Store) -> None:
        self.records = RecordStream(store, "requests")
        self.answers = RecordStream(store, "answers")

    def post(self, kind: str, *, epoch: int, by: Mapping[str, str], why: str = "", **options: Any) -> Request:
        """Ask the driver that holds `epoch` for something."""
        at = to_json_time(utc_now())
        data = {"kind": kind, "epoch": epoch, "at": at, "by": dict(by), "why": why, "options": options}
        return Request(self.records.append(data), kind, epoch, dict(by), why, at, options)

    def open(self, epoch: int, *, after: int = 0) -> list[Request]:
        """The requests to this epoch that have no answer yet, oldest first.

        Args:
            after: Skip numbers up to this one, so that a poll reads only what is new.
        """
        answered = set(self.answers.numbers())
        found = []
        # Those to which a history leads: a driver hears the others whatever else is there.
        for number in self.records.numbers():
            if number <= after or number in answered:
                continue
            try:
                data = self.records.read(number)
            except NotFoundError:
                continue  # it was pruned since it was listed
            if data.get("epoch") == epoch:
                found.append(
                    Request(
                        number,
                        str(data.get("kind", "")),
                        epoch,
                        data.get("by") or {},
                        str(data.get("why", "")),
                        str(data.get("at", "")),
                        data.get("options") or {},
                    )
                )
        return found

    def answer(self, number: int, state: str, **details: Any) -> bool:
        """Say what came of a request; False where that was said already."""
        return self.answers.create(number, {"at": to_json_time(utc_now()), "state": state, **details})

    def answer_to(self, number: int) -> JsonDict | None:
        """The answer to a request, or None while there is none."""
        key = self.answers.key(number)
        if not self.answers.store.exists(key):
            return None
        return decode_json(read_record(self.answers.store, key), self.answers.describe(number))
