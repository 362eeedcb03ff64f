"""An HTTP proxy in front of an S3 server that breaks chosen answers, and says how often it did."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from typing import Literal

from tests.support.serving import Quiet, serving

Kind = Literal["lose", "truncate", "corrupt", "reset", "busy", "deny"]


@dataclass
class Fault:
    """What happens to the first `times` matching requests.

    Attributes:
        kind: `lose`: the server does it, and the answer never arrives. `truncate`: the answer's body ends in
            the middle. `corrupt`: one byte of it is another one. `reset`: the server never sees the request.
            `busy`: 503 SlowDown. `deny`: 403 AccessDenied.
        part: Only requests with this in their path or query.
    """

    kind: Kind
    method: str
    part: str = ""
    times: int = 1
    fired: int = 0


@dataclass
class Proxy:
    """A running proxy.

    Attributes:
        faults: What it does; tests append to it.
        requests: Method and path of every request that came.
        ignored: Headers (in lower case) that never reach the server, as if it did not know them.
    """

    endpoint: str
    faults: list[Fault] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    sent_bytes: int = 0
    ignored: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fault(self, method: str, path: str, size_bytes: int = 0) -> Fault | None:
        with self.lock:
            self.requests.append(f"{method} {path}")
            self.sent_bytes += size_bytes
            for each in self.faults:
                if each.method == method and each.part in path and each.fired < each.times:
                    each.fired += 1
                    return each
        return None


@contextmanager
def proxy(server: str) -> Iterator[Proxy]:
    """A proxy to the server at an address such as http://127.0.0.1:1234."""
    host, _, port = server.removeprefix("http://").partition(":")

    class Handler(Quiet):
        protocol_version = "HTTP/1.1"

        def handle_one(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fault = running.fault(self.command, self.path, len(body))
            kind = fault.kind if fault is not None else None
            if kind == "reset":
                self.close_connection = True
                return
            if kind == "busy":
                self._answer(503, {}, b"<Error><Code>SlowDown</Code></Error>")
                return
            if kind == "deny":
                self._answer(403, {}, b"<Error><Code>AccessDenied</Code></Error>")
                return
            upstream = http.client.HTTPConnection(host, int(port), timeout=60)
            try:
                upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() not in {"connection", "expect"} | running.ignored:
                        upstream.putheader(name, value)
                upstream.endheaders(body)
                answer = upstream.getresponse()
                data = answer.read()
            finally:
                upstream.close()
            if kind == "lose":
                self.close_connection = True
                return
            if kind == "corrupt":
                data = data[:-1] + bytes([data[-1] ^ 1])
            headers = {
                name: value
                for name, value in answer.getheaders()
                if name.lower() not in ("connection", "transfer-encoding", "date", "server")
            }
            self._answer(answer.status, headers, data, cut=kind == "truncate")

        def _answer(self, status: int, headers: dict[str, str], data: bytes, *, cut: bool = False) -> None:
            self.send_response(status)
            if self.command != "HEAD":
                headers = {name: value for name, value in headers.items() if name.lower() != "content-length"}
                headers["Content-Length"] = str(len(data))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data[: len(data) // 2] if cut else data)
            if cut:
                self.close_connection = True

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = handle_one

        def handle_expect_100(self) -> bool:
            self.send_response_only(100)
            self.end_headers()
            return True

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as url:
        running = Proxy(url)
        yield running
