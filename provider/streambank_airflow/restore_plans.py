"""Plans of restores as a person reads them before approving."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from streambank.core.units import say_bytes, say_duration, to_json_time, utc_now
from streambank.recovery.approval import HELD, Choice, is_alive, shown_choices
from streambank_airflow.hints import in_words
from streambank_airflow.markdown import code, filled, table

if TYPE_CHECKING:
    from streambank.recovery.plan import RestorePlan
    from streambank.recovery.together import TogetherPlan


def plan_markdown(plan: TogetherPlan, offered: Sequence[Choice] = ()) -> str:
    """A restore's plan as a person reads it before approving: of several queries a table of each.

    Args:
        offered: What they may choose, where that is more than yes or no.
    """
    plans, choices = plan.plans, shown_choices(offered)
    if len(plans) == 1:
        (only,) = plans.values()
        return f"{table([*_rows(only), *_alive(plans)])}{choices}"
    shown = [f"**Query {code(name)}**\n\n{table(_rows(one))}" for name, one in plans.items()]
    rows = [("Savepoints taken within", say_duration(plan.skew_s))]
    rows += [("Restored already", code(name)) for name in plan.done]
    shown.append(f"**All queries, as one**\n\n{table([*rows, *_alive(plans)])}")
    return "\n".join(shown) + choices


def _alive(plans: Mapping[str, RestorePlan]) -> list[tuple[str, str]]:
    """That the job lives, and will be stopped: once, though each of its queries says it."""
    for plan in plans.values():
        if is_alive(plan):
            alive = next(one for one in plan.other_refusals if one.code == HELD)
            return [("The job now", f"{alive.message} It will be stopped first.")]
    return []


def _rows(plan: RestorePlan) -> list[tuple[str, str]]:
    from streambank.recovery.estimates import unknown_times

    savepoint = filled("{} of {}", code(plan.savepoint), code(plan.job))
    rows: list[tuple[str, str]] = [
        *([("Another line", filled("{}", plan.another_line))] if plan.another_line else []),
        ("Savepoint", filled("{}: {}", savepoint, plan.note) if plan.note else savepoint),
        ("Batch", f"{plan.batch:,}"),
        ("Taken", f"{to_json_time(plan.taken_at)}, {say_duration(round(plan.age_s))} ago"),
        ("Comes from", code(plan.repository)),
        *([] if plan.as_of is None else [("As of", str(plan.as_of))]),
        ("State rows", "unknown" if plan.rows is None else f"{plan.rows:,}"),
        ("Size", f"{say_bytes(plan.bytes)} in {plan.files:,} files"),
        ("Restored to", code(plan.location)),
        ("Output written later", plan.sink_effect()),
    ]
    if said := plan.watermark_effect():
        rows.append(("Event time", said))
    if said := plan.read_again_effect():
        rows.append(("Read again", said))
    if said := plan.replayable_effect():
        rows.append(("Replayable", said))
    rows += [("Takes", one.sentence()) for one in plan.estimates]
    if said := unknown_times([one.until for one in plan.estimates]):
        rows.append(("Takes", said))
    rows += [("Next if this one fails", one.sentence(utc_now())) for one in plan.next]
    if plan.sources:
        only_kafka = all(
            one.get("repeatable") is not False and one.get("kind") != "file" for one in plan.sources
        )
        if said := plan.source_effect():
            rows.append(("Input in Kafka" if only_kafka else "Input", said))
    rows += [
        ("Writes to", filled("{} instead of {}", code(sink["new_path"]), code(sink["path"])))
        for sink in plan.sinks
        if sink.get("new_path")
    ]
    rows += [("Passed over", filled("{}: {}", code(one.location), one.why)) for one in plan.passed_over]
    rows += [("Skipped", filled("{}: {}", code(one.savepoint), one.why)) for one in plan.skipped]
    rows += [("Warning", in_words(warning)) for warning in plan.warnings]
    return rows
