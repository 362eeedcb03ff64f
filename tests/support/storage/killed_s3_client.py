"""A process that is killed before or after one of its requests to S3: finer than a call of a store.

    with dying("before", request=7) as life:
        with pytest.raises(SimulatedCrash):
            take(...)
    assert life.over

Stores must be opened inside the `with`. After the crash every request crashes too, as nothing runs in a
process that was killed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pytest

from streambank.storage import S3Access
from streambank.storage.s3 import client as s3_client
from tests.support.storage.faulty_store import SimulatedCrash

When = Literal["before", "after"]
HEARTBEATS = "keep-"
"""How the names of threads begin that keep a lease or a lock (streambank.control.keepalive)."""


@dataclass
class KilledClient:
    """How far a process has come.

    Attributes:
        when: Whether the fatal request still reaches the service.
        request: Which one is fatal, counted from 1; none for 0.
    """

    when: When
    request: int
    requests: list[str] = field(default_factory=list)
    over: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, operation: str, send: Callable[[], Any]) -> Any:
        with self.lock:
            if self.over:
                raise SimulatedCrash(f"{operation}, after the crash")
            # Heartbeats come when they come; counted, the fatal request would be another one each time.
            counted = not threading.current_thread().name.startswith(HEARTBEATS)
            if counted:
                self.requests.append(operation)
            fatal = counted and len(self.requests) == self.request
            self.over = fatal
        if fatal and self.when == "before":
            raise SimulatedCrash(f"before {operation}")
        answer = send()
        if fatal:
            if "Body" in answer:
                answer["Body"].close()  # as the system closes the connections of a process that is killed
            raise SimulatedCrash(f"after {operation}")
        return answer


class _Client:
    def __init__(self, client: Any, life: KilledClient) -> None:
        self._client = client
        self._life = life

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if name in ("close", "exceptions", "meta"):
            return found
        return lambda **asked: self._life.ask(name, lambda: found(**asked))


@contextmanager
def dying(when: When, request: int) -> Iterator[KilledClient]:
    """Let the requests of stores that are opened inside be those of a process that is killed."""
    life = KilledClient(when, request)
    connect = s3_client._connect
    s3_client.forget_clients()

    def connect_and_die(uri: str, access: S3Access) -> s3_client.Service:
        found = connect(uri, access)
        return replace(found, client=_Client(found.client, life))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(s3_client, "_connect", connect_and_die)
        try:
            yield life
        finally:
            s3_client.forget_clients()
