"""What a standalone cluster's web pages tell about its drivers: where they are, how they were launched, logs.

The master's JSON names a driver's worker, but not what the driver is; the worker's log of it begins with the
whole command. Sources: org.apache.spark.deploy.JsonProtocol, worker.DriverRunner, worker.ui.LogPage (4.3.0).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from streambank.errors import StorageError
from streambank.job.launchers.web import ask, get_json

_COMMAND_BYTES = 65_536
_LINE_BYTES = 400


@dataclass(frozen=True, slots=True)
class ClusterDriver:
    """A driver as the master knows it.

    Attributes:
        id: Its submission id.
        state: The master's word for it.
        worker: Web address of its worker; None while it has none.
    """

    id: str
    state: str
    worker: str | None

    @property
    def log(self) -> str | None:
        """A page for people with its log."""
        return None if self.worker is None else _log_url(self.worker, "logPage/", self.id, "stderr")


class MasterPage:
    """A master's web page, or those of several of which one leads.

    Args:
        addresses: Theirs.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = tuple(addresses)
        self._commands: dict[str, str] = {}

    def active(self) -> dict[str, ClusterDriver]:
        """The drivers that run, or wait for a worker, by id.

        Raises:
            StorageError: No master can be asked.
        """
        return self._drivers("activedrivers")

    def driver(self, driver_id: str) -> ClusterDriver | None:
        """A driver, also one that has ended not long ago; None where the master does not know it.

        Raises:
            StorageError: No master can be asked.
        """
        return self._drivers("completeddrivers", "activedrivers").get(driver_id)

    def command(self, driver: ClusterDriver) -> str:
        """The command line of a driver; empty where no worker tells, or not yet."""
        if driver.worker is None:
            return ""
        if driver.id not in self._commands:
            url = _log_url(driver.worker, "log", driver.id, "stderr", offset=0, byteLength=_COMMAND_BYTES)
            try:
                text = ask(url).decode("utf-8", "replace")
            except StorageError:
                return ""  # a worker that does not answer tells nothing of its drivers; the lease decides
            said = next((line for line in text.splitlines() if line.startswith("Launch Command:")), None)
            if said is None:
                return ""
            self._commands[driver.id] = said
        return self._commands[driver.id]

    def log_lines(self, driver_id: str, count: int) -> list[str]:
        """The last lines of what a driver's JVM logs, and then of what its Python says.

        Raises:
            StorageError: Master or worker cannot be asked.
        """
        driver = self.driver(driver_id)
        if driver is None or driver.worker is None:
            return []
        found: list[str] = []
        for kind in ("stderr", "stdout"):
            url = _log_url(driver.worker, "log", driver_id, kind, byteLength=count * _LINE_BYTES)
            lines = ask(url).decode("utf-8", "replace").splitlines()
            # The page begins with a line of its own: which bytes of how many these are.
            found += [line for line in lines[1:] if line][-max(1, count // 2) :]
        return found

    def _drivers(self, *lists: str) -> dict[str, ClusterDriver]:
        state = self._state()
        workers = {str(one.get("id")): one.get("webuiaddress") for one in state.get("workers", ())}
        return {
            str(one["id"]): ClusterDriver(
                str(one["id"]), str(one.get("state")), workers.get(str(one.get("worker")))
            )
            for name in lists
            for one in state.get(name, ())
        }

    def _state(self) -> Mapping[str, Any]:
        """What the master says that leads; the last one's where none does."""
        failed: StorageError | None = None
        found: Mapping[str, Any] | None = None
        for address in self.addresses:
            try:
                found = get_json(f"{address}/json/")
            except StorageError as error:
                failed = error
                continue
            if found is not None and found.get("status") == "ALIVE":
                break
        if found is None:
            assert failed is not None, "there is at least one address"
            raise failed
        return found


def _log_url(worker: str, page: str, driver_id: str, kind: str, **more: int) -> str:
    return f"{worker}/{page}?{urlencode({'driverId': driver_id, 'logType': kind, **more})}"
