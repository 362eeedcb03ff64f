"""The part `recoveries`: drills and restores, each with how long its steps took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from streambank.control.control import JobControl
from streambank.control.drills import called, for_queries, newest_drills, savepoints_of
from streambank.control.processes import person
from streambank.control.records import JsonDict
from streambank.core.errors import InputError
from streambank.core.names import QueryRef
from streambank.core.units import number_or_none, time_or_none
from streambank.declaration.declaration import Job
from streambank.job.history import skipped_of
from streambank.sla.judge.recoveries import Recovery, recoveries

MOST = 50
"""So many of the newest restores are shown."""


def recoveries_part(
    job: Job, control: JobControl, drills: Iterable[JsonDict] | None = None
) -> dict[str, Any]:
    """The content of the part.

    Args:
        drills: The reports of its newest drills, newest first; they are read when left out.
    """
    return {
        "drills": [_drill(job, one) for one in (newest_drills(control) if drills is None else drills)],
        "restores": _restores(job, control),
    }


def _drill(job: Job, report: JsonDict) -> dict[str, Any]:
    steps = report.get("steps")
    return {
        **_either(job, report),
        "query": ", ".join(map(str, report.get("failed_queries") or ())) if for_queries(report) else None,
        "passed": report.get("passed") is True,
        "step": report.get("failed_step"),
        "not_run": str(report.get("not_run") or ""),
        "savepoint": called(savepoints_of(report)) or None,
        "rto_s": number_or_none(report.get("rto_s")),
        "rpo_s": number_or_none(report.get("rpo_s")),
        "why": str(report.get("error") or report.get("not_run") or ""),
        "steps": [
            {"name": str(name), "seconds": number_or_none(seconds)}
            for name, seconds in (steps.items() if isinstance(steps, Mapping) else ())
        ],
    }


def _restores(job: Job, control: JobControl) -> list[dict[str, Any]]:
    records = list(control.stream("restores").history(newest=MOST))
    found = {name: recoveries(control, name) for name in job.queries}
    return [_restore(job, one.data, found) for one in reversed(records)]


def _restore(job: Job, report: JsonDict, found: Mapping[str, Sequence[Recovery]]) -> dict[str, Any]:
    """One restore, up to the first batch after it where there was one."""
    try:
        query = QueryRef.parse(str(report.get("job"))).name
    except InputError:
        query = None
    began, seconds = time_or_none(report.get("started_at")), number_or_none(report.get("seconds"))
    steps = [{"name": "restore", "seconds": seconds}]
    rto_s = None
    of_query = found.get(query, ()) if query is not None else ()
    whole = next((one for one in of_query if one.kind == "restore" and one.began_at == began), None)
    if whole is not None and seconds is not None:
        rto_s, waited_s = round(whole.seconds, 1), dict(whole.steps)["between"]
        steps += [
            {"name": "wait", "seconds": round(waited_s, 1)},
            {"name": "start", "seconds": round(whole.seconds - seconds - waited_s, 1)},
        ]
    return {
        **_either(job, report),
        "query": query,
        "passed": "error" not in report,
        "step": None,
        "savepoint": report.get("savepoint"),
        "rto_s": rto_s,
        "rpo_s": number_or_none(report.get("age_s")),
        "skipped": skipped_of(report),
        "why": str(report.get("message") or report.get("sink_effect") or ""),
        "steps": steps,
    }


def _either(job: Job, report: JsonDict) -> dict[str, Any]:
    repository, by = report.get("repository"), report.get("by")
    return {
        "at": report.get("started_at"),
        "replica": repository if isinstance(repository, str) and repository != job.repository else None,
        "seconds": number_or_none(report.get("seconds")),
        "by": person(by) if isinstance(by, Mapping) and by else None,
    }
