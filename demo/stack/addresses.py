"""Where each part of the stack listens, on loopback only: chosen before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from demo import ports
from demo.ports import HOST

PREFERRED: Mapping[str, int] = {
    "airflow": 8080,
    "spark": 7077,
    "spark-rest": 6066,
    "spark-web": 18080,
    "s3": 8333,
    "kafka": 9092,
    "postgres": 15432,
}
"""The ports that can be chosen, and which are tried first."""
WORKERS = 2
WEED_PARTS = ("master", "volume", "filer")
WEED_APART = 10_000
"""The S3 server's own workers look for its admin part so far above its port."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """The ports of one stack.

    Attributes:
        port: Those that people use, by name as in `PREFERRED`.
        inside: Those that only the parts themselves use, by name.
    """

    port: Mapping[str, int]
    inside: Mapping[str, int]

    @property
    def airflow(self) -> str:
        """Airflow's page and API."""
        return f"http://{HOST}:{self.port['airflow']}"

    @property
    def master(self) -> str:
        """Spark's master, as applications name it."""
        return f"spark://{HOST}:{self.port['spark']}"

    @property
    def spark_rest(self) -> str:
        """Where the master takes drivers in cluster mode."""
        return f"http://{HOST}:{self.port['spark-rest']}"

    @property
    def spark_page(self) -> str:
        """The master's page."""
        return f"http://{HOST}:{self.port['spark-web']}"

    @property
    def s3(self) -> str:
        """The S3 server."""
        return f"http://{HOST}:{self.port['s3']}"

    @property
    def kafka(self) -> str:
        """The broker, as clients name it."""
        return f"{HOST}:{self.port['kafka']}"


def choose(wanted: Mapping[str, int | None]) -> Addresses:
    """Ports that are free now.

    Args:
        wanted: Those that were asked for, by name; None for any.

    Raises:
        NoFreePortError: One that was asked for is in use, or asked for twice.
    """
    found: dict[str, int] = {}
    for name, preferred in PREFERRED.items():
        port = ports.choose(wanted.get(name), (preferred,), option=f"--{name}-port")
        if port in found.values():
            raise ports.NoFreePortError(f"port {port} is asked for twice: --{name}-port needs another")
        found[name] = port
    names = [f"weed-{part}{end}" for part in WEED_PARTS for end in ("", "-grpc")]
    names += ["weed-s3-grpc", "kafka-controller"]
    names += [f"worker-{number}{end}" for number in range(1, WORKERS + 1) for end in ("", "-web")]
    inside: dict[str, int] = {}
    for name in names:
        inside[name] = _another(found, inside)
    inside["weed-admin"] = _another(found, inside, apart=WEED_APART)
    inside["weed-admin-grpc"] = inside["weed-admin"] + WEED_APART
    return Addresses(found, inside)


def _another(found: Mapping[str, int], inside: Mapping[str, int], apart: int = 0) -> int:
    taken = {*found.values(), *inside.values()}
    while {port := ports.any_free(apart), port + apart} & taken:
        continue
    return port
