"""The operators for DAGs of one's own; their names, arguments and results are kept.

| operator | what it does |
|---|---|
| `StartStreamingJobOperator` | makes sure that a job runs |
| `KeepStreamingJobRunningOperator` | keeps it running for as long as it is meant to |
| `StopStreamingJobOperator` | stops it at a batch boundary, with a savepoint or without |
| `RestartStreamingJobOperator` | the two in one operation |
| `CreateSavepointOperator` | takes a savepoint, while the job runs |
| `VerifySavepointOperator` | makes sure that one is whole |
| `ReplicateSavepointsOperator` | copies to the replicas what they lack |
| `ExpireSavepointsOperator` | drops those that no rule keeps |
| `SweepRepositoryOperator` | deletes what no savepoint needs |
| `RestoreSavepointOperator` | shows what a restore would do, and does it |
| `ApprovePlanOperator` | asks a person whether that is to be done |
| `RunDrillOperator` | rehearses a restore beside the running job |
| `UpgradeStreamingJobOperator` | brings a running job to new code, with a way back |
| `CheckSlaOperator` | judges what jobs promise |
| `DiagnoseStreamingJobOperator` | finds what will hurt a job before it does |

The others are steps of the generated DAGs, or what one does once by hand: they may change in each release.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streambank_airflow.operators.approve import ApprovePlanOperator
    from streambank_airflow.operators.doctor import DiagnoseStreamingJobOperator
    from streambank_airflow.operators.drill import RunDrillOperator
    from streambank_airflow.operators.job import (
        RestartStreamingJobOperator,
        StartStreamingJobOperator,
        StopStreamingJobOperator,
    )
    from streambank_airflow.operators.keep import KeepStreamingJobRunningOperator
    from streambank_airflow.operators.repository import (
        ExpireSavepointsOperator,
        ReplicateSavepointsOperator,
        SweepRepositoryOperator,
    )
    from streambank_airflow.operators.restore import RestoreSavepointOperator
    from streambank_airflow.operators.savepoint import CreateSavepointOperator, VerifySavepointOperator
    from streambank_airflow.operators.sla import CheckSlaOperator
    from streambank_airflow.operators.upgrade import UpgradeStreamingJobOperator

__all__ = [
    "ApprovePlanOperator",
    "CheckSlaOperator",
    "CreateSavepointOperator",
    "DiagnoseStreamingJobOperator",
    "ExpireSavepointsOperator",
    "KeepStreamingJobRunningOperator",
    "ReplicateSavepointsOperator",
    "RestartStreamingJobOperator",
    "RestoreSavepointOperator",
    "RunDrillOperator",
    "StartStreamingJobOperator",
    "StopStreamingJobOperator",
    "SweepRepositoryOperator",
    "UpgradeStreamingJobOperator",
    "VerifySavepointOperator",
]
_MODULES = (
    "job",
    "keep",
    "savepoint",
    "repository",
    "restore",
    "approve",
    "drill",
    "upgrade",
    "sla",
    "doctor",
)


def __getattr__(name: str) -> Any:
    """An operator; its module is loaded when a DAG file asks for it."""
    if name in __all__:
        for module in _MODULES:
            found = getattr(import_module(f"{__name__}.{module}"), name, None)
            if found is not None:
                return found
    raise AttributeError(f"module {__name__} has no attribute {name}")
