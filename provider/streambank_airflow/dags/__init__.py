"""The DAGs of a declared job, one module each."""

from __future__ import annotations

from streambank_airflow.dags.drill import drill_dag
from streambank_airflow.dags.exchange import bootstrap_dag, compact_dag, rescale_dag, transform_dag
from streambank_airflow.dags.failover import failover_dag
from streambank_airflow.dags.refresh import refresh_dag
from streambank_airflow.dags.restore import restore_dag
from streambank_airflow.dags.run import run_dag, stop_dag, upgrade_dag
from streambank_airflow.dags.savepoint import savepoint_dag
from streambank_airflow.dags.sla import sla_dag

__all__ = [
    "bootstrap_dag",
    "compact_dag",
    "drill_dag",
    "failover_dag",
    "refresh_dag",
    "rescale_dag",
    "restore_dag",
    "run_dag",
    "savepoint_dag",
    "sla_dag",
    "stop_dag",
    "transform_dag",
    "upgrade_dag",
]
