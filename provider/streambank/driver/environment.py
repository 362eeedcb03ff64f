"""What a driver's environment holds: a list of what may pass, never a list of what may not.

A task of Airflow carries the database's connection and the secret that signs its tokens in its environment; a
driver and the application in it must not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streambank.storage.settings import variables_for

PASSED = frozenset(
    {
        "HADOOP_CONF_DIR",
        "HADOOP_HOME",
        "HOME",
        "JAVA_HOME",
        "LANG",
        "LANGUAGE",
        "LD_LIBRARY_PATH",
        "LOGNAME",
        "PATH",
        "SHELL",
        "SPARK_CONF_DIR",
        "SPARK_LOCAL_DIRS",
        "SPARK_LOCAL_HOSTNAME",
        "SPARK_LOCAL_IP",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "TMPDIR",
        "TZ",
        "USER",
        "YARN_CONF_DIR",
    }
)
"""Names that pass as they are; so do those that begin with `LC_`."""

IN_CLUSTERS = ("STREAMBANK_S3_PROFILES",)
"""What leads a driver to its files, and is the same on each machine of a cluster."""

OWN_PROGRAMS = ("STREAMBANK_SIGNING_KEYS",)
"""What programs of ours get besides: they take savepoints as this process does. No job's application does."""


def driver_environment(
    parent: Mapping[str, str],
    *,
    locations: Iterable[str] = (),
    extra: Iterable[str] = (),
    settings: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The environment of a driver.

    Args:
        locations: Where the driver's checkpoints and records are: what leads there passes, credentials
            included, since the driver can do nothing without them.
        extra: Names that the job's declaration lets pass as well (`env`).
        settings: What the launcher itself sets.
    """
    wanted = PASSED | variables_for(locations) | {name for name in extra if not is_airflows(name)}
    passed = {name: value for name, value in parent.items() if name in wanted or name.startswith("LC_")}
    return passed | dict(settings or {})


def cluster_variables(parent: Mapping[str, str]) -> dict[str, str]:
    """What a driver in a cluster gets besides the variables that its job names: no credentials among them."""
    return {name: parent[name] for name in IN_CLUSTERS if name in parent}


def is_airflows(name: str) -> bool:
    """Whether a variable is one of Airflow's: those never pass, whatever a declaration says."""
    return name.upper().lstrip("_").startswith("AIRFLOW")
