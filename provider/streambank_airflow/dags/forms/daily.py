"""The forms of what is done every day: run, stop, savepoint, sla."""

from __future__ import annotations

from collections.abc import Sequence

from airflow.sdk import Param

from streambank_airflow.dags.forms.fields import (
    END,
    NAME_PATTERN,
    choice,
    note,
)

LEVEL_CHOICES = {
    "none": "none",
    "quick": "quick - every file exists, sizes match",
    "full": "full - every byte read and compared",
    "sampled": "sampled - the next share of all savepoints read and compared",
}
BREACH_CHOICES = {
    "fail": "fail - the task fails",
    "warn": "warn - a warning in its log",
    "report": "report - only in the result",
}
LATER = {
    "replicate": ("Replicate", "After verification, copy to the replicas what they lack."),
    "expire": (
        "Expire",
        "Expire savepoints that the declared retention does not keep; if there are replicas, only in a run "
        "that replicates.",
    ),
    "expire_replicas": (
        "Expire in replicas",
        "In the replicas, expire savepoints that neither the repository lists nor the replicas' own declared "
        "retention keeps.",
    ),
    "sweep": ("Sweep", "Delete what no savepoint has needed for the grace period."),
}
"""What may follow the verifications: title and description."""


def run_form() -> dict[str, Param]:
    """The form of `<job>.run`."""
    return {
        "note": note(),
        "fresh_start": Param(
            False,
            type="boolean",
            title="Accept lost records",
            description_md=(
                "Only if a run has failed with repository-lost, and the repository is lost for good: start "
                "again without the job's records and savepoints. The records name who did so."
            ),
            section="Lost repository",
        ),
    }


def stop_form(force_after_s: float) -> dict[str, Param]:
    """The form of `<job>.stop`.

    Args:
        force_after_s: The job's own patience, in seconds.
    """
    return {
        "savepoint": Param(
            True,
            type="boolean",
            title="Take a savepoint",
            description_md="Once the driver has stopped, save the last committed batch.",
        ),
        "drain": Param(
            False,
            type="boolean",
            title="Work off the input first",
            description_md="Let the job process all that its sources hold now, then stop.",
        ),
        "force_after_s": Param(
            force_after_s,
            type="number",
            minimum=0,
            title="Force after (seconds)",
            description_md="How long the running batch may take before it is abandoned.",
        ),
        "note": note(),
    }


def batch_field(query: str | None) -> str:
    """The field of `<job>.savepoint` for the batch of a query; None for the only one."""
    return f"batch_{query}" if query else "batch"


def savepoint_form(level: str, queries: Sequence[str] = (), *, later: Sequence[str] = ()) -> dict[str, Param]:
    """The form of `<job>.savepoint`.

    Args:
        level: How the scheduled runs verify.
        queries: The job's queries where it has several by name; each counts its own batches.
        later: What follows the verifications, names in `LATER`; a run does it unless its form says no.
    """
    return {
        "note": note(),
        "name": Param(
            None,
            type=["null", "string"],
            maxLength=100,
            pattern=rf"^({NAME_PATTERN})?{END}",
            title="Name",
            description_md="A name that is unique within the job, such as `before-upgrade`, by which it can "
            "be restored. It does not keep the savepoint: the next field does.",
        ),
        "pin": Param(
            False,
            type="boolean",
            title="Keep until it is unpinned",
            description_md="Retention does not expire this savepoint until it is unpinned.",
        ),
        "verify": choice(
            level,
            LEVEL_CHOICES,
            title="Verification",
            description_md="What is compared with the manifest once the savepoint is taken.",
        ),
        **{
            name: Param(True, type="boolean", title=LATER[name][0], description_md=LATER[name][1])
            for name in later
        },
        **{
            batch_field(query): Param(
                None,
                type=["null", "integer"],
                minimum=0,
                title=f"Batch of {query}" if query else "Batch",
                description_md="An older batch that Spark still retains; empty: the last committed one.",
                section="More",
            )
            for query in (*queries,) or (None,)
        },
    }


def sla_form() -> dict[str, Param]:
    """The form of `<job>.sla`."""
    return {
        "on_breach": choice("fail", BREACH_CHOICES, title="When something is broken"),
        "tell": Param(
            True,
            type="boolean",
            title="Send alerts",
            description_md="Alert the declared notifiers of what has changed since their last alert. A "
            "scheduled run does not repeat these alerts.",
        ),
        "skew": Param(
            True,
            type="boolean",
            title="Measure skew",
            description_md="Read from the state files: how unevenly the state is spread over partitions.",
            section="More",
        ),
        "doctor": Param(
            True,
            type="boolean",
            title="Look for problems ahead",
            description_md="In the task `doctor`.",
            section="More",
        ),
    }
