"""The reports of a job's drills, among its records: `drills/<number>.json`.

A drill of each savepoint is a *round*: one report for each, with the same `round.id`, and one record
`drill-rounds/<round.id>/<number>.json` once it is over. A round that was killed has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any

from streambank.control.control import JobControl
from streambank.control.records import JsonDict, RecordStream
from streambank.core.errors import FormatError, NotFoundError

_ROUND = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]+", re.ASCII)
NAMED = 3
"""How many failed drills of a round a sentence names that is not the round's own report."""


SEEN = 50
"""So many of the newest drills say when, and where, a savepoint was drilled last."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a drill, or a round of drills, ended.

    Attributes:
        started_at: When it began, as JSON has times.
        passed: Whether it passed: of a round each drill.
        failed: Why it did not, as the rest of a sentence about it; empty where it passed.
        not_run: Why the application was not run on the copy; empty where it was.
    """

    started_at: str
    passed: bool
    failed: str = ""
    not_run: str = ""


def record_drill(control: JobControl, report: Mapping[str, Any]) -> int:
    """Keep the report of a drill."""
    return control.stream("drills").append(report)


def drills_of(control: JobControl) -> Iterator[JsonDict]:
    """The reports of a job's drills, newest first; damaged ones are left out."""
    yield from _readable(control.stream("drills"))


def _readable(stream: RecordStream) -> Iterator[JsonDict]:
    """The records of a stream that are whole, newest first; each is read when it is asked for."""
    for number in reversed(stream.numbers()):
        try:
            found = stream.read(number)
        except (FormatError, NotFoundError):
            continue  # damaged, or pruned since it was listed
        yield found


def last_passed(control: JobControl) -> JsonDict | None:
    """The newest report of a drill that passed; None where none has."""
    return next((drill for drill in drills_of(control) if drill.get("passed") is True), None)


def record_round(control: JobControl, report: Mapping[str, Any]) -> int:
    """Leave behind that a round of drills is over.

    Args:
        report: The report of the round, as JSON, without those of its drills.
    """
    return _of_round(control, report["round"]).append(report)


def round_over(control: JobControl, round_id: str) -> JsonDict | None:
    """The record of a round that is over; None for one that goes on or was killed, or is damaged."""
    if not _ROUND.fullmatch(round_id):
        return None  # not one of ours, so no path to look at
    return next(_readable(_of_round(control, round_id)), None)


def rounds_over(control: JobControl, repository: str) -> Iterator[JsonDict]:
    """The records of rounds that are over, the newest first."""
    for found, reports in groupby(drills_of(control), key=round_id):
        if found is None or next(reports).get("repository") != repository:
            continue
        if (over := round_over(control, found)) is not None:
            yield over


def _of_round(control: JobControl, round_id: str) -> RecordStream:
    return control.stream(f"drill-rounds/{round_id}")


def round_id(report: Mapping[str, Any]) -> str | None:
    """The round that a drill is part of; None for a drill by itself."""
    of_round = report.get("round")
    return str(of_round.get("id")) if isinstance(of_round, Mapping) else None


def outcomes(control: JobControl) -> Iterator[Outcome]:
    """How the drills of a job ended, newest first; a round is one of them.

    A round that is not over has not passed. It has failed if one of its drills has; else it is left out.
    """
    for found, reports in groupby(drills_of(control), key=round_id):
        if found is None:
            yield from (
                _outcome(report, f"failed{for_queries(report)} at the step {_cause(report)}")
                for report in reports
            )
            continue
        over = round_over(control, found)
        if over is not None:  # it says enough: reports are read only where it is missing
            yield _outcome(over, _of_each(over.get("failed") or ()))
            continue
        drills = list(reports)[::-1]
        failed = [failure_of(drill) for drill in drills if drill.get("passed") is not True]
        if failed:
            yield _outcome({**drills[0], "passed": False}, _of_each(failed))


def _of_each(failed: Sequence[Mapping[str, Any]]) -> str:
    return f"of each savepoint failed: {failures(failed, most=NAMED)}"


def failure_of(report: Mapping[str, Any]) -> JsonDict:
    """What a round says of a drill that failed: which savepoints, at which step, and why."""
    why = {name: report.get(name) for name in ("failed_step", "code", "error")}
    savepoints = savepoints_of(report).items()
    return {"savepoints": {name: one for name, one in savepoints if passed_of(report, name) is False}, **why}


def passed_of(report: Mapping[str, Any], query: str) -> bool | None:
    """Whether a drill has passed of one query; None where it ended for another one before that was known.

    Args:
        report: The report of the drill. One without `failed_queries`, of an older release, failed of all.
    """
    if report.get("passed") is True:
        return True
    failed = report.get("failed_queries")
    if failed is None or query in failed:
        return False
    return True if report.get("failed_step") == "compare" else None


def for_queries(report: Mapping[str, Any]) -> str:
    """Of which queries a drill failed, as a part of a sentence; empty where it did of all."""
    failed = report.get("failed_queries")
    if not failed or all(name in failed for name in savepoints_of(report)):
        return ""
    return f" for query {', '.join(map(str, failed))}"


def savepoints_of(report: Mapping[str, Any]) -> dict[str, str]:
    """The savepoints that a drill was of, by query; those of a round are known wherever it failed."""
    of_round = report.get("round")
    if isinstance(of_round, Mapping):
        return {str(name): str(one) for name, one in (of_round.get("savepoints") or {}).items()}
    return {str(one.get("query")): str(one.get("savepoint")) for one in report.get("queries") or ()}


def newest_drills(control: JobControl) -> list[JsonDict]:
    """The reports of the newest `SEEN` drills of a job, newest first."""
    return list(islice(drills_of(control), SEEN))


def last_drills(reports: Iterable[JsonDict]) -> dict[tuple[str, str], JsonDict]:
    """The newest drill of each savepoint, by query and id: when, where from, and how it ended for that query.

    Args:
        reports: Drills, newest first.
    """
    found: dict[tuple[str, str], JsonDict] = {}
    for report in reports:
        drilled = {
            "at": report.get("started_at"),
            "not_run": str(report.get("not_run") or ""),
            "repository": report.get("repository"),
        }
        for query, savepoint in savepoints_of(report).items():
            passed = passed_of(report, query)
            if passed is not None:
                found.setdefault((query, savepoint), {**drilled, "passed": passed})
    return found


def failures(failed: Sequence[Mapping[str, Any]], *, most: int | None = None) -> str:
    """Which savepoints of a round failed, at which step and why, for people.

    Args:
        failed: What `failure_of` says of each.
        most: How many are named; None for all.
    """
    named = failed if most is None else failed[:most]
    more = f"; and {len(failed) - len(named)} more" if len(named) < len(failed) else ""
    said = (f"{called(one['savepoints'])} at the step {_cause(one)}".strip(" .") for one in named)
    return f"{'; '.join(said)}{more}."


def called(savepoints: Mapping[str, str]) -> str:
    """The savepoints that a drill is of, for people; empty where there is none."""
    if len(savepoints) < 2:
        return next(iter(savepoints.values()), "")
    return ", ".join(f"{name} {savepoint}" for name, savepoint in savepoints.items())


def _outcome(report: Mapping[str, Any], failed: str) -> Outcome:
    passed = report.get("passed") is True
    not_run = str(report.get("not_run") or "")
    return Outcome(str(report.get("started_at")), passed, "" if passed else failed, not_run)


def _cause(failed: Mapping[str, Any]) -> str:
    return f"{failed.get('failed_step')}: {failed.get('error')}"
