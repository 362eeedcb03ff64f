"""The section `[streambank]` of Airflow's configuration: what stands in for variables of the environment.

`get_provider_info.py` describes its options. A variable that is set and not empty takes precedence over them.
"""

from __future__ import annotations

import os

from airflow.providers.common.compat.sdk import conf

from streambank.core.signing import VARIABLE as KEYS_VARIABLE

TAG = "streambank"
"""What tags every DAG of a job, beside the job's name."""
MISTAKE = "The declaration of this job has a mistake."
"""How the description of a DAG begins whose job has one; what it is follows."""
SECTION = "streambank"
JOBS_VARIABLE = "STREAMBANK_JOBS"


def installed_jobs_file() -> str | None:
    """The jobs file of this installation: that of `STREAMBANK_JOBS`, else of `[streambank] jobs`, or None."""
    return os.environ.get(JOBS_VARIABLE) or _option("jobs")


def use_signing_keys() -> None:
    """Let the engine find the file of `[streambank] signing_keys`, where the variable names none.

    The engine reads `STREAMBANK_SIGNING_KEYS`, and so do its programs on executors. It names a file and holds
    no key. The application of a job gets it only if the job lists the variable in `env`.
    """
    named = _option("signing_keys")
    if named and not os.environ.get(KEYS_VARIABLE):
        os.environ[KEYS_VARIABLE] = named


def page_is_on() -> bool:
    """Whether `[streambank] page` lets tasks and watchers keep what the page shows, and Airflow show it."""
    return bool(conf.getboolean(SECTION, "page", fallback=True))


def page_has_log() -> bool:
    """Whether `[streambank] page_log` lets the end of the driver's log into what is kept for the page."""
    return bool(conf.getboolean(SECTION, "page_log", fallback=True))


def _option(name: str) -> str | None:
    return conf.get(SECTION, name, fallback=None) or None
