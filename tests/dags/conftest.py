from __future__ import annotations

from tests.support.airflow_db import airflow_database

__all__ = ["airflow_database"]
