"""Where the demo keeps what it writes, and what it leaves for whoever looks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROCESS_MARK = "STREAMBANK_DEMO_PROCESS"
"""In the environment of all that comes of a demo, the driver's too, with the demo's folder as its value."""


@dataclass(frozen=True, slots=True)
class Places:
    """Every path of one demo, all below one ignored folder."""

    home: Path

    @property
    def airflow(self) -> Path:
        """Airflow's home: its database, passwords and task logs."""
        return self.home / "airflow"

    @property
    def logs(self) -> Path:
        """What each of Airflow's four processes prints."""
        return self.home / "logs"

    @property
    def repository(self) -> Path:
        """The savepoints."""
        return self.home / "repository"

    @property
    def data(self) -> Path:
        """Input files, checkpoints and output of the streaming job."""
        return self.home / "data"

    @property
    def keeper(self) -> Path:
        """Who keeps Airflow running, and where it listens (JSON)."""
        return self.home / "keeper.json"

    @property
    def report(self) -> Path:
        """The story's figures (JSON)."""
        return self.home / "report.json"


def default_places() -> Places:
    """The demo's folder in this checkout."""
    return Places(ROOT / ".streambank" / "demo")
