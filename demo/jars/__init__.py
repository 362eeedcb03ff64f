"""Jars that PySpark's wheel has not: fetched once by Spark's own resolver, and compared with known hashes.

Each set is a separate module, and `python -m demo.jars.NAME` fetches it into `.streambank` of the checkout.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from demo.places import ROOT

FETCH_TIMEOUT_S = 900


class WrongJarError(Exception):
    """A jar is missing, or is another one than it was."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """What is resolved together.

    Attributes:
        packages: Coordinates.
        without: What they must not bring, as `group:artifact`.
        into: Folder below that of the set; empty for the set's own.
    """

    packages: tuple[str, ...]
    without: tuple[str, ...] = ()
    into: str = ""


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that belong together.

    Attributes:
        name: Of the file with their hashes, beside this one, and of their folder below `.streambank`.
        resolved: What they are resolved from.
    """

    name: str
    resolved: tuple[Resolved, ...]

    def jars(self) -> Path:
        """The folder with the jars, and nothing else in it; they are fetched where they are not there.

        Raises:
            WrongJarError: What was fetched is not what was seen before.
        """
        home = ROOT / ".streambank" / self.name
        home.mkdir(parents=True, exist_ok=True)
        folder = home / "jars"
        with (home / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two workers of one test run
            if not folder.exists():
                self._fetch(home, folder)
            self.check(folder)
        return folder

    def check(self, folder: Path) -> None:
        """Compare the jars below a folder with their hashes.

        Raises:
            WrongJarError: One is missing, too many or another one.
        """
        known = Path(__file__).with_name(f"{self.name}.sha256")
        lines = (line.split() for line in known.read_text(encoding="ascii").splitlines())
        expected = {name: digest for digest, name in lines}
        found = hashes(folder)
        wrong = sorted(
            name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)
        )
        if wrong:
            raise WrongJarError(
                f"{folder} does not hold what {known.name} lists: {', '.join(wrong)}. "
                "Remove it and try again."
            )

    def _fetch(self, home: Path, folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=home, prefix="fetch-") as temporary:
            fetched = Path(temporary) / "jars"
            for number, one in enumerate(self.resolved):
                (fetched / one.into).mkdir(parents=True, exist_ok=True)
                ivy = Path(temporary) / f"ivy-{number}"
                _resolve(ivy, one)
                for jar in (ivy / "jars").glob("*.jar"):
                    jar.replace(fetched / one.into / jar.name)
            self.check(fetched)
            shutil.move(fetched, folder)

    def main(self) -> None:
        """Fetch them, and say how many there are."""
        print(f"{self.jars()}: {len(hashes(self.jars()))} jars")


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of each file below a folder, by its path there."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def pyspark_home() -> Path:
    """The folder of the installed PySpark."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None and found.submodule_search_locations
    return Path(found.submodule_search_locations[0])


def _resolve(ivy: Path, one: Resolved) -> None:
    ivy.mkdir()
    nothing = ivy / "nothing.py"
    nothing.touch()
    command: Sequence[str] = [
        *(str(pyspark_home() / "bin" / "spark-submit"), "--master", "local[1]"),
        *("--packages", ",".join(one.packages)),
        *(("--exclude-packages", ",".join(one.without)) if one.without else ()),
        *("--conf", f"spark.jars.ivy={ivy}", str(nothing)),
    ]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False, env=environment
    )
    if done.returncode or not (ivy / "jars").is_dir():
        raise WrongJarError(f"Spark's resolver did not fetch {one.packages[0]}: {done.stderr[-2000:]}")
