"""Free ports on loopback, chosen before anything starts."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable

HOST = "127.0.0.1"
PREFERRED = (8080, 8090, 28080)
LOWEST = 20_000
LOWEST_GIVEN = 32_768  # Linux gives outgoing connections the ports from here on


class NoFreePortError(Exception):
    """The port that was asked for is in use."""


def is_free(port: int) -> bool:
    """Whether nothing listens on this port of loopback (a port in TIME_WAIT counts as free)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def choose(wanted: int | None = None, preferred: Iterable[int] = PREFERRED, *, option: str = "--port") -> int:
    """A free port: the one that `option` names, else a well-known one, else any.

    Raises:
        NoFreePortError: The named port is in use.
    """
    if wanted is not None:
        if not is_free(wanted):
            raise NoFreePortError(
                f"port {wanted} of {HOST} is in use: choose another with {option}, or leave it out"
            )
        return wanted
    for port in preferred:
        if is_free(port):
            return port
    return any_free()


def any_free(apart: int = 0) -> int:
    """A free port that the system gives to nobody by itself, so that it stays free for who comes back to it.

    Args:
        apart: The port so much above it is free, too.

    Raises:
        NoFreePortError: There is none among two hundred.
    """
    for _ in range(200):
        port = random.randrange(LOWEST, LOWEST_GIVEN - apart)
        if is_free(port) and (not apart or is_free(port + apart)):
            return port
    raise NoFreePortError(f"no port of {HOST} from {LOWEST} to {LOWEST_GIVEN} is free")
