"""Iceberg's connector, for the newest Spark that it is made for, and the driver of a catalog in SQLite.

python -m demo.jars.iceberg      (make table-jars)
"""

from __future__ import annotations

from demo.jars import JarSet, Resolved

SPARK = "4.1"
"""The release of Spark that it runs on."""
VERSION = "1.12.0"
ICEBERG = JarSet(
    "iceberg",
    (
        Resolved(
            (
                f"org.apache.iceberg:iceberg-spark-runtime-{SPARK}_2.13:{VERSION}",
                "org.xerial:sqlite-jdbc:3.50.3.0",
            ),
            without=("org.slf4j:slf4j-api",),
        ),
    ),
)

if __name__ == "__main__":
    ICEBERG.main()
