"""`job history`: what happened to a job."""

from __future__ import annotations

from typing import Annotated, Any

from streambank.cli.options import JobName, JobsFile, job_named
from streambank.cli.output import console
from streambank.core.options import Option


def history(
    name: JobName,
    jobs: JobsFile,
    last: Annotated[int, Option("How many entries at most.", metavar="N", least=1)] = 30,
) -> None:
    """Show what happened to a job, oldest first: starts, stops, failures, savepoints, restores."""
    from streambank.job.history import job_history

    found = [one.to_dict() for one in job_history(job_named(name, jobs), last)]
    console.answer(found, lambda: _show_history(name, found))


def _show_history(name: str, found: list[dict[str, Any]]) -> None:
    if not found:
        console.line(f"Nothing has happened to job {name} yet.")
        return
    rows = [
        (_moment(one["at"]), one["kind"].replace("-", " "), one["query"], one["by"], _details(one))
        for one in found
    ]
    console.table(("at (UTC)", "what", "query", "by", "details"), rows, drop=("query", "by"))


def _details(one: dict[str, Any]) -> str:
    facts = [_fact(name, value) for name, value in one["facts"].items()]
    return ", ".join([*facts, *([one["why"]] if one["why"] else [])])


def _moment(at: str | None) -> str | None:
    return None if at is None else at[:19].replace("T", " ")


def _fact(name: str, value: Any) -> str:
    """One fact for people: durations and sizes with their units."""
    if name == "paused_s":
        return f"nothing processed for {console.age(value)}"
    if name == "seconds":
        return f"took {console.age(value)}"
    if name.endswith("_s") and isinstance(value, int | float):
        return f"{name.removesuffix('_s').upper()} {console.age(value)}"
    if name == "not_run":
        return f"the application was not run: {value}"
    if name == "bytes":
        return str(console.size(value))
    return f"{name.replace('_', ' ')} {value}"


VERBS = {"history": (history, "Example: streambank job history orders --last 100")}
