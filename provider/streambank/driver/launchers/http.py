"""Asking a cluster by its web services: JSON and plain text over HTTP, with the standard library alone."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from streambank.core.errors import StorageError
from streambank.core.json_text import loads

TIMEOUT_S = 10.0
_LONGEST_BYTES = 16_000_000

UNREACHABLE = "cluster-unreachable"
"""Nobody was there: what was asked for was not done."""
UNANSWERED = "cluster-unanswered"
"""Somebody was there and gave no answer: what was asked for may have been done."""
REFUSED = "cluster-refused"
"""It was answered, and not done."""

_ADDRESSES = "Check whether the cluster is up, and check the addresses in the job's table launch."
_NO_LOGIN = "Streambank sends a cluster no login: let this host in without one, or use client mode."


def get_json(url: str) -> Mapping[str, Any]:
    """The JSON object at an address.

    Raises:
        StorageError: See `ask`; or it is no JSON object (code `cluster-refused`).
    """
    return _decoded(url, ask(url), REFUSED)


def send_json(
    url: str, data: Mapping[str, Any] | None, *, method: str = "POST", timeout_s: float = TIMEOUT_S
) -> Mapping[str, Any]:
    """Send something, and take the JSON object that is the answer.

    Raises:
        StorageError: See `ask`; or the answer is no JSON object (code `cluster-unanswered`): what was sent
            has arrived, and whether it was done is not said.
    """
    body = b"" if data is None else json.dumps(data).encode()
    return _decoded(url, ask(url, body=body, method=method, timeout_s=timeout_s), UNANSWERED)


def ask(url: str, *, body: bytes | None = None, method: str = "GET", timeout_s: float = TIMEOUT_S) -> bytes:
    """One request. An error repeats neither its body nor the answer's, but for a `message` in JSON.

    Args:
        url: Of http or https: declarations are checked for that.
        timeout_s: For each read; a connection gets no more than 10 s of it.

    Raises:
        StorageError: Nobody is there (code `cluster-unreachable`), nobody answered, or not to the end
            (`cluster-unanswered`), or the answer is an error (`cluster-refused`).
    """
    request = urllib.request.Request(url, data=body, method=method, headers={"Accept": "*/*"})
    if body is not None:
        request.add_header("Content-Type", "application/json;charset=UTF-8")
    try:
        with _OPENER.open(request, timeout=timeout_s) as answer:
            found: bytes = answer.read(_LONGEST_BYTES)
            if answer.length:  # a read of so many bytes does not say that some never came
                raise _error(url, "its answer was cut off", UNANSWERED)
            return found
    except urllib.error.HTTPError as error:
        # A gateway's own errors say nothing about what is behind it.
        code = UNANSWERED if error.code in (500, 502, 503, 504) else REFUSED
        hint = _NO_LOGIN if error.code in (401, 403) else _ADDRESSES
        raise _error(url, f"it answered {error.code}{_message(error)}", code, hint) from error
    except urllib.error.URLError as error:
        sent = not isinstance(error.reason, _NotConnected)
        code = "cluster-unanswered" if sent else "cluster-unreachable"
        raise _error(url, str(error.reason), code) from error
    except (OSError, HTTPException) as error:
        raise _error(url, str(error) or type(error).__name__, UNANSWERED) from error


def entries(found: Any, url: str) -> list[Mapping[str, Any]]:
    """A list of JSON objects, out of an answer; none where it is not there.

    Raises:
        StorageError: It is something else (code `cluster-refused`).
    """
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise misshapen(url)
    return found


def misshapen(url: str, code: str = REFUSED) -> StorageError:
    """The error for an answer that says something else than it should: another program may be there."""
    return _error(url, "its answer is not in the expected form", code)


class _NotConnected(OSError):
    """There was no connection, so it is certain that nothing was sent."""


class _Connecting(http.client.HTTPConnection):
    """Tells a connection that failed from an answer that did not come."""

    def connect(self) -> None:
        patience = self.timeout
        self.timeout = min(patience or TIMEOUT_S, TIMEOUT_S)
        try:
            super().connect()
        except (OSError, UnicodeError) as error:  # the second of a name that is none
            raise _NotConnected(str(error) or type(error).__name__) from error
        finally:
            self.timeout = patience
        self.sock.settimeout(patience)


class _ConnectingSecurely(_Connecting, http.client.HTTPSConnection):
    """The same, with TLS."""


class _Handler(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connecting, req)


class _SecureHandler(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_ConnectingSecurely, req)


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Follows an answer to another place of the same host, and nowhere else; never what was sent."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        there = urlsplit(newurl)
        # A page may move on to TLS, never back.
        safe = there.scheme in ("https", urlsplit(req.full_url).scheme)
        if req.get_method() != "GET" or there.hostname != urlsplit(req.full_url).hostname or not safe:
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_OPENER = urllib.request.build_opener(_Handler, _SecureHandler, _SameHost)


def _decoded(url: str, data: bytes, code: str) -> Mapping[str, Any]:
    try:
        found = loads(data)
    except ValueError as error:
        raise _error(url, "its answer is not JSON", code) from error
    if not isinstance(found, dict):
        raise _error(url, "its answer is not a JSON object", code)
    return found


def _message(error: urllib.error.HTTPError) -> str:
    try:
        with error:
            found = loads(error.read(_LONGEST_BYTES))
    except (ValueError, OSError, HTTPException):
        return ""
    if not isinstance(found, dict):
        return ""
    inner = found.get("RemoteException")
    said = found.get("message") or (inner.get("message") if isinstance(inner, dict) else None)
    return f": {str(said)[:500]}" if said else ""


def _error(url: str, why: str, code: str, hint: str = _ADDRESSES) -> StorageError:
    return StorageError(f"{url.partition('?')[0]} could not be asked: {why}.", code=code, hint=hint)
