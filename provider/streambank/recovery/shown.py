"""What a plan has shown to a person is what is done: one rule for every operation that asks for approval.

A plan is of the generations in which a job's queries are. Where another one counts since, somebody restored,
compacted or went back meanwhile, and nothing that the plan showed needs to be so any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from streambank.control.processes import is_same_run, person
from streambank.core.approval import outdated
from streambank.core.names import QueryRef
from streambank.core.units import to_json_time

if TYPE_CHECKING:
    from streambank.declaration.declaration import Job


def shown_generations(job: Job, query: str | None) -> dict[str, int]:
    """The generation that counts of each query, by `job` or `job/query`; 0 before the first start."""
    names = job.query_names if query is None else (query,)
    records = job.records()
    found = {name: records.generation(name) for name in names}
    return {
        str(QueryRef(job.name, name)): 0 if current is None else current.number
        for name, current in found.items()
    }


def check_generations(job: Job, shown: Mapping[str, int], *, by: Mapping[str, str]) -> None:
    """Make sure that the generations of a plan still count.

    Args:
        shown: What `shown_generations` gave when the plan was made.
        by: Who asks: a generation that the same DAG run has made is no other one.

    Raises:
        RefusedError: Another one counts (code `approval-outdated`); the message says who has made it. Or the
            records of what was shown are lost.
    """
    records = job.records()
    for ref, number in shown.items():
        current = records.generation(QueryRef.parse(ref).query)
        if current is None and number == 0:
            continue
        if current is not None and (current.number == number or is_same_run(by, current.by)):
            continue
        now = (
            "no generation now: its records are lost"
            if current is None
            else f"generation {current.number} now, made by {person(current.by)} at "
            f"{to_json_time(current.made_at)}"
        )
        raise outdated(
            f"{ref} is in {now}; the plan that was approved was of generation {number}. Nothing of that plan "
            "was done."
        )
