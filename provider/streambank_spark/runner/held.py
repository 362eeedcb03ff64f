"""A driver that waits at its first query until its launch is released (`LaunchSpec.held_by`).

An upgrade launches it beside the old driver, so that interpreter, JVM, session and application are there when
that one stops. Until then it has no lease and no query, and writes nothing but an event. It ends, JVM first,
when it is not needed: the upgrade has ended, the job was stopped, its records cannot be read, or TERM
came. A released driver that is refused ends at once, whatever its application would make of that.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NoReturn

from streambank.control.claims import Claims
from streambank.control.control import JobControl
from streambank.control.processes import ProcessId
from streambank.core.errors import StorageError, StreambankError
from streambank.driver.outputs import Output
from streambank.driver.spec import (
    GENTLY_S,
    HOLDER,
    NOT_NEEDED,
    WAITING,
    LaunchSpec,
    QuerySpec,
    released_launch,
)
from streambank.storage import local_path
from streambank_spark.runner import signals
from streambank_spark.runner.patch import Host
from streambank_spark.runner.queries import Managed, Queries
from streambank_spark.runner.warm_up import warm_up

_log = logging.getLogger(__name__)

_LOOK_S = 0.05
_REMOTE_LOOK_S = 0.5
_NEEDED_S = 2.0
"""How often it is asked whether this driver still is needed."""
_BLIND_S = 60.0
"""For how long the records may not be readable."""


class NotNeededError(Exception):
    """The driver that waits is not needed; its text says why, as half a sentence."""


def until_released(
    spec: LaunchSpec, control: JobControl, why_not: Callable[[], str | None] = lambda: None
) -> LaunchSpec:
    """Wait until a held launch is released, or until `why_not` says what else ends the wait.

    Raises:
        NotNeededError: The upgrade has ended, the job was stopped, or its records cannot be read; or
            `why_not` said something.
        StreambankError: The release is damaged, or says something else of what runs.
    """
    look_s = _LOOK_S if local_path(control.store.uri) is not None else _REMOTE_LOOK_S
    holder = Claims(control.store, HOLDER)
    control.record_event(WAITING, launch_id=spec.launch_id, pid=os.getpid())
    _log.info("Waiting at the first query until the launch is released.")
    asked, seen = float("-inf"), time.monotonic()
    while True:
        why = None
        try:
            if time.monotonic() - asked > _NEEDED_S:
                asked = time.monotonic()
                why = _why_not_needed(spec, control, holder)
            # Asked last: an upgrade may have released it, and ended, since.
            if (released := released_launch(control, spec)) is not None:
                return released
            seen = time.monotonic()
        except StorageError as error:
            if time.monotonic() - seen > _BLIND_S:
                why = f"the job's records cannot be read: {error.message.rstrip('.')}"
        if why := why or why_not():
            raise NotNeededError(why)
        time.sleep(look_s)


def _why_not_needed(spec: LaunchSpec, control: JobControl, holder: Claims) -> str | None:
    if control.is_stopped():
        return "the job was stopped"
    view = holder.view()
    if view is None or view.free or view.epoch != spec.held_by:
        return "the upgrade has ended"
    return None


@dataclass
class HeldLaunch:
    """What the wrappers ask (`patch.Host`) before and after the release.

    Attributes:
        begin: Takes the lease for a released launch, and returns the driver that holds it.
        refuse: Ends this process where `begin` was refused.
    """

    spec: LaunchSpec
    control: JobControl
    jvm_process: ProcessId
    begin: Callable[[LaunchSpec], Host]
    refuse: Callable[[StreambankError], NoReturn]
    driver: Host | None = None
    released: bool = False

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._ending = threading.Lock()

    def before_start(self) -> None:
        """Wait for the release before the first query starts."""
        with self._lock:
            if self.driver is None:
                _log.info("Warming up: %s.", warm_up(self.spec.on))
                try:
                    released = until_released(self.spec, self.control, self._jvm_is_gone)
                    self.released = True
                    self.driver = self.begin(released)
                except NotNeededError as reason:
                    self.end(str(reason))
                except StreambankError as error:
                    self.refuse(error)
        self.driver.before_start()

    def end(self, why: str) -> NoReturn:
        """End this driver, which has nothing to lose yet; why is half a sentence."""
        _log.info("The driver that waits ends: %s.", why)

        def last_words() -> None:
            self.control.record_event(NOT_NEEDED, launch_id=self.spec.launch_id, why=why)

        self._ending.acquire()  # for ever: who else finds the JVM gone has nothing to add
        signals.kill_driver(self.jvm_process, last_words, gently_s=GENTLY_S)

    def _jvm_is_gone(self) -> str | None:
        return None if self.jvm_process.is_living() else "its JVM is gone"

    # Nothing runs before the release, so there is nothing to wait for.

    @property
    def queries(self) -> Queries:
        return self._driver().queries

    def check_start(self, name: str, spec: QuerySpec, output: Output) -> None:
        self._driver().check_start(name, spec, output)

    def started(self, managed: Managed, sources: list[str]) -> None:
        self._driver().started(managed, sources)

    def note(self, kind: str, **facts: Any) -> None:
        self._driver().note(kind, **facts)

    def before_context_stops(self) -> None:
        if self.driver is not None:
            self.driver.before_context_stops()

    def before_query_stops(self) -> None:
        if self.driver is not None:
            self.driver.before_query_stops()

    def waiting(self) -> AbstractContextManager[None]:
        return self.driver.waiting() if self.driver is not None else nullcontext()

    def _driver(self) -> Host:
        assert self.driver is not None, "a query was started"
        return self.driver
