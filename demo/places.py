"""The folders of the demo, and the files that it leaves to look at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROCESS_MARK = "STREAMBANK_DEMO_PROCESS"
"""Its value is the demo's folder. It is in the environment of all processes of a demo, also the driver's."""


@dataclass(frozen=True, slots=True)
class Places:
    """Every path of one demo; all are in one folder that git ignores."""

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
    def temporary(self) -> Path:
        """The temporary folder of everything that runs here, so that nothing is left elsewhere."""
        return self.home / "tmp"

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
        """The keeper's report: which processes run, and where Airflow listens (JSON)."""
        return self.home / "keeper.json"

    @property
    def report(self) -> Path:
        """The story's figures (JSON)."""
        return self.home / "report.json"


def default_places() -> Places:
    """The demo's folder in this checkout."""
    return Places(ROOT / ".streambank" / "demo")
