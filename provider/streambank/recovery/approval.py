"""What a person may choose who approves a restore: only what would really work, each in plain words.

A plan knows what the sinks and the sources have against each choice. Where the form's own choices stand in
the way of a restore, the approval offers those that do not; a job that lives is stopped by the choice that
says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from streambank.core.approval import outdated
from streambank.core.choices import NO_SINK, ROLLBACKS, SINK_CHOICES, SinkChoice
from streambank.core.errors import StreambankError
from streambank.core.shape import JsonObject
from streambank.core.units import say_count, say_duration

if TYPE_CHECKING:
    from streambank.recovery.plan import RestorePlan
    from streambank.recovery.together import TogetherPlan

APPROVE = "Approve"
REJECT = "Reject"
HELD = "lease-held"
"""Code of the refusal of a restore while a driver of the job lives."""
NOT_KNOWN = "source-not-known"
NOT_REPEATABLE = "source-cannot-repeat"
CHOICE_KEY = "choice"
"""XCom key under which an approval leaves what was chosen."""

_ACCEPTS = frozenset({"rollback-accept", "accept"})
"""Choices that let an output lack files."""
_REACHED = ("sink_batch", "newest_batch")
"""Fields in which sinks say their newest batch."""
_SINK = {
    "rollback": "set later output aside",
    "rollback-accept": "set later output aside, without the missing files",
    "accept": "leave later output",
}
CHANGED = "source-files-changed"
_INPUT = {
    NOT_KNOWN: "knowing the input",
    NOT_REPEATABLE: "the input that cannot be repeated",
    CHANGED: "the input as it was",
}
_SINK_MEANS = {
    "rollback": "Files of later batches are set aside, tables go back, and the query writes those batches "
    "again. Queries that read this output have to be restored, too.",
    "rollback-accept": "Files of later batches are set aside, tables go back, and the query writes those "
    "batches again. Files of older batches that are gone stay gone, and readers of the output fail at them.",
    "accept": "The output stays as it is; *Output written later* says what that means.",
}
_BREAKS = (
    "The query has state, which Spark does not write for the batches that it skips in the output: after them "
    "it fails at each start (CANNOT_LOAD_STATE_STORE)."
)
_OF: Mapping[SinkChoice, str] = {
    "rollback-accept": "Rolled back, though files of older batches are missing there, which stay missing",
    "accept": "Left as they are",
}
_TABLES = "roll later output back"
"""Instead of `set later output aside`, where not all of it is files."""
_MIXED = "roll back the output that can be, and leave the rest"


@dataclass(frozen=True, slots=True)
class Choice(JsonObject):
    """One button of an approval: of all queries of the plan, and bound to what the plan has shown.

    Attributes:
        sink_of: The same for single sinks, by their paths.
        newest_by_query: The newest batch of each query that the plan has shown, by `newest_of`.
        savepoints: The savepoint of each query that the plan has shown.
        resolves_by_query: Codes of the refusals of each query that a person accepts to settle by it.
        missing: How many files each output lacked that the plan has shown, by its path, where the choice
            accepts that.
        breaks: A query has state, and fails after the batches that it would skip in an output that is left.
    """

    label: str
    sink: str
    source: str
    stop: bool
    sink_of: Mapping[str, SinkChoice] = field(default_factory=dict)
    newest_by_query: Mapping[str, int] = field(default_factory=dict)
    savepoints: Mapping[str, str] = field(default_factory=dict)
    resolves_by_query: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    missing: Mapping[str, int] = field(default_factory=dict)
    breaks: bool = False

    @property
    def means(self) -> str:
        """What happens, for people, beside what the label says; empty for nothing more."""
        parts = ["The job is stopped at a batch boundary first."] if self.stop else []
        if self.sink_of:
            for choice, said in _OF.items():
                if paths := sorted(path for path, one in self.sink_of.items() if one == choice):
                    parts.append(f"{said}: {', '.join(paths)}.")
        else:
            words = (_SINK.get(self.sink, "-"), _TABLES if self.sink == "rollback" else "-")
            parts += [_SINK_MEANS[self.sink]] if any(one in self.label for one in words) else []
        return " ".join([*parts, _BREAKS] if self.breaks else parts)


def is_alive(plan: RestorePlan) -> bool:
    """Whether a driver of the job lives, which has to be stopped before the restore."""
    return any(one.code == HELD for one in plan.other_refusals)


def obstacles(restore: TogetherPlan) -> list[StreambankError]:
    """What speaks against the restore and no choice resolves; no job is stopped for a directory beside it."""
    plan = _as_one(restore.plans)
    found = [one for one in plan.other_refusals if one.code != HELD or plan.generation is None]
    possible = plan.possible_choices
    if not possible.sink and not plan.mixed_sinks:
        found += plan.sink_refusals[plan.sink]
    if not possible.source:
        found += plan.source_refusals[plan.source]
    return found


def choices_of(restore: TogetherPlan, *, may_stop: bool) -> list[Choice]:
    """What to offer beside *Reject*: one *Approve* where the form's own answers do.

    A job that lives writes on until it is stopped. So what becomes of later output is asked then, too, even
    where there is none yet: else the job would be stopped, and then not be restored. A source that cannot be
    repeated is refused whether or not there is later input, so it needs no such rule.
    """
    plan = _as_one(restore.plans)
    alive = is_alive(plan)
    source = "accept" if plan.source_refusals[plan.source] else plan.source
    possible, sinks = plan.possible_choices.sink, _sinks(plan, alive=alive)
    found = [
        Choice(_label(plan, sink, source, stop=alive, approved=may_stop or not alive), sink, source, alive)
        for sink in sinks
    ]
    if plan.mixed_sinks and (plan.sink == "refuse" or not possible or plan.sink not in sinks):
        words = ["Stop the job, restore" if alive else "Restore", _MIXED]
        label = f"{words[0]}, {words[1]}"
        if source != plan.source:
            label = f"{label}, without the lost input"
        mixed = Choice(label, "rollback", source, alive, plan.mixed_sinks)
        found = [mixed, *(found if possible else ())]
    plans = restore.plans.items()
    return [
        replace(
            one,
            newest_by_query={name: newest_of(each) for name, each in plans},
            savepoints={name: each.savepoint for name, each in plans},
            resolves_by_query={name: _codes(each) for name, each in plans},
            missing=missing_of(plan) if _lets_lack(one) else {},
            breaks=_lets_lack(one) and _breaks(one, plan),
        )
        for one in found
    ]


def _lets_lack(choice: Choice) -> bool:
    return not _ACCEPTS.isdisjoint({choice.sink, *choice.sink_of.values()})


def _breaks(choice: Choice, plan: RestorePlan) -> bool:
    """Whether Spark skips batches of a query with state in a file sink; one that lives writes some there."""
    return plan.mode != "fork" and any(
        (choice.stop or one["standing"] == "ahead")
        and choice.sink_of.get(one["path"], choice.sink) == "accept"
        for one in plan.sinks
        if one.get("stateful") and not one.get("new_path")
    )


def missing_of(plan: RestorePlan) -> dict[str, int]:
    """How many files each output lacks in which the query goes on, by its path."""
    return {
        one["path"]: one["missing_files"]
        for one in plan.sinks
        if "missing_files" in one and not one.get("new_path")
    }


def more_missing(shown: Mapping[str, int], plan: RestorePlan) -> str:
    """That an output lacks more files than were shown, without a full stop; empty where none does."""
    for path, now in missing_of(plan).items():
        if now > shown.get(path, now):
            lacks = say_count(now, "data file")
            return f"the file sink {path} lacks {lacks}, and the plan showed {shown[path]:,}"
    return ""


def _codes(plan: RestorePlan) -> tuple[str, ...]:
    """Codes of what speaks against the form's choices."""
    against = (*plan.sink_refusals[plan.sink], *plan.source_refusals[plan.source])
    return tuple(dict.fromkeys(one.code for one in against))


def _as_one(plans: Mapping[str, RestorePlan]) -> RestorePlan:
    """The plans of all queries as one, for what an approval offers: what one refuses, all refuse.

    Only what is chosen and what is refused is of all of them; the rest is that of the first.
    """
    first, *more = every = list(plans.values())
    if not more:
        return first
    return replace(
        first,
        sinks=tuple(sink for plan in every for sink in plan.sinks),
        mixed_sinks=_mixed_of(every),
        sources=tuple(source for plan in every for source in plan.sources),
        refusals=_each_once(plan.refusals for plan in every),
        other_refusals=_each_once(plan.other_refusals for plan in every),
        sink_refusals={
            choice: _each_once(plan.sink_refusals[choice] for plan in every) for choice in first.sink_refusals
        },
        source_refusals={
            choice: _each_once(plan.source_refusals[choice] for plan in every)
            for choice in first.source_refusals
        },
    )


def _mixed_of(plans: Sequence[RestorePlan]) -> dict[str, SinkChoice]:
    """Which sinks of several queries stay as they are where the others are rolled back; empty for no such.

    A query that cannot roll back leaves what it has; another one may roll back all the same.
    """
    alive = any(is_alive(plan) for plan in plans)
    mixed: dict[str, SinkChoice] = {}
    back = False
    for plan in plans:
        stays: set[str] = set()
        if plan.sink_refusals["rollback"] and "rollback-accept" in plan.possible_choices.sink:
            mixed |= {one["path"]: "rollback-accept" for one in plan.sinks if one.get("missing_files")}
            back = True
        elif plan.sink_refusals["rollback"]:
            if not plan.mixed_sinks and plan.sink_refusals["accept"]:
                return {}
            harmed = [one["path"] for one in plan.sinks if one.get("safe") is not True]
            mixed |= plan.mixed_sinks
            stays.update(() if plan.mixed_sinks else harmed)
        if alive:  # what it writes there until it is stopped cannot be taken back
            stays.update(one["path"] for one in plan.sinks if not _can_go_back(one))
        mixed |= dict.fromkeys(stays, "accept")
        ahead = alive or plan.sink_refusals["refuse"]
        back = back or bool(ahead and any(one["path"] not in stays for one in plan.sinks if _is_guarded(one)))
    return mixed if back else {}


def _is_guarded(sink: Mapping[str, Any]) -> bool:
    return sink.get("guarded") is True


def _can_go_back(sink: Mapping[str, Any]) -> bool:
    """Whether output that comes until the job is stopped can be rolled back, or does no harm."""
    return _is_guarded(sink) or sink.get("harm") == "none"


def _each_once(refusals: Iterable[Iterable[StreambankError]]) -> tuple[StreambankError, ...]:
    return tuple({(one.code, one.message): one for some in refusals for one in some}.values())


def check_still_so(approved: Choice, restore: TogetherPlan) -> None:
    """Make sure that nothing speaks against a restore that was not shown to the person who approved it.

    Of a job that was alive the output went on until it stopped, which the choice has settled. Of one that was
    down no more output may be set aside, or left, than was shown. No output may lack more files. What was
    accepted of one query is not accepted of another.

    Args:
        restore: The plan as it is now, with the form's answers. Queries that are restored already do not
            count.

    Raises:
        RefusedError: Something does, or there is more output (code `approval-outdated`).
    """
    for name, plan in restore.plans.items():
        if name in restore.done:
            continue
        newest, shown = newest_of(plan), approved.newest_by_query.get(name)
        sinks = () if approved.stop else plan.sink_refusals[plan.sink]
        against = (*sinks, *plan.source_refusals[plan.source])
        seen = approved.resolves_by_query.get(name, ())
        if shown is None:  # the plan was of another version
            raise _outdated(approved, f"The plan did not say how far query {plan.job} was.")
        if not approved.stop and newest > shown:
            why = f"Query {plan.job} has gone on to batch {newest}, but the plan ended at batch {shown}."
            raise _outdated(approved, why)
        if said := more_missing(approved.missing, plan):
            raise _outdated(approved, f"{said}.")
        for refusal in against:
            if refusal.code not in seen:
                raise _outdated(approved, refusal.message)


def check_savepoints(approved: Choice, savepoints: object) -> None:
    """Make sure that the savepoints that are to be restored, by query, are those that a person has seen.

    Raises:
        RefusedError: They are not (code `approval-outdated`).
    """
    if savepoints != approved.savepoints:
        raise _outdated(approved, "The savepoints are not those that the plan has shown.")


def _outdated(approved: Choice, why: str) -> StreambankError:
    said = f"{approved.label!r} was approved, but things have changed since the plan was shown"
    return outdated(f"{said}: {why}")


def newest_of(plan: RestorePlan) -> int:
    """The newest batch that the query or one of its sinks has, as far as is known; at least the savepoint's.

    Sinks that the restored query leaves for a new output do not count; for a fork no sink does, since the
    query that it is forked from may go on.
    """
    if plan.mode == "fork":
        return plan.batch
    sinks = [one for one in plan.sinks if not one.get("new_path")]
    found: list[int] = [batch for one in sinks for key in _REACHED if (batch := one.get(key)) is not None]
    if plan.reached is not None and plan.reached.newest is not None:
        found.append(plan.reached.newest)
    return max([plan.batch, *found])


def _sinks(plan: RestorePlan, *, alive: bool) -> Sequence[str]:
    possible = plan.possible_choices.sink
    guarded = all(_can_go_back(sink) for sink in plan.sinks)
    settled = plan.sink == "accept" or not plan.sinks or (plan.sink in ROLLBACKS and guarded)
    if plan.sink in possible and (settled or not alive):
        return [plan.sink]
    found: list[str] = [one for one in SINK_CHOICES[1:] if one in possible and one != plan.sink]
    if alive and not guarded:
        # What it writes until it is stopped cannot be taken back there.
        found = [one for one in found if one not in ROLLBACKS]
    return found or [plan.sink]


def _label(plan: RestorePlan, sink: str, source: str, *, stop: bool, approved: bool) -> str:
    parts = [_word(plan, sink)] if sink != plan.sink else []
    if source != plan.source:
        codes = {one.code for one in plan.source_refusals[plan.source]}
        input_without = next((words for code, words in _INPUT.items() if code in codes), "the lost input")
        parts.append(f"go on without {input_without}")
    if not parts:
        return APPROVE if approved else "Stop the job and restore"
    words = [*(["Stop the job", "restore"] if stop else ["Restore"]), *parts]
    return f"{', '.join(words[:-1])} and {words[-1]}"


def _word(plan: RestorePlan, sink: str) -> str:
    return _TABLES if sink == "rollback" and not _only_files(plan) else _SINK[sink]


def _only_files(plan: RestorePlan) -> bool:
    """Whether what a rollback takes back are files, which it sets aside; rows of tables it takes out."""
    return not any("later_batches" in one for one in plan.sinks)


def subject_of(restore: TogetherPlan, choices: Iterable[Choice]) -> str:
    """The question in one line: what, how far back, and at what price."""
    plan, several = _as_one(restore.plans), len(restore.plans) > 1
    age = say_duration(round(max(one.age_s for one in restore.plans.values())))
    if several:
        queries = f"all {len(restore.plans)} queries of {restore.job}"
        said = [f"Restore {queries} as one, to savepoints that are up to {age} old?"]
    elif plan.generation is None:
        said = [f"Restore batch {plan.batch} of {plan.job}, {age} old, into {plan.location}?"]
    else:
        said = [f"Restore {plan.job} to batch {plan.batch}, {age} old?"]
    if is_alive(plan):
        said.append("It runs, and will be stopped.")
    later = _later(plan) if plan.mode != "fork" else ""
    if later:
        sinks = {one.sink for one in choices}
        back = "set aside" if _only_files(plan) else "rolled back"
        fates: dict[str, str] = {**dict.fromkeys(ROLLBACKS, back), "accept": "left"}
        fate = fates.get(min(sinks)) if len(sinks) == 1 else None
        one = later.startswith("1 ")
        verb = ("is" if one else "are") if fate else ("was" if one else "were")
        said.append(f"{later} {verb} {fate or 'written since'}.")
    for name, each in restore.plans.items():
        if each.mode != "fork":
            said += [f"{name}: {one}" if several else one for one in _unguarded(each)]
    codes = {one.code for one in plan.source_refusals["refuse"]}
    if NOT_KNOWN in codes:
        said.append("It is not known whether its input is still there.")
    elif codes:
        words = {NOT_REPEATABLE: "Input cannot be repeated.", CHANGED: "Input was changed."}
        lost = bool(codes - {*words})
        said += ["Input is lost."] if lost else [text for code, text in words.items() if code in codes]
    return " ".join(said)


def _unguarded(plan: RestorePlan) -> list[str]:
    """What sinks were sent that no choice can roll back: the body says what becomes of it."""
    sinks = [one for one in plan.sinks if "newest_batch" in one and one.get("safe") is not True]
    newest = max((one["newest_batch"] or 0 for one in sinks), default=0)
    first = plan.batch + 1
    batches = f"Batch {first} was" if newest == first else f"Batches {first} to {newest} were"
    if any(one.get("kind") == NO_SINK for one in sinks):  # it is the only one then
        went_on = f"{batches} computed since" if newest > plan.batch else "it may have gone on since"
        return [f"No sink of the query is known, and {went_on[0].lower()}{went_on[1:]}."]
    if newest > plan.batch:
        return [f"{batches} sent to a sink that is not guarded."]
    return ["It is not known whether a sink that is not guarded is ahead."] if sinks else []


def _later(plan: RestorePlan) -> str:
    """How much was written after the savepoint, as far as a sink tells."""
    rows: list[int | None] = []
    files = batches = 0
    for sink in plan.sinks:
        if sink.get("safe") is not False or sink.get("new_path"):
            continue
        if "later_files" in sink:
            files += sink["later_files"]
            rows.append(sink["later_rows"])
        elif "later_batches" in sink:
            rows.append(sink["later_rows"])
            batches = max(batches, sink["later_batches"])
        elif "repeated_records" in sink:
            rows.append(sink["repeated_records"])
    known = [one for one in rows if one is not None]
    if known and len(known) == len(rows) and sum(known):
        return say_count(sum(known), "row")
    if files:
        return say_count(files, "file")
    if not batches:
        return ""
    return "1 batch" if batches == 1 else f"{batches:,} batches"


def shown_choices(choices: Iterable[Choice]) -> str:
    """The choices as Markdown below a plan; nothing where there is only *Approve*."""
    offered = list(choices)
    if [(one.label, one.breaks) for one in offered] == [(APPROVE, False)]:
        return ""
    lines = [f"- **{one.label}**{': ' + one.means if one.means else ''}" for one in offered]
    return "\n".join(["\nChoose:\n", *lines, f"- **{REJECT}**: Nothing happens."]) + "\n"


def chosen_of(value: Mapping[str, Any] | str | None) -> Choice | None:
    """What was approved, as it came through a template; None where nobody was asked."""
    if not isinstance(value, Mapping):
        return None
    known = {one.name: value[one.name] for one in fields(Choice) if one.name in value}
    resolves = known.get("resolves_by_query", {})
    return Choice(**{**known, "resolves_by_query": {name: tuple(codes) for name, codes in resolves.items()}})
