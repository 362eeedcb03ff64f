"""What the stack's Airflow and its jobs are told, beside what the demo's Airflow is."""

from __future__ import annotations

import json
from collections.abc import Mapping

from demo import airflow_parts
from demo.stack import postgres
from demo.stack.addresses import Addresses
from demo.stack.passwords import Passwords
from demo.stack.places import JOBS_FILE, REPOSITORY, StackPlaces


def airflow_environment(
    places: StackPlaces, addresses: Addresses, passwords: Passwords, spark: Mapping[str, str], s3a_jars: str
) -> dict[str, str]:
    """All of Airflow's environment: its database is Postgres, its tasks reach S3, its drivers the cluster.

    Args:
        places: The stack's folders.
        addresses: Its ports.
        passwords: Its secrets.
        spark: What Spark's own processes get: drivers in client mode are started by tasks.
        s3a_jars: The folder of the jars by which Spark reaches S3.
    """
    database = postgres.url(addresses.port["postgres"], passwords.postgres)
    connection = {"conn_type": "streambank", "extra": {"repository": REPOSITORY, "jobs_file": str(JOBS_FILE)}}
    return {
        **airflow_parts.environment(places, addresses.port["airflow"], database),
        **{name: value for name, value in spark.items() if name.startswith(("SPARK_LOCAL", "TMPDIR"))},
        **passwords.s3_environment(addresses),
        **job_variables(places, addresses, s3a_jars),
        "AIRFLOW__CORE__FERNET_KEY": passwords.fernet,
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(places.logs / "tasks"),
        "AIRFLOW_CONN_STREAMBANK_DEFAULT": json.dumps(connection),
        "STREAMBANK_JOBS": str(JOBS_FILE),
        # Where a driver's log goes whose records are not on a disk; it would be in the user's home.
        "XDG_STATE_HOME": str(places.logs / "drivers"),
    }


def job_variables(places: StackPlaces, addresses: Addresses, s3a_jars: str) -> dict[str, str]:
    """What stands in the stack's jobs file as `${...}`."""
    return {
        "STREAMBANK_DEMO_HOME": str(places.home),
        "STREAMBANK_STACK_MASTER": addresses.master,
        "STREAMBANK_STACK_REPLICA": places.replica.as_uri(),
        "STREAMBANK_STACK_S3A_JARS": s3a_jars,
    }
