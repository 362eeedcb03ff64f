"""What a jobs file declares about keeping order: its repository as a whole, and what each job has left."""

from __future__ import annotations

from dataclasses import dataclass

from streambank.declaration.policy import Schedule, Share, TimeZone


@dataclass(frozen=True, slots=True)
class MaintenancePolicy:
    """`[maintenance]`: a DAG for the repository, besides those of its jobs.

    Attributes:
        dag_id: The DAG's id; two jobs files in one Airflow need two.
        share: How much of each job's bytes a run reads and compares.
        repair: Copy what is damaged from the replicas that a job declares.
    """

    schedule: Schedule | None = None
    dag_id: str = "streambank.maintenance"
    share: Share = "10%"
    repair: bool = True
    sweep: bool = True
    time_zone: TimeZone | None = None


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


def given_generations(
    declared: GenerationsPolicy | None, keep: int | None, keep_for_s: float | None
) -> GenerationsPolicy | None:
    """A declared policy, with what was asked for in its place; None where neither says anything."""
    if keep is None and keep_for_s is None:
        return declared
    usual = declared or GenerationsPolicy()
    return GenerationsPolicy(
        usual.keep if keep is None else keep, usual.keep_for_s if keep_for_s is None else keep_for_s
    )
