"""What a jobs file declares about its repository as a whole: when it is verified, repaired and swept."""

from __future__ import annotations

from dataclasses import dataclass

from streambank.declaration.fields import Fields
from streambank.declaration.savepoints import read_share


@dataclass(frozen=True, slots=True)
class MaintenancePolicy:
    """`[maintenance]`: a DAG for the repository, besides those of its jobs.

    Attributes:
        schedule: A cron expression or an Airflow preset; None for by hand only.
        dag_id: The DAG's id; two jobs files in one Airflow need two.
        share: How much of each job's bytes a run reads and compares.
        repair: Copy what is damaged from the replicas that a job declares.
        sweep: Delete what no savepoint needs.
        time_zone: By whose clocks the schedule is; None for those that Airflow uses by default.
    """

    schedule: str | None = None
    dag_id: str = "streambank.maintenance"
    share: str = "10%"
    repair: bool = True
    sweep: bool = True
    time_zone: str | None = None


def read_maintenance(fields: Fields) -> MaintenancePolicy:
    """Of `[maintenance]`."""
    usual = MaintenancePolicy()
    repair, sweep = fields.boolean("repair"), fields.boolean("sweep")
    policy = MaintenancePolicy(
        schedule=fields.schedule("schedule"),
        dag_id=fields.text("dag_id") or usual.dag_id,
        share=read_share(fields),
        repair=usual.repair if repair is None else repair,
        sweep=usual.sweep if sweep is None else sweep,
        time_zone=fields.time_zone(),
    )
    fields.done()
    return policy
