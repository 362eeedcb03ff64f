"""What a jobs file declares about keeping order: its repository as a whole, and what each job has left."""

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


KEEP = 2
"""How many generations stay where a policy does not say it: the current one, and the one before."""
KEEP_FOR_S = 7 * 86_400.0
"""How long anything stays that is of no use any more, where a policy does not say it."""


@dataclass(frozen=True, slots=True)
class GenerationsPolicy:
    """`[jobs.NAME.generations]`: which directories that work on the job has left are removed.

    Attributes:
        keep: So many generations of each query stay, the current one among them.
        keep_for_s: So long each directory stays after it was left, in seconds.
    """

    keep: int = KEEP
    keep_for_s: float = KEEP_FOR_S


def read_generations(fields: Fields) -> GenerationsPolicy:
    """Of `[jobs.NAME.generations]`."""
    keep = fields.whole("keep", minimum=1)
    policy = GenerationsPolicy(KEEP if keep is None else keep, fields.duration_s("keep_for") or KEEP_FOR_S)
    fields.done()
    return policy


def given_generations(
    declared: GenerationsPolicy | None, keep: int | None, keep_for_s: float | None
) -> GenerationsPolicy | None:
    """A declared policy, with what was asked for in its place; None where neither says anything.

    Args:
        keep: How many generations stay; None where that was not asked for.
        keep_for_s: How long each directory stays; None where that was not asked for.
    """
    if keep is None and keep_for_s is None:
        return declared
    usual = declared or GenerationsPolicy()
    return GenerationsPolicy(
        usual.keep if keep is None else keep, usual.keep_for_s if keep_for_s is None else keep_for_s
    )
