"""Where the stack keeps what it writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from demo.places import ROOT, Places

KAFKA_VARIABLE = "STREAMBANK_DEMO_KAFKA"
"""By it the DAG `flights.replay` knows the broker."""
HERE = Path(__file__).resolve().parent
JOBS_FILE = HERE / "streaming_jobs.toml"
BUCKET = "streambank"
REPOSITORY = f"s3://{BUCKET}/repository"
FLIGHTS_TOPIC = "flights"
TOPICS = (FLIGHTS_TOPIC, "delays")
"""What flights come to, and what the job `origins` of docker-compose.yml writes to."""


@dataclass(frozen=True, slots=True)
class StackPlaces(Places):
    """Every path of one stack, all below one ignored folder; checkpoint and repository are in its S3."""

    @property
    def postgres(self) -> Path:
        """Postgres' data; of the user `postgres` where root starts the stack."""
        return self.home / "postgres"

    @property
    def s3(self) -> Path:
        """The S3 server's data and its users."""
        return self.home / "s3"

    @property
    def kafka(self) -> Path:
        """The broker's settings and its log."""
        return self.home / "kafka"

    @property
    def spark(self) -> Path:
        """What master and workers write."""
        return self.home / "spark"

    @property
    def replica(self) -> Path:
        """The second copy of the savepoints."""
        return self.home / "replica"

    @property
    def secrets(self) -> Path:
        """Passwords and keys (JSON, for its owner only)."""
        return self.home / "secrets.json"


def default_places() -> StackPlaces:
    """The stack's folder in this checkout."""
    return StackPlaces(ROOT / ".streambank" / "stack")
