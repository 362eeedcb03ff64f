"""What Airflow uses of the `statsd` package, an extra of Airflow's own: gauges over UDP."""

from __future__ import annotations

import socket
import sys
from types import ModuleType

import pytest


class StatsClient:
    """Sends as the package's own client does: one datagram a gauge."""

    def __init__(self, host: str, port: int, prefix: str, ipv6: bool = False) -> None:
        self.address = (host, port)
        self.prefix = prefix

    def gauge(self, stat: str, value: float, rate: float = 1, delta: bool = False) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(f"{self.prefix}.{stat}:{value}|g".encode(), self.address)


def have_statsd(patch: pytest.MonkeyPatch) -> None:
    module = ModuleType("statsd")
    module.__dict__["StatsClient"] = StatsClient
    patch.setitem(sys.modules, "statsd", module)
