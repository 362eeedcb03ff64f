"""Servers that answer in a thread of the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer
from typing import Any


class Quiet(BaseHTTPRequestHandler):
    """Logs nothing."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serving(server: TCPServer) -> Iterator[str]:
    """The address of a server on loopback, which answers until the end of the `with`."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
