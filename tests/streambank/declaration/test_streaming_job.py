"""A `StreamingJob` has the fields that a job's table may have: its names are those that are read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from streambank.core.errors import InputError
from streambank.declaration import streaming_job
from streambank.declaration.load import read_given
from streambank.declaration.streaming_job import StreamingJob

BASE: dict[str, Any] = {"name": "a", "application": "/a.py", "checkpoint": "/ck", "repository": "/r"}
TABLES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "SavepointTable": ("savepoint", {}),
    "RetentionTable": ("retention", {}),
    "ReplicateTable": ("replicate", {"to": ["/b"], "retention": {}}),
    "RestoreTable": ("restore", {}),
    "StopTable": ("stop", {}),
    "StartTable": ("start", {}),
    "HealthTable": ("health", {}),
    "KafkaTable": ("kafka", {}),
    "SinkEntry": ("sinks.[]", {"kind": "ledger", "url": "sqlite:///x"}),
    "DrillTable": ("drill", {}),
    "LaunchTable": ("launch", {}),
    "AirflowTable": ("airflow", {}),
    "NotifyEntry": ("notify.[]", {"class": "a.B"}),
}
"""Where each table stands, and what it needs so that all of its other fields are read."""


def known_to_reader(path: str, needed: dict[str, Any]) -> set[str]:
    """The fields of a table that are read, by the mistake about one that is not."""
    value: Any = {**needed, "zzqq": 1}
    for name in reversed(path.split(".")) if path else ():
        value = [value] if name == "[]" else {name: value}
    declared = {**BASE, **value}
    with pytest.raises(InputError) as caught:
        read_given([declared]).whole()
    known = re.search(r"Known: (.*)\.$", caught.value.hint)
    assert known is not None, caught.value
    return set(known[1].split(", "))


def test_each_field_of_a_job_is_there() -> None:
    conditional: dict[str, Any] = {"transform": {"sets": ["v.a = 1"]}, "bootstrap": {"tables": ["/t"]}}
    read = known_to_reader("", {**conditional, "hot_keys": {}, "generations": {}})

    assert {one.name for one in fields(StreamingJob)} == read


@pytest.mark.parametrize("table", TABLES)
def test_each_field_of_a_table_is_there(table: str) -> None:
    assert get_type_hints(getattr(streaming_job, table)).keys() == known_to_reader(*TABLES[table])


def test_all_tables_are_compared() -> None:
    mine = {name for name in vars(streaming_job) if re.fullmatch(r".+(Table|Entry)", name)}

    assert mine == TABLES.keys()


def test_it_is_plain_data_that_declares_the_job() -> None:
    job = StreamingJob(
        name="orders",
        application=Path("/apps/orders.py"),
        checkpoint="/ck",
        repository="/r",
        args=("--day", "${DAY}"),
        stop={"force_after": timedelta(seconds=90)},
        sla={"mute": {"until": datetime(2026, 12, 1, tzinfo=UTC), "why": "moving"}},
        hot_keys=False,
    )

    assert job.to_dict() == {
        "name": "orders",
        "application": "/apps/orders.py",
        "checkpoint": "/ck",
        "repository": "/r",
        "args": ["--day", "${DAY}"],
        "stop": {"force_after": "90000ms"},
        "sla": {"mute": {"until": "2026-12-01T00:00:00+00:00", "why": "moving"}},
        "hot_keys": False,
    }
    read = read_given([job.to_dict()], variables={"DAY": "1"}).job("orders")
    assert (read.args, read.stop.force_after_s, read.hot_keys) == (("--day", "1"), 90.0, None)
    assert read.sla.mute is not None and read.sla.mute.until == datetime(2026, 12, 1, tzinfo=UTC)
