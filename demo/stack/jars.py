"""Kafka's broker as jars: fetched once by Spark's own resolver, and compared with known hashes.

    python -m demo.stack.jars

Kept in `.streambank/kafka-broker` of the checkout.
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
from pathlib import Path

from demo.places import ROOT

HOME = ROOT / ".streambank" / "kafka-broker"
HASHES = Path(__file__).with_name("kafka_jars.sha256")
PACKAGES = (
    "org.apache.kafka:kafka_2.13:4.3.1",
    # What Kafka writes its log by; without it, it says nothing.
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
)
FETCH_TIMEOUT_S = 600


class WrongJarError(Exception):
    """A jar is missing, or is another one than it was."""


def jars() -> Path:
    """The folder with the jars, and nothing else in it; they are fetched where they are not there.

    Raises:
        WrongJarError: What was fetched is not what was seen before.
    """
    HOME.mkdir(parents=True, exist_ok=True)
    folder = HOME / "jars"
    with (HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _fetch(folder)
        check(folder)
    return folder


def check(folder: Path) -> None:
    """Compare the jars in a folder with their hashes.

    Raises:
        WrongJarError: One is missing, too many or another one.
    """
    lines = (line.split() for line in HASHES.read_text(encoding="ascii").splitlines())
    expected = {name: digest for digest, name in lines}
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    if wrong:
        raise WrongJarError(
            f"{folder} does not hold what {HASHES.name} lists: {', '.join(wrong)}. Remove it and try again."
        )


def _fetch(folder: Path) -> None:
    found = importlib.util.find_spec("pyspark")
    assert found is not None and found.submodule_search_locations
    submit = Path(found.submodule_search_locations[0]) / "bin" / "spark-submit"
    with tempfile.TemporaryDirectory(dir=HOME, prefix="fetch-") as temporary:
        nothing = Path(temporary) / "nothing.py"
        nothing.touch()
        command = [
            *(str(submit), "--master", "local[1]", "--packages", ",".join(PACKAGES)),
            *("--conf", f"spark.jars.ivy={temporary}", str(nothing)),
        ]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False, env=environment
        )
        fetched = Path(temporary) / "jars"
        if done.returncode or not fetched.is_dir():
            raise WrongJarError(f"Spark's resolver did not fetch the jars: {done.stderr[-2000:]}")
        check(fetched)
        shutil.move(fetched, folder)


if __name__ == "__main__":
    print(f"{jars()}: {len(list(jars().iterdir()))} jars")
