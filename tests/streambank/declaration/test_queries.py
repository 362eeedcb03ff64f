"""What Streambank calls the queries of an application."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.core.names import check_name
from streambank.declaration.declaration import Job
from streambank.declaration.queries import query_name
from streambank.driver.prepare import prepare_launch
from streambank.driver.spec import read_launch, write_launch
from tests.support.jobs.declared import BY, declare


@pytest.mark.parametrize(
    ("spark_name", "name"),
    [
        ("raw_orders-2.x", "raw_orders-2.x"),
        ("ends-", "ends-"),
        ("Notification Writer", "Notification-Writer"),
        ("Z\u00e4hler", "Zahler"),
        ("../raw orders!", "raw-orders"),
        ("\u6ce8\u6587", "query-266125dd"),
        ("x" * 101, "x" * 91 + "-" + "c675a2e6"),
    ],
)
def test_a_name_is_kept_or_made(spark_name: str, name: str) -> None:
    assert check_name(query_name(spark_name), "query") == name


def names(job: Job) -> dict[str, str]:
    return {name: job.spark_names.get(name, name) for name in job.queries}


def test_queries_of_any_name_are_declared_by_a_list_or_a_table(tmp_path: Path) -> None:
    listed = declare(tmp_path, more='queries = ["Notification Writer", "raw"]')
    assert names(listed) == {"Notification-Writer": "Notification Writer", "raw": "raw"}
    assert listed.queries["Notification-Writer"].endswith("/checkpoints/flights/Notification-Writer")
    chosen = declare(tmp_path, more='queries = { writer = "Notification Writer", raw = "raw" }')
    assert names(chosen) == {"writer": "Notification Writer", "raw": "raw"}
    assert chosen.savepoint_name("writer") == "flights/writer"
    table = declare(tmp_path, more='[jobs.flights.queries]\nwriter = "Notification Writer"')
    assert names(table) == {"writer": "Notification Writer"}


def test_a_launch_carries_the_names_of_the_application(tmp_path: Path) -> None:
    job = declare(tmp_path, more='queries = { writer = "Notification Writer", raw = "raw" }')
    control = job.records()
    spec = prepare_launch(job, control, by=BY)
    write_launch(control, spec)
    read = read_launch(control, spec.launch_id)
    assert {name: query.spark_name for name, query in read.queries.items()} == {
        "writer": "Notification Writer",
        "raw": None,
    }
