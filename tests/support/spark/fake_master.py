"""What a standalone master's REST server and web pages answer, with faults: real HTTP, no cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.serving import Quiet, serving


class FakeMaster:
    """Its drivers, and what goes wrong.

    Attributes:
        fault: `lost` (takes a submission and closes the connection), `error` (answers 500), `refuses` (says
            no), `standby`, `cut` (takes it, and its answer breaks off), `garbage` (takes it, says what is no
            JSON), `shapeless` (takes it, says what no master says); None for none. It holds until it is
            taken away.
        status: What it says of itself; one that is not ALIVE tells nothing about drivers.
        page: What its page says instead; None for what is so.
        fired: How often it happened.
        workerless: Drivers have no worker yet.
    """

    def __init__(self) -> None:
        self.submitted: list[dict[str, Any]] = []
        self.states: dict[str, str] = {}
        self.fault: str | None = None
        self.fired = 0
        self.killed: list[str] = []
        self.workerless = False
        self.main = "org.apache.spark.deploy.PythonRunner"
        self.status = "ALIVE"
        self.page: str | None = None
        self.url = ""

    def submit(self, body: dict[str, Any]) -> str:
        self.submitted.append(body)
        driver = f"driver-{len(self.submitted):04d}"
        self.states[driver] = "RUNNING"
        return driver

    def lose_worker(self, driver: str) -> str:
        """What becomes of a supervised driver whose worker is lost: another one, by its new id."""
        self.states[driver] = "RELAUNCHING"
        return self.submit(self.submitted[int(driver.removeprefix("driver-")) - 1])

    def says_no(self, what: str) -> dict[str, Any]:
        """As a master answers that does not lead."""
        return {
            "success": False,
            "message": f"Current state is not alive: {self.status}. Can only {what} in ALIVE state.",
        }

    def state(self) -> dict[str, Any]:
        """As the master's page says it in JSON."""
        if self.status != "ALIVE":
            return {"status": self.status, "workers": [], "activedrivers": [], "completeddrivers": []}
        worker = "None" if self.workerless else "worker-1"
        drivers = [
            {"id": one, "state": state, "worker": worker, "mainclass": self.main}
            for one, state in self.states.items()
        ]
        return {
            "status": "ALIVE",
            "workers": [{"id": "worker-1", "webuiaddress": self.url}],
            "activedrivers": [one for one in drivers if one["state"] == "RUNNING"],
            "completeddrivers": [one for one in drivers if one["state"] != "RUNNING"],
        }

    def log(self, driver: str, kind: str) -> str:
        """As a worker's page gives it."""
        arguments = " ".join(self.submitted[int(driver.removeprefix("driver-")) - 1]["appArgs"])
        if kind == "stderr":
            command = f'Launch Command: "java" {arguments}'
            return f"==== Bytes 0-99 of 99 of /x ====\n{command}\n{'=' * 40}\n\nof Spark\n"
        return "==== Bytes 0-9 of 9 of /x ====\nof Python\n"


@contextmanager
def fake_master() -> Iterator[FakeMaster]:
    """Such a server on the loopback device."""
    master = FakeMaster()

    class Handler(Quiet):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if master.fault is not None and self.path.endswith("/create"):
                master.fired += 1
            if master.fault == "error":
                self._answer({"message": "out of memory"}, 500)
            elif master.fault == "standby":
                self._answer({"success": False, "message": "Current state is not alive: STANDBY."})
            elif master.fault == "refuses":
                self._answer({"success": False, "message": "no room"})
            elif master.status != "ALIVE":
                self._answer(master.says_no("accept or kill drivers"))
            elif self.path.endswith("/create"):
                driver = master.submit(json.loads(body))
                if master.fault == "lost":
                    self.close_connection = True
                    return
                if master.fault == "cut":
                    self._text(b'{"success": tr', length=100)
                    self.close_connection = True
                    return
                if master.fault == "garbage":
                    self._text(b"<html>please log in</html>")
                    return
                if master.fault == "shapeless":
                    self._answer(["hello"])
                    return
                self._answer({"success": True, "submissionId": driver})
            else:
                driver = self.path.rpartition("/")[2]
                master.killed.append(driver)
                known = master.states.get(driver) == "RUNNING"
                if known:
                    master.states[driver] = "KILLED"
                self._answer({"success": known, "message": "" if known else f"{driver} is not known"})

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            if parts.path == "/json/" and master.page is not None:
                self._text(master.page.encode())
            elif parts.path == "/json/":
                self._answer(master.state())
            elif master.status != "ALIVE":
                self._answer(master.says_no("request driver status"))
            elif parts.path == "/log":
                said = master.log(query["driverId"], query["logType"]).encode()
                self._text(said[: int(query["byteLength"])] if "offset" in query else said)
            else:
                driver = parts.path.rpartition("/")[2]
                found = master.states.get(driver)
                self._answer({"success": found is not None, "driverState": found or "NOT_FOUND"})

        def _answer(self, data: Any, status: int = 200) -> None:
            self._text(json.dumps(data).encode(), status)

        def _text(self, data: bytes, status: int = 200, length: int | None = None) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data) if length is None else length))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with serving(server) as master.url:
        yield master
