"""Plans of restores as a person reads them before approving."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from streambank.core.units import say_duration
from streambank.procedure.rows import titled
from streambank.recovery.approval import HELD, Choice, is_alive, shown_choices
from streambank_airflow.markdown import code, rows_table

if TYPE_CHECKING:
    from streambank.recovery.plan import RestorePlan
    from streambank.recovery.together import TogetherPlan


def plan_markdown(plan: TogetherPlan, offered: Sequence[Choice] | None = None) -> str:
    """A restore's plan as a person reads it before approving: of several queries a table of each.

    Args:
        offered: What they may choose; None where nobody is asked.
    """
    plans, choices = plan.plans, "" if offered is None else shown_choices(offered)
    if len(plans) == 1:
        (only,) = plans.values()
        return f"{rows_table([*only.shown_rows(), *_alive(plans)])}{choices}"
    shown = [f"**Query {code(name)}**\n\n{rows_table(one.shown_rows())}" for name, one in plans.items()]
    rows = [("savepoints taken within", say_duration(plan.skew_s)), *titled("restored already", plan.done)]
    shown.append(f"**All queries, as one**\n\n{rows_table([*rows, *_alive(plans)])}")
    return "\n".join(shown) + choices


def _alive(plans: Mapping[str, RestorePlan]) -> list[tuple[str, str]]:
    """That the job lives, and will be stopped: once, though each of its queries says it."""
    for plan in plans.values():
        if is_alive(plan):
            alive = next(one for one in plan.other_refusals if one.code == HELD)
            return [("the job now", f"{alive.message} It will be stopped first.")]
    return []
