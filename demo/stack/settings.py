"""What the stack's Airflow and its jobs are told, beside what the demo's Airflow is."""

from __future__ import annotations

import json
from collections.abc import Mapping

from demo import airflow_parts
from demo.stack import postgres
from demo.stack.addresses import Addresses
from demo.stack.passwords import Passwords
from demo.stack.places import JOBS_FILE, KAFKA_VARIABLE, REPOSITORY, StackPlaces


def airflow_environment(
    places: StackPlaces, addresses: Addresses, passwords: Passwords, spark: Mapping[str, str], jars: str
) -> dict[str, str]:
    """All of Airflow's environment: its database is Postgres, S3 and the cluster are at hand.

    Args:
        places: The stack's folders.
        addresses: Its ports.
        passwords: Its secrets.
        spark: What Spark's own processes get: a task that reads state starts one.
        jars: The folder of the jars that Spark needs beside its own.
    """
    database = postgres.url(addresses.port["postgres"], passwords.postgres)
    connection = {"conn_type": "streambank", "extra": {"repository": REPOSITORY, "jobs_file": str(JOBS_FILE)}}
    return {
        **airflow_parts.environment(places, addresses.port["airflow"], database),
        **{name: value for name, value in spark.items() if name.startswith(("SPARK_LOCAL", "TMPDIR"))},
        **passwords.s3_environment(addresses),
        **job_variables(places, addresses, jars),
        KAFKA_VARIABLE: addresses.kafka,
        "AIRFLOW__CORE__FERNET_KEY": passwords.fernet,
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(places.logs / "tasks"),
        "AIRFLOW_CONN_STREAMBANK_DEFAULT": json.dumps(connection),
        "STREAMBANK_JOBS": str(JOBS_FILE),
        # What is kept of a job on this machine goes there; it would be in the user's home.
        "XDG_STATE_HOME": str(places.logs / "drivers"),
    }


def job_variables(places: StackPlaces, addresses: Addresses, jars: str) -> dict[str, str]:
    """What stands in the stack's jobs file as `${...}`."""
    return {
        "STREAMBANK_DEMO_HOME": str(places.home),
        "STREAMBANK_STACK_JARS": jars,
        "STREAMBANK_STACK_KAFKA": addresses.kafka,
        "STREAMBANK_STACK_MASTER": addresses.master,
        "STREAMBANK_STACK_REPLICA": places.replica.as_uri(),
        "STREAMBANK_STACK_SPARK_PAGE": addresses.spark_page,
        "STREAMBANK_STACK_SPARK_REST": addresses.spark_rest,
    }
