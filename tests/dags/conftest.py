from __future__ import annotations

from tests.support.airflow_face.metadata_db import airflow_database

__all__ = ["airflow_database"]
