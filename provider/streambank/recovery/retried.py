"""A restore that an earlier try of the same task has done: another try gives its report and changes nothing.

Who asks says so in `by`: as `asker` its task and its round of tries, separated by the last blank. A restore
into the next generation is repeated by a later round, since a person may go back once more. A directory that
is not empty is never restored into, so there each round of the task gives the report, as long as it asks for
the same savepoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from streambank.control.control import JobControl
from streambank.core.errors import NotFoundError
from streambank.core.json_text import loads
from streambank.core.names import ASKER, MAIN, QueryRef, is_same_task
from streambank.recovery.report import REPORT_SUFFIX
from streambank.storage import open_store
from streambank.storage.store import read_record
from streambank.work.target import read_note


def restored_before(
    by: Mapping[str, str],
    *,
    control: JobControl | None,
    query: str | None,
    into: str | None = None,
    meant: Callable[[], str] | None = None,
) -> dict[str, Any] | None:
    """The report of the restore that an earlier try of the same task has done; None where there is none.

    Args:
        by: Who asks, with its `asker`; without one there is no earlier try.
        meant: Gives the id of the savepoint that is asked for; for a directory.

    Raises:
        StreambankError: What was left behind cannot be read, or `meant` raises it.
    """
    asker = by.get(ASKER)
    if not asker:
        return None
    report = _beside(into) if into is not None else _of_generation(control, query, asker)
    if report is None:
        return None
    before = str(report.get("by", {}).get(ASKER, ""))
    same = before == asker
    if not same and meant is not None and is_same_task(asker, before):
        same = report["savepoint"] == meant()
    return {**report, "already_restored": True} if same and _is_whole(report) else None


def _of_generation(control: JobControl | None, query: str | None, asker: str) -> dict[str, Any] | None:
    current = None if control is None else control.generation(query)
    if control is None or current is None or current.by.get(ASKER) != asker:
        return None
    for record in control.stream("restores").newest_first():
        of = (record.data.get("generation"), record.data.get("location"))
        name = QueryRef.parse(str(record.data.get("job"))).query or MAIN
        if of == (current.number, current.location) and name == (query or MAIN):
            return dict(record.data)
    return None


def _beside(into: str) -> dict[str, Any] | None:
    target = open_store(into).uri.rstrip("/")
    parent, _, name = target.rpartition("/")
    if not name or parent.endswith(("/", ":")):
        return None
    try:
        report = loads(read_record(open_store(parent), f"{name}{REPORT_SUFFIX}"))
    except (NotFoundError, ValueError):
        return None
    of_target = isinstance(report, dict) and str(report.get("location", "")).rstrip("/") == target
    return report if of_target else None


def _is_whole(report: Mapping[str, Any]) -> bool:
    """Whether what was restored is there still."""
    store = open_store(str(report["location"]))
    is_laid_out = store.exists("metadata") and store.exists(f"commits/{report['batch']}")
    return is_laid_out and read_note(store) is None
