"""Ports: found out before anything starts, on loopback only."""

from __future__ import annotations

import socket

HOST = "127.0.0.1"
PREFERRED = (8080, 8090, 28080)


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


def choose(wanted: int | None = None) -> int:
    """A free port for Airflow: the one that was asked for, else a well-known one, else any.

    Raises:
        NoFreePortError: The one that was asked for is in use.
    """
    if wanted is not None:
        if not is_free(wanted):
            raise NoFreePortError(
                f"port {wanted} of {HOST} is in use: choose another with --port, or leave it out"
            )
        return wanted
    for port in PREFERRED:
        if is_free(port):
            return port
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
