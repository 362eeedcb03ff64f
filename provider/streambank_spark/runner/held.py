"""A driver that waits at its first query until its launch is released (`LaunchSpec.held_by`).

An upgrade launches it beside the old driver, so that interpreter, JVM, session and application are there when
that one stops. Until then it has no lease and no query, and writes nothing but an event. It ends, JVM first,
when it is not needed: the upgrade has ended, the job was stopped, its records cannot be read, or TERM
came. A released driver that is refused ends at once, whatever its application would make of that.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NoReturn

from streambank.control.control import JobControl
from streambank.control.processes import ProcessId
from streambank.core.errors import StreambankError
from streambank.driver.outputs import Output
from streambank.driver.spec import GENTLY_S, NOT_NEEDED, LaunchSpec, QuerySpec
from streambank_spark.runner import signals
from streambank_spark.runner.patch import Host
from streambank_spark.runner.queries import Managed, Queries
from streambank_spark.runner.until_released import NotNeededError, until_released
from streambank_spark.runner.warm_up import warm_up

_log = logging.getLogger(__name__)


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
