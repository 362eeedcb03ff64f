"""The DAGs of every job in streaming_jobs.toml: `<job>.run`, `.stop`, `.savepoint`, `.restore`, ...

`STREAMBANK_JOBS`, or `[streambank] jobs` in Airflow's configuration, names another jobs file; by default
it is the one beside this file.
"""

from __future__ import annotations

from pathlib import Path

from streambank_airflow.configuration import installed_jobs_file
from streambank_airflow.dags.jobs import build_dags

JOBS_FILE = Path(installed_jobs_file() or Path(__file__).with_name("streaming_jobs.toml"))

# Airflow's safe mode reads only files that contain both words: airflow, dag.
globals().update(build_dags(JOBS_FILE))
