"""The forms of what is done every day: run, stop, savepoint, sla."""

from __future__ import annotations

from collections.abc import Sequence

from airflow.sdk import Param

from streambank.core.verb_options import SlaOptions, StartOptions, StopOptions
from streambank_airflow.dags.forms.fields import END, NAME_PATTERN, choice, form_of, note

LEVEL_CHOICES = {
    "none": "none",
    "quick": "quick - every file exists, sizes match",
    "full": "full - every byte read and compared",
    "sampled": "sampled - the next share of all savepoints read and compared",
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
    return form_of(StartOptions)


def stop_form(force_after_s: float) -> dict[str, Param]:
    """The form of `<job>.stop`; `force_after_s` is the job's own patience."""
    return form_of(StopOptions, {"savepoint": True, "force_after_s": force_after_s})


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
    doctor = Param(
        True,
        type="boolean",
        title="Look for problems ahead",
        description_md="In the task `doctor`.",
        section="More",
    )
    return form_of(SlaOptions, asks_why=False, doctor=doctor)
