"""The whole stack: all of its parts in the order in which they start, and where a person finds them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass

from demo import airflow_parts
from demo.jars import cluster
from demo.jars.kafka import broker_classpath
from demo.parts import Part
from demo.ports import HOST
from demo.rest import Airflow
from demo.stack import postgres, services
from demo.stack.addresses import Addresses
from demo.stack.passwords import Passwords, passwords
from demo.stack.places import TOPICS, StackPlaces
from demo.stack.postgres import MissingError
from demo.stack.settings import airflow_environment


@dataclass(frozen=True, slots=True)
class Stack:
    """What is about to be started.

    Attributes:
        places: Its folders.
        addresses: Its ports.
        passwords: Its secrets.
        parts: In the order in which they start.
        airflow: A client of its Airflow.
    """

    places: StackPlaces
    addresses: Addresses
    passwords: Passwords
    parts: tuple[Part, ...]
    airflow: Airflow

    def part(self, name: str) -> Part:
        """The part of this name."""
        return next(part for part in self.parts if part.name == name)

    def where_to_click(self) -> Mapping[str, str]:
        """What there is to look at: title -> address."""
        s3 = f"{self.addresses.s3}, bucket streambank; keys in {self.places.secrets}"
        return {
            "Airflow": self.airflow.url,
            "Login": f"{self.airflow.user} / {self.airflow.password}",
            "Spark": self.addresses.spark_page,
            "Spark's master": f"{self.addresses.master}, drivers by REST at {self.addresses.spark_rest}",
            "S3": s3,
            "Kafka": f"{self.addresses.kafka}, topics {' and '.join(TOPICS)}",
            "Postgres": f"{HOST}:{self.addresses.port['postgres']}",
            "Logs": str(self.places.logs),
        }


def check_what_is_needed() -> None:
    """Look for what does not come from PyPI or Maven, before anything starts.

    Raises:
        MissingError: Something has to be installed; says what, and how.
    """
    if services.java_missing():
        raise MissingError(
            "Java 17 is missing: install it (Debian: apt-get install openjdk-17-jre-headless), "
            "or set JAVA_HOME"
        )
    postgres.binaries()
    if shutil.which("setpriv") is None:
        raise MissingError("setpriv is missing: install util-linux, and try again")


def assemble(places: StackPlaces, addresses: Addresses) -> Stack:
    """Write the settings of all parts, and say how each is started.

    Raises:
        MissingError: Something that it needs is not installed.
        WrongJarError: A jar could not be fetched, or is another one than it was.
    """
    jars = str(cluster.jars())
    for folder in (places.logs, places.data, places.replica):
        folder.mkdir(parents=True, exist_ok=True)
    known = passwords(places)
    base = airflow_parts.least_environment(places)
    spark = services.spark_environment(places, base)
    airflow = airflow_environment(places, addresses, known, spark, jars)
    health = {"api-server": f"{addresses.airflow}/api/v2/monitor/health"}
    parts = [
        *postgres.parts(places, addresses.port["postgres"], known.postgres, base),
        *services.s3_parts(places, addresses, known, base),
        *services.kafka_parts(places, addresses, broker_classpath(), base),
        *services.spark_parts(places, addresses, {**spark, **known.s3_environment(addresses)}, jars),
        *airflow_parts.parts(airflow, places.home, again=True, ready=health),
    ]
    password = airflow_parts.write_password(places)
    client = Airflow(addresses.airflow, airflow_parts.USER, password)
    return Stack(places, addresses, known, tuple(parts), client)
