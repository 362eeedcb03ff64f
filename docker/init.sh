#!/bin/sh
# What must be done once before Airflow starts: its database, and its only user. It is safe to run again.
set -eu

umask 077
python - <<'PYTHON'
import json
import os
from pathlib import Path

users = {os.environ["AIRFLOW_USER"]: os.environ["AIRFLOW_PASSWORD"]}
Path(os.environ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"]).write_text(json.dumps(users))
PYTHON

airflow db migrate
