"""What one site sees of several S3 servers: one address, behind which each bucket is on its own server.

A person, or a driver, at a site has one such network; the way to a bucket can be cut there, for that site
alone.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer

import pytest

from tests.support.serving import Quiet, serving
from tests.support.storage.s3_servers import S3Server

_OURS = ("connection", "transfer-encoding", "date", "server", "content-length")
"""Headers of an answer that the network itself writes."""


@dataclass
class Network:
    """A running network.

    Attributes:
        seen: The servers as one: its address is the network's.
        cut: Buckets to which no request gets.
    """

    seen: S3Server
    cut: set[str] = field(default_factory=set)
    refused: int = 0

    def use(self, patch: pytest.MonkeyPatch) -> None:
        """Let this process, and the drivers that it starts, be at this site."""
        self.seen.use(patch)


@contextmanager
def network(servers: Mapping[str, S3Server]) -> Iterator[Network]:
    """The network of a site."""

    class Handler(Quiet):
        protocol_version = "HTTP/1.1"

        def handle_one(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            bucket = self.path.lstrip("/").partition("/")[0].partition("?")[0]
            server = servers.get(bucket)
            if server is None or bucket in running.cut:
                running.refused += 1
                self.close_connection = True
                return
            upstream = http.client.HTTPConnection(server.endpoint.removeprefix("http://"), timeout=60)
            try:
                upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() not in ("connection", "expect"):
                        upstream.putheader(name, value)
                upstream.endheaders(body)
                answer = upstream.getresponse()
                data = answer.read()
            except OSError:  # the server is gone
                self.close_connection = True
                return
            finally:
                upstream.close()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _OURS:
                    self.send_header(name, value)
            length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
            self.send_header("Content-Length", length or "0")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = handle_one

        def handle_expect_100(self) -> bool:
            self.send_response_only(100)
            self.end_headers()
            return True

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as url:
        running = Network(S3Server(url))
        yield running
