"""Where a job's driver runs, as a connection of Airflow's Spark provider says it.

What the job declares wins over the connection. Its `spark-binary`, where that is not the usual one, says
which Spark a job runs on that names none, and which one submits work for executors. A keytab in the
connection (Base64) is refused, for a driver that runs for months needs a file that stays: declare its path.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from streambank.core.errors import InputError
from streambank.declaration.declaration import Job
from streambank.declaration.launch import LaunchPolicy, place_of, settle


def spark_home_of(conn_id: str, extra: Mapping[str, Any]) -> str | None:
    """The distribution whose spark-submit a connection names in its `spark-binary`; None where it names none.

    The form fills in `spark-submit` by itself: that is the installed Spark. Where the name leads to no
    distribution, what is given says so and is no path: only a start refuses it, by this text. A wrapper
    script outside of a distribution, as some Hadoop distributions have it, is such a name.
    """
    name = extra.get("spark-binary") or BINARIES[0]
    if name == BINARIES[0]:
        return None
    path = shutil.which(name) if name in BINARIES else None
    home = None if path is None else Path(path).resolve().parent.parent
    if home is not None and (home / "bin" / "spark-submit").is_file() and (home / "jars").is_dir():
        return str(home)
    return f"spark-binary {name!r} of the connection {conn_id}"


BINARIES = ("spark-submit", "spark2-submit", "spark3-submit")
"""What the Spark provider takes as `spark-binary` (SparkSubmitHook)."""
_FIELDS: Mapping[str, str] = {
    "deploy_mode": "deploy-mode",
    "queue": "queue",
    "principal": "principal",
    "namespace": "namespace",
}
"""Fields of the declaration, each with the name that the connection's extra has for it."""
_REST_PORT = 6066


class SparkConnection(Protocol):
    """What is read of a connection."""

    conn_id: str
    conn_type: str
    host: str | None
    port: int | None

    @property
    def extra_dejson(self) -> dict[str, Any]:
        """Its extra."""


def with_connection(job: Job, connection: SparkConnection) -> LaunchPolicy:
    """The policy of a job, with what its connection says where the job declares nothing.

    Raises:
        InputError: The connection says something that cannot be (code `bad-connection`).
    """
    declared = job.launch.declared
    extra = connection.extra_dejson

    def wrong(name: str, what: str, hint: str) -> InputError:
        return InputError(
            f"The connection {connection.conn_id} does not suit job {job.name}: "
            f"{_FIELDS.get(name, name)}: {what}.",
            code="bad-connection",
            hint=hint,
        )

    said: dict[str, Any] = {"master": _master(connection)}
    for known, name in _FIELDS.items():
        value = extra.get(name)
        if value is not None and not isinstance(value, str):
            raise wrong(known, "it must be text", "Write it in quotation marks in the connection's extra.")
        said[known] = value or None
    if said["deploy_mode"] not in (None, "client", "cluster"):
        raise wrong(
            "deploy_mode", f"{said['deploy_mode']!r} is not one of its values", "One of: client, cluster."
        )
    if extra.get("keytab") and not declared.get("keytab"):
        raise wrong(
            "keytab", "a keytab in a connection is not used", "Declare launch.keytab, the path of a file."
        )
    place = place_of(said["master"])
    said["rest"] = _rest(said["master"], extra) if place == "standalone" else None
    if declared.get("on") or declared.get("master"):
        # The job says itself where it runs: what belongs to another place does not count.
        said["master"] = declared.get("master") or said["master"]
    # Of the connection only what belongs to the place counts: `namespace` is often filled in everywhere.
    values = {name: one for name, one in {**said, **declared}.items() if one is not None}
    policy = settle(job.name, values, job.spark, wrong, inherited=set(said) - set(declared))
    return replace(policy, spark_home=spark_home_of(connection.conn_id, extra))


def _master(connection: SparkConnection) -> str:
    """As the Spark provider's own hook makes it of a connection (SparkSubmitHook._resolve_connection)."""
    host = connection.host or ""
    if connection.conn_type == "spark" and host and ("://" in host or not connection.port):
        master = host
    else:
        master = f"{connection.conn_type}://{host}"
    return f"{master}:{connection.port}" if connection.port else master


def _rest(master: str, extra: Mapping[str, Any]) -> str | None:
    """The address of the master's REST server, where the connection says something about it."""
    if not extra.get("rest-port") and not extra.get("rest-scheme"):
        return None
    scheme, port = extra.get("rest-scheme") or "http", extra.get("rest-port") or _REST_PORT
    hosts = master.removeprefix("spark://").split(",")
    return ",".join(f"{scheme}://{host.rpartition(':')[0] or host}:{port}" for host in hosts)
