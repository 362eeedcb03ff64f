"""What a standalone cluster's web pages tell about its drivers: where they are, how they were launched, logs.

The master's JSON names a driver's worker, but not what the driver is; the worker's log of it begins with the
whole command. Sources: org.apache.spark.deploy.JsonProtocol, worker.DriverRunner, worker.ui.LogPage (4.3.0).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from streambank.core.errors import StorageError
from streambank.driver.failure import shown
from streambank.driver.launchers.http import REFUSED, ask, entries, get_json, misshapen

NOT_ALIVE = "Current state is not alive"
"""How every answer of a master begins that does not lead; it says nothing about any driver."""
_COMMAND = "Launch Command:"
_BEHIND = f"\n{'=' * 40}"
_COMMAND_BYTES = (65_536, 2**21)
"""How much is read for a command, and where it is longer; more than the second no Linux starts."""
_LINE_BYTES = 400


@dataclass(frozen=True, slots=True)
class ClusterDriver:
    """A driver as the master knows it, in its words; its worker's web address, while it has one."""

    id: str
    state: str
    worker: str | None
    main: str = ""

    @property
    def log(self) -> str | None:
        """A page for people with its log."""
        return None if self.worker is None else _log_url(self.worker, "logPage/", self.id, "stderr")


class MasterPage:
    """A master's web page, or those of several of which one leads."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = tuple(addresses)
        self._commands: dict[str, str] = {}

    def active(self) -> dict[str, ClusterDriver]:
        """The drivers that run, or wait for a worker, by id.

        Raises:
            StorageError: No master that leads can be asked.
        """
        return self._drivers("activedrivers")

    def driver(self, driver_id: str) -> ClusterDriver | None:
        """A driver, also one that has ended not long ago; None where the master does not know it.

        Raises:
            StorageError: No master that leads can be asked.
        """
        return self._drivers("completeddrivers", "activedrivers").get(driver_id)

    def command(self, driver: ClusterDriver) -> str:
        """The command line of a driver; empty where no worker tells, or not yet."""
        if driver.worker is None:
            return ""
        if driver.id not in self._commands:
            said = _command(driver.worker, driver.id)
            if not said:
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
            # The page begins with its own line: which bytes of how many these are.
            said = [line for line in lines[1:] if line][-max(1, count // 2) :]
            # The command holds all settings, and its log is shown to more people than may see those.
            found += [shown(line) if line.startswith(_COMMAND) else line for line in said]
        return found

    def _drivers(self, *lists: str) -> dict[str, ClusterDriver]:
        address, state = self._state()
        workers = {
            str(entry.get("id")): str(entry["webuiaddress"])
            for entry in entries(state.get("workers"), address)
            if entry.get("webuiaddress")
        }
        found = {}
        for one in (entry for name in lists for entry in entries(state.get(name), address)):
            if not isinstance(one.get("id"), str):
                raise misshapen(address)
            worker = workers.get(str(one.get("worker")))
            found[one["id"]] = ClusterDriver(
                one["id"], str(one.get("state")), worker, str(one.get("mainclass"))
            )
        return found

    def _state(self) -> tuple[str, Mapping[str, Any]]:
        """Address and words of the master that leads: one that waits, or recovers, knows of no drivers."""
        silent: StorageError | None = None
        waiting: list[str] = []
        for address in self.addresses:
            url = f"{address}/json/"
            try:
                found = get_json(url)
            except StorageError as error:
                silent = error
                continue
            if found.get("status") == "ALIVE":
                return url, found
            waiting.append(f"{address} says {str(found.get('status'))[:100]}")
        raise nobody_leads(waiting, silent)


def _command(worker: str, driver_id: str) -> str:
    """The command with which a driver's log begins, with its end, where the launch stands; empty for none."""
    for most in _COMMAND_BYTES:
        url = _log_url(worker, "log", driver_id, "stderr", offset=0, byteLength=most)
        try:
            text = ask(url).decode("utf-8", "replace")
        except StorageError:
            break  # a worker that does not answer tells nothing of its drivers; the lease decides
        _, begun, rest = text.partition(f"\n{_COMMAND}")
        command, ended, _ = rest.partition(_BEHIND)
        if ended:
            return f"{_COMMAND}{command}"
        if not begun:
            break
    return ""


def nobody_leads(waiting: Sequence[str], silent: StorageError | None) -> StorageError:
    """The error where no master leads: nothing was done, and nothing is known.

    Args:
        waiting: What those say that answered.
        silent: Why one of the others could not be asked; None where all answered.
    """
    if not waiting:
        assert silent is not None, "there is at least one address"
        return silent
    told = [*waiting, *([silent.message.rstrip(".")] if silent is not None else [])]
    return StorageError(
        f"No master of the cluster is the leader: {'; '.join(told)}.",
        code=REFUSED,
        hint="Wait until one has taken over, or look at the masters' web pages.",
    )


def _log_url(worker: str, page: str, driver_id: str, kind: str, **more: int) -> str:
    return f"{worker}/{page}?{urlencode({'driverId': driver_id, 'logType': kind, **more})}"
