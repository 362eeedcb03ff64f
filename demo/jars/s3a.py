"""Spark's jars for `s3a://`.

    python -m demo.jars.s3a      (make s3a-jars)

The published way (hadoop-aws alone) brings all of Amazon's SDK, 686 MB; this is the part that S3A uses.
"""

from __future__ import annotations

from collections.abc import Mapping

from demo.jars import JarSet, Resolved

HADOOP = "3.5.0"
SDK = "2.35.4"
S3A = JarSet(
    "s3a",
    (
        Resolved(
            (
                f"org.apache.hadoop:hadoop-aws:{HADOOP}",
                *(
                    f"software.amazon.awssdk:{name}:{SDK}"
                    for name in ("s3", "s3-transfer-manager", "sts", "apache-client")
                ),
            ),
            without=("software.amazon.awssdk:bundle", "org.slf4j:slf4j-api"),
        ),
    ),
)

SETTINGS: Mapping[str, str] = {
    "spark.hadoop.fs.s3a.path.style.access": "true",
    "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
}
"""What a server of the tests needs; the address and the credentials are in the environment."""


def settings() -> dict[str, str]:
    """Spark's settings of a driver in local mode that uses the jars on a server of the tests."""
    return {"spark.jars": f"{S3A.jars()}/*.jar", **SETTINGS}


if __name__ == "__main__":
    S3A.main()
