"""Asking a cluster by its web services: JSON and plain text over HTTP, with the standard library alone."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any

from streambank.errors import StorageError

TIMEOUT_S = 10.0
_LONGEST_BYTES = 16_000_000

UNREACHABLE = "cluster-unreachable"
"""Nobody was there: what was asked for was not done."""
UNANSWERED = "cluster-unanswered"
"""Somebody was there and gave no answer: what was asked for may have been done."""
REFUSED = "cluster-refused"
"""It was answered, and not done."""


def get_json(url: str, timeout_s: float = TIMEOUT_S) -> Any:
    """What is at an address.

    Raises:
        StorageError: See `ask`; or it is no JSON (code `cluster-refused`).
    """
    return _decoded(url, ask(url, timeout_s=timeout_s))


def send_json(
    url: str, data: Mapping[str, Any] | None, *, method: str = "POST", timeout_s: float = TIMEOUT_S
) -> Any:
    """Send something, and take the answer.

    Raises:
        StorageError: See `ask`; or the answer is no JSON (code `cluster-refused`).
    """
    body = b"" if data is None else json.dumps(data).encode()
    return _decoded(url, ask(url, body=body, method=method, timeout_s=timeout_s))


def ask(url: str, *, body: bytes | None = None, method: str = "GET", timeout_s: float = TIMEOUT_S) -> bytes:
    """One request. An error repeats neither its body nor the answer's, but for a `message` in JSON.

    Args:
        url: Of http or https: declarations are checked for that.
        body: What is sent along.
        method: GET, POST or PUT.
        timeout_s: For the connection, and for each read.

    Raises:
        StorageError: Nobody is there (code `cluster-unreachable`), nobody answered (`cluster-unanswered`), or
            the answer is an error (`cluster-refused`).
    """
    request = urllib.request.Request(url, data=body, method=method, headers={"Accept": "*/*"})
    if body is not None:
        request.add_header("Content-Type", "application/json;charset=UTF-8")
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            found: bytes = answer.read(_LONGEST_BYTES)
            return found
    except urllib.error.HTTPError as error:
        with error:
            said = _message(error.read(_LONGEST_BYTES))
        # A gateway's own errors say nothing about what is behind it.
        code = UNANSWERED if error.code in (500, 502, 503, 504) else REFUSED
        raise _error(url, f"it answered {error.code}{said}", code) from error
    except urllib.error.URLError as error:
        # Of a refused connection, or a name that nobody has, it is certain that nothing was sent.
        refused = isinstance(error.reason, ConnectionRefusedError | socket.gaierror)
        code = "cluster-unreachable" if refused else "cluster-unanswered"
        raise _error(url, str(error.reason), code) from error
    except (OSError, HTTPException) as error:
        raise _error(url, str(error) or type(error).__name__, UNANSWERED) from error


def _decoded(url: str, data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise _error(url, "its answer is no JSON", REFUSED) from error


def _message(data: bytes) -> str:
    try:
        found = json.loads(data)
    except ValueError:
        return ""
    said = found.get("message") or (found.get("RemoteException") or {}).get("message")
    return f": {str(said)[:500]}" if said else ""


def _error(url: str, why: str, code: str) -> StorageError:
    return StorageError(
        f"{url.partition('?')[0]} could not be asked: {why}.",
        code=code,
        hint="Look whether the cluster is up, and at the addresses in the job's table launch.",
    )
