"""Hadoop's own daemons, for tests on YARN, and for tests and benchmarks on HDFS.

python -m demo.jars.yarn      (make yarn-jars)
"""

from __future__ import annotations

from demo.jars import JarSet, Resolved

HADOOP = "3.5.0"
YARN = JarSet(
    "yarn",
    (
        Resolved(
            (
                f"org.apache.hadoop:hadoop-client-minicluster:{HADOOP}",
                "org.mockito:mockito-core:4.11.0",
                "org.slf4j:slf4j-simple:1.7.36",
                "org.junit.jupiter:junit-jupiter-api:5.11.4",
                "ch.qos.reload4j:reload4j:1.2.22",
                "org.bouncycastle:bcpkix-jdk18on:1.79",
            ),
            # PySpark has them.
            without=("org.apache.hadoop:hadoop-client-api", "org.apache.hadoop:hadoop-client-runtime"),
        ),
    ),
)

if __name__ == "__main__":
    YARN.main()
