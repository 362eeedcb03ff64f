"""Jars of a Kafka broker, and Spark's connector to it: fetched once by Spark's own resolver, hashes compared.

    python -m tests.support.kafka_jars      (make kafka-jars)

There is no connector of Spark 4.3.0 yet: that of 4.2.0 works with it, and its missing token provider is that
of 4.0.0. So each is asked for by itself, without what Spark brings. They are kept in `.streambank/kafka` of
the checkout.
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
from collections.abc import Mapping
from pathlib import Path

from tests.support.s3a import WrongJarError

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".streambank" / "kafka"
HASHES = Path(__file__).with_name("kafka_jars.sha256")
FETCH_TIMEOUT_S = 600

KAFKA = "4.3.1"
SPARK_HAS = (
    "at.yawk.lz4:lz4-java",
    "com.google.code.findbugs:jsr305",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.lz4:lz4-java",
    "org.scala-lang.modules:scala-parallel-collections_2.13",
    "org.slf4j:slf4j-api",
    "org.xerial.snappy:snappy-java",
)
TOKENS = "org.apache.spark:spark-token-provider-kafka-0-10_2.13"
RESOLVED: Mapping[str, tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]] = {
    "spark": (
        (("org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",), (*SPARK_HAS, TOKENS)),
        ((f"{TOKENS}:4.0.0",), (*SPARK_HAS, "org.apache.kafka:kafka-clients")),
    ),
    "broker": (
        ((f"org.apache.kafka:kafka_2.13:{KAFKA}", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"), ()),
    ),
}
"""For each folder what is resolved together: coordinates, and what they must not bring."""


def pyspark_home() -> Path:
    """The folder of the installed PySpark."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None and found.submodule_search_locations
    return Path(found.submodule_search_locations[0])


def jars() -> Path:
    """The folder with `spark` and `broker`; they are fetched where they are not there.

    Raises:
        WrongJarError: What was fetched is not what was seen before.
    """
    HOME.mkdir(parents=True, exist_ok=True)
    folder = HOME / "jars"
    with (HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two workers of one test run
        if not folder.exists():
            _fetch(folder)
        check(folder)
    return folder


def spark_settings() -> dict[str, str]:
    """Spark's settings of a driver that reads from and writes to Kafka."""
    return {"spark.jars": f"{jars()}/spark/*.jar"}


def broker_classpath() -> str:
    """The classpath of a broker; Scala's own library is Spark's, of the same version."""
    scala = sorted((pyspark_home() / "jars").glob("scala-library-2.13.*.jar"))
    assert len(scala) == 1, scala
    return f"{jars()}/broker/*{os.pathsep}{scala[0]}"


def check(folder: Path) -> None:
    """Compare the jars below a folder with their hashes.

    Raises:
        WrongJarError: One is missing, too many or another one.
    """
    lines = (line.split() for line in HASHES.read_text(encoding="ascii").splitlines())
    expected = {name: digest for digest, name in lines}
    found = hashes(folder)
    wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    if wrong:
        raise WrongJarError(
            f"{folder} does not hold what {HASHES.name} lists: {', '.join(wrong)}. Remove it and try again."
        )


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of each jar below a folder, by its path there."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.glob("*/*.jar"))
    }


def _fetch(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=HOME, prefix="fetch-") as temporary:
        fetched = Path(temporary) / "jars"
        for name, groups in RESOLVED.items():
            (fetched / name).mkdir(parents=True)
            for number, (packages, excluded) in enumerate(groups):
                ivy = Path(temporary) / f"ivy-{name}-{number}"
                _resolve(ivy, packages, excluded)
                for jar in (ivy / "jars").glob("*.jar"):
                    jar.replace(fetched / name / jar.name)
        check(fetched)
        shutil.move(fetched, folder)


def _resolve(ivy: Path, packages: tuple[str, ...], excluded: tuple[str, ...]) -> None:
    ivy.mkdir()
    nothing = ivy / "nothing.py"
    nothing.touch()
    command = [
        *(str(pyspark_home() / "bin" / "spark-submit"), "--master", "local[1]"),
        *("--packages", ",".join(packages)),
        *(("--exclude-packages", ",".join(excluded)) if excluded else ()),
        *("--conf", f"spark.jars.ivy={ivy}", str(nothing)),
    ]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False, env=environment
    )
    if done.returncode or not (ivy / "jars").is_dir():
        raise WrongJarError(f"Spark's resolver did not fetch {packages[0]}: {done.stderr[-2000:]}")


if __name__ == "__main__":
    print(f"{jars()}: {len(hashes(jars()))} jars")
