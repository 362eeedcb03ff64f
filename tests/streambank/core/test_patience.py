"""A call that hangs is waited for as long as it may take, and no longer."""

from __future__ import annotations

import threading
import time
from contextvars import ContextVar

import pytest

from streambank.core.patience import Waited


def test_a_call_that_hangs_is_left_alone_and_keeps_no_process() -> None:
    go_on = threading.Event()
    try:
        began_s = time.monotonic()
        hung = Waited(lambda: go_on.wait(60), "hangs")
        assert not hung.ends_within(0.2) and 0.2 <= time.monotonic() - began_s < 30
        assert next(thread for thread in threading.enumerate() if thread.name == "hangs").daemon
    finally:
        go_on.set()
    assert hung.ends_within(60) and hung.result()


def test_several_that_begin_together_are_waited_for_together() -> None:
    go_on = threading.Event()
    try:
        began_s = time.monotonic()
        both = [Waited(lambda: go_on.wait(60), "hangs") for _ in range(2)]
        assert not any([one.ends_within(0.5) for one in both])
        assert time.monotonic() - began_s < 1.0
    finally:
        go_on.set()


def test_an_answer_and_an_error_are_those_of_the_call_in_the_callers_context() -> None:
    who = ContextVar("who", default="nobody")
    who.set("ann")
    asked = Waited(who.get, "asks")
    assert asked.ends_within(60) and asked.result() == "ann" and asked.failure is None
    failing = Waited(lambda: 1 // 0, "fails")
    assert failing.ends_within(60) and isinstance(failing.failure, ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        failing.result()
