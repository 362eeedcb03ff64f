"""The DAGs of every job in streaming_jobs.toml: `<job>.run`, `.stop`, `.savepoint`, `.restore`, ...

`STREAMBANK_JOBS` names another jobs file; by default it is the one beside this file.
"""

from __future__ import annotations

import os
from pathlib import Path

from streambank_airflow.dags.jobs import build_dags

JOBS_FILE = Path(os.environ.get("STREAMBANK_JOBS") or Path(__file__).with_name("streaming_jobs.toml"))

# Airflow's safe mode reads only files that contain both words: airflow, dag.
globals().update(build_dags(JOBS_FILE))
