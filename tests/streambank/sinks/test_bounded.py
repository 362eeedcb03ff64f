"""A table whose library hangs or fails in a separate way: the savepoint goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import pytest

from streambank.core.errors import RefusedError
from streambank.savepoint.sinks import Captured
from streambank.sinks.bounded import BoundedGuard, within
from streambank.sinks.table import Changing, TableRollback, TableStanding


class Hanging:
    """A guard whose library does what a test says."""

    kind, path, keeps_files = "iceberg", "shop.orders", False

    def __init__(self, does: Callable[[], None]) -> None:
        self._does = does

    def capture(self, batch: int) -> Captured:
        self._does()
        return Captured({"kind": self.kind})

    def stand(self, batch: int, record: Mapping[str, Any] | None) -> TableStanding:
        self._does()
        return TableStanding(self.kind, self.path, batch, "even")

    def same_batch(self, batch: int, at: datetime) -> bool:
        self._does()
        return True

    def roll_back(self, standing: TableStanding, changing: Changing = nullcontext) -> TableRollback:
        self._does()
        return TableRollback(self.kind, self.path, standing.savepoint_batch)


def test_what_answers_is_passed_on() -> None:
    guard = BoundedGuard(Hanging(lambda: None))
    assert guard.capture(4).record == {"kind": "iceberg"} and guard.stand(4, None).safe
    assert guard.same_batch(4, datetime.now(UTC))


def test_what_hangs_is_not_waited_for() -> None:
    end, asked = threading.Event(), threading.Event()

    def hang() -> None:
        asked.set()
        end.wait()

    guard = BoundedGuard(Hanging(hang), capture_s=0.05, stand_s=0.05)
    try:
        captured = guard.capture(4)
        assert asked.is_set()
        assert "no answer within" in captured.warning and captured.record["not_asked"]
        standing = guard.stand(4, None)
        assert standing.position == "not-known" and standing.transient
        assert guard.same_batch(4, datetime.now(UTC)) is None
    finally:
        end.set()


def test_an_error_of_a_library_is_named_without_its_words() -> None:
    def fail() -> None:
        raise TypeError("password=hunter2")

    captured = BoundedGuard(Hanging(fail)).capture(4)
    assert "TypeError" in captured.warning and "hunter2" not in f"{captured.warning} {captured.record}"


def test_an_error_of_ours_stays_what_it_is() -> None:
    def refuse() -> None:
        raise RefusedError("It is not installed.", code="sink-not-known", hint="Install it.")

    with pytest.raises(RefusedError, match="not installed"):
        within(1, refuse, "table")
    assert not BoundedGuard(Hanging(refuse)).stand(4, None).transient
