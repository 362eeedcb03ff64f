"""Whether a server is ready, asked in its own protocol: one short request, no client library.

    python -m demo.ready CHECK      (0 if it passes, 1 if not; docker-compose.yml uses it)

| check | holds when |
|---|---|
| `http://HOST:PORT/PATH` | it answers with success |
| `http://HOST:PORT/PATH#TEXT` | and TEXT is in the answer |
| `kafka://HOST:PORT` | the broker says which versions it speaks, as it does once it serves requests |
| `postgres://HOST:PORT/NAME` | the server would let somebody log in, and neither starts up nor shuts down |
| `tcp://HOST:PORT` | somebody accepts connections |
"""

from __future__ import annotations

import http.client
import socket
import struct
import sys
import urllib.error
import urllib.request
from urllib.parse import unquote, urlsplit

TIMEOUT_S = 3.0
# Kafka's protocol: request ApiVersions (key 18), version 0, correlation id, and a client id.
KAFKA_QUESTION = struct.pack(">hhih", 18, 0, 7, 5) + b"ready"
KAFKA_CORRELATION = struct.pack(">i", 7)
# Postgres' protocol: version 3.0 of the start-up message.
POSTGRES_VERSION = 196608


def is_ready(check: str) -> bool:
    """Whether a check passes now; False if there is no answer within three seconds.

    Raises:
        ValueError: It is none of the checks above.
    """
    place = urlsplit(check)
    try:
        match place.scheme:
            case "http":
                return _http(check, unquote(place.fragment))
            case "kafka":
                return _kafka(place.hostname or "", place.port or 0)
            case "postgres":
                return _postgres(place.hostname or "", place.port or 0, place.path.strip("/"))
            case "tcp":
                with _connected(place.hostname or "", place.port or 0):
                    return True
    except OSError:
        return False
    raise ValueError(f"{check} is not a known check: use http, kafka, postgres or tcp")


def _http(url: str, text: str) -> bool:
    try:
        with urllib.request.urlopen(url.partition("#")[0], timeout=TIMEOUT_S) as answer:
            return text.encode() in answer.read(1 << 20)
    except (http.client.HTTPException, urllib.error.URLError, ValueError):
        return False


def _connected(host: str, port: int) -> socket.socket:
    connection = socket.create_connection((host, port), timeout=TIMEOUT_S)
    connection.settimeout(TIMEOUT_S)
    return connection


def _kafka(host: str, port: int) -> bool:
    with _connected(host, port) as connection:
        connection.sendall(struct.pack(">i", len(KAFKA_QUESTION)) + KAFKA_QUESTION)
        return _received(connection, 8)[4:] == KAFKA_CORRELATION


def _postgres(host: str, port: int, name: str) -> bool:
    words = b"".join(
        word.encode() + b"\0" for word in ("user", name or "postgres", "database", name or "postgres")
    )
    message = struct.pack(">i", POSTGRES_VERSION) + words + b"\0"
    with _connected(host, port) as connection:
        connection.sendall(struct.pack(">i", len(message) + 4) + message)
        return _received(connection, 1) == b"R"  # it asks for a password, or lets us in


def _received(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := connection.recv(count - len(data))):
        data += more
    return data


if __name__ == "__main__":
    sys.exit(0 if all(map(is_ready, sys.argv[1:])) else 1)
