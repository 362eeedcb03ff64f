"""The reports of a job's drills, among its records: `drills/<number>.json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from streambank.control.control import JobControl
from streambank.control.records import JsonDict, RecordStream


def record_drill(control: JobControl, report: Mapping[str, Any]) -> int:
    """Keep the report of a drill.

    Args:
        control: The job's records.
        report: The report, as JSON.

    Returns:
        Its number.
    """
    return RecordStream(control.store, "drills").append(report)


def drills_of(control: JobControl) -> Iterator[JsonDict]:
    """The reports of a job's drills, newest first; damaged ones are left out.

    Args:
        control: The job's records.
    """
    for record in RecordStream(control.store, "drills").newest_first():
        yield record.data


def last_passed(control: JobControl) -> JsonDict | None:
    """The newest report of a drill that passed; None where none has."""
    return next((one for one in drills_of(control) if one.get("passed") is True), None)
