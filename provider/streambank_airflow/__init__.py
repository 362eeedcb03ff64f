"""The Airflow face: hook, operators, sensors, triggers and the DAGs of declared jobs."""

from airflow import __version__ as _airflow

OLDEST_AIRFLOW = (3, 1)

if tuple(int(part) for part in _airflow.split(".")[:2]) < OLDEST_AIRFLOW:
    raise RuntimeError(
        f"airflow-provider-streambank needs Airflow 3.1 or newer, and this is Airflow {_airflow}. "
        "Hint: upgrade Airflow, or uninstall airflow-provider-streambank from this environment."
    )
