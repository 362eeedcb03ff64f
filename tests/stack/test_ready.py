"""Whether a server is ready: small servers that speak as the real ones do, at their start too."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from demo.ready import KAFKA_QUESTION, is_ready
from tests.support.paths import ROOT

Answer = Callable[[bytes], bytes]


@contextmanager
def speaking(answer: Answer) -> Iterator[int]:
    """A server that answers one message of each connection, and closes."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)

        def serve() -> None:
            while not ended.is_set():
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    continue
                with connection:
                    connection.sendall(answer(connection.recv(4096)))

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield int(server.getsockname()[1])
        finally:
            ended.set()
            thread.join()


def kafka(data: bytes) -> bytes:
    (length,) = struct.unpack(">i", data[:4])
    assert length == len(data) - 4 and data[4:] == KAFKA_QUESTION
    key, version, correlation = struct.unpack(">hhi", data[4:12])
    assert (key, version) == (18, 0)
    return struct.pack(">iih", 6, correlation, 0)


def postgres(data: bytes) -> bytes:
    length, version = struct.unpack(">ii", data[:8])
    assert (length, version) == (len(data), 3 << 16)
    assert data[8:] == b"user\0airflow\0database\0airflow\0\0"
    return b"R\0\0\0\x08\0\0\0\0"


@pytest.mark.parametrize(
    ("check", "answer", "ready"),
    [
        ("kafka://127.0.0.1:{}", kafka, True),
        ("kafka://127.0.0.1:{}", lambda _: b"", False),
        ("kafka://127.0.0.1:{}", lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n", False),
        ("postgres://127.0.0.1:{}/airflow", postgres, True),
        ("postgres://127.0.0.1:{}/airflow", lambda _: b"E\0\0\0\x10SFATAL\0", False),
        ("postgres://127.0.0.1:{}/airflow", lambda _: b"", False),
        ("http://127.0.0.1:{}/", lambda _: b"HTTP/1.0 200 OK\r\n\r\nhello there", True),
        ("http://127.0.0.1:{}/#lo%20th", lambda _: b"HTTP/1.0 200 OK\r\n\r\nhello there", True),
        ("http://127.0.0.1:{}/#bye", lambda _: b"HTTP/1.0 200 OK\r\n\r\nhello there", False),
        ("http://127.0.0.1:{}/", lambda _: b"HTTP/1.0 503 Busy\r\n\r\n", False),
        ("http://127.0.0.1:{}/", lambda _: b"nonsense\r\n\r\n", False),
        ("tcp://127.0.0.1:{}", lambda _: b"", True),
    ],
)
def test_a_server_is_ready_when_it_says_so(check: str, answer: Answer, ready: bool) -> None:
    with speaking(answer) as port:
        assert is_ready(check.format(port)) is ready


@pytest.mark.parametrize("scheme", ["http", "kafka", "postgres", "tcp"])
def test_where_nobody_listens_nothing_is_ready(scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert not is_ready(f"{scheme}://127.0.0.1:{port}/")


def test_what_is_no_check_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="is not a known check"):
        is_ready("gopher://127.0.0.1:70")


def test_it_can_be_asked_from_a_shell_as_health_checks_do() -> None:
    with speaking(lambda _: b"") as port:
        for check, code in ((f"tcp://127.0.0.1:{port}", 0), ("tcp://127.0.0.1:9", 1)):
            done = subprocess.run(
                [sys.executable, "-m", "demo.ready", check], cwd=ROOT, check=False, timeout=60
            )
            assert done.returncode == code
