"""Delta Lake's connector, for the newest Spark that it is made for.

python -m demo.jars.delta      (make table-jars)
"""

from __future__ import annotations

from demo.jars import JarSet, Resolved

SPARK = "4.2"
"""The release of Spark that it runs on."""
VERSION = "4.4.0"
DELTA = JarSet(
    "delta",
    (
        Resolved(
            (f"io.delta:delta-spark_{SPARK}_2.13:{VERSION}",),
            # Spark has them, or only a catalog service needs them.
            without=("com.*:*", "commons-*:*", "io.airlift:*", "io.unitycatalog:*", "javax.*:*", "org.*:*"),
        ),
    ),
)

if __name__ == "__main__":
    DELTA.main()
