"""Jars that machines of a cluster need beside Spark's own: S3A and Kafka's connector, in one folder.

    python -m demo.jars.cluster

Workers fetch a driver's program from S3, drivers and executors work there, so all of them have the folder on
their class path, before Spark's jars. Therefore it has nothing that Spark has in another version.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from demo.jars import pyspark_home
from demo.jars.kafka import KAFKA
from demo.jars.s3a import S3A
from demo.places import ROOT

IN_PLACE_OF = {"jcl-over-slf4j": "commons-logging"}
"""What Spark has under another name: its jar, and the one that it stands for."""


def jars() -> Path:
    """The folder, made of links to the jars that were fetched.

    Raises:
        WrongJarError: A jar could not be fetched, or is another one than it was.
    """
    found = [*S3A.jars().glob("*.jar"), *(KAFKA.jars() / "spark").glob("*.jar")]
    return lay_out(found, ROOT / ".streambank" / "cluster" / "jars", pyspark_home() / "jars")


def lay_out(found: list[Path], folder: Path, of_spark: Path) -> Path:
    """Link jars into a folder that holds nothing else afterwards, but for those that Spark has itself.

    What is right is not touched: Spark may be running on it.

    Args:
        found: The jars, named `group_artifact-version.jar`.
        folder: Where they are wanted.
        of_spark: The folder of Spark's own, named `artifact-version.jar`.
    """
    known = {_without_version(path.name) for path in of_spark.glob("*.jar")}
    known |= {other for own, other in IN_PLACE_OF.items() if own in known}
    wanted = {
        path.name: path for path in found if _without_version(path.name).rpartition("_")[2] not in known
    }
    folder.mkdir(parents=True, exist_ok=True)
    for there in folder.iterdir():
        if there.name not in wanted or not there.is_symlink() or there.readlink() != wanted[there.name]:
            there.unlink()
    for name, path in wanted.items():
        with contextlib.suppress(FileExistsError):
            (folder / name).symlink_to(path)
    return folder


def _without_version(name: str) -> str:
    return re.sub(r"-\d.*\.jar$", "", name)


if __name__ == "__main__":
    print(jars())
