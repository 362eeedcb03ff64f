"""Flink without its distribution: the modules of a standalone session cluster with RocksDB state.

    python -m demo.jars.flink

`bench.upgrade` measures its stop with a savepoint and its restore. The modules are what the distribution is
made of; a plain class path of them starts its processes.
"""

from __future__ import annotations

from demo.jars import JarSet, Resolved

VERSION = "2.3.0"
FLINK = JarSet(
    "flink",
    (
        Resolved(
            (
                *(
                    f"org.apache.flink:flink-{module}:{VERSION}"
                    for module in ("clients", "statebackend-rocksdb", "connector-files")
                ),
                "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
            ),
        ),
    ),
)

if __name__ == "__main__":
    FLINK.main()
