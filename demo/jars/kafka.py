"""A Kafka broker (`broker`), and Spark's connector to it (`spark`).

    python -m demo.jars.kafka      (make kafka-jars)

There is no connector of Spark 4.3.0 yet: that of 4.2.0 works with it, and its missing token provider is that
of 4.0.0. So each is asked for by itself, without what Spark brings.
"""

from __future__ import annotations

import os

from demo.jars import JarSet, Resolved, pyspark_home

VERSION = "4.3.1"
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
KAFKA = JarSet(
    "kafka",
    (
        Resolved(
            ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",), without=(*SPARK_HAS, TOKENS), into="spark"
        ),
        Resolved((f"{TOKENS}:4.0.0",), without=(*SPARK_HAS, "org.apache.kafka:kafka-clients"), into="spark"),
        # Without the last one, which is what Kafka writes its log by, it says nothing.
        Resolved(
            (f"org.apache.kafka:kafka_2.13:{VERSION}", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"),
            into="broker",
        ),
    ),
)


def spark_settings() -> dict[str, str]:
    """Spark's settings of a driver that reads from and writes to Kafka."""
    return {"spark.jars": f"{KAFKA.jars()}/spark/*.jar"}


def broker_classpath() -> str:
    """The classpath of a broker; Scala's own library is Spark's, of the same version."""
    scala = sorted((pyspark_home() / "jars").glob("scala-library-2.13.*.jar"))
    assert len(scala) == 1, scala
    return f"{KAFKA.jars()}/broker/*{os.pathsep}{scala[0]}"


if __name__ == "__main__":
    KAFKA.main()
