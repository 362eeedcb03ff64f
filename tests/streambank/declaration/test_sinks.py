"""`[[jobs.NAME.sinks]]`: what a job may declare of its sinks, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.core.errors import InputError
from streambank.declaration.declaration import Job
from streambank.sinks.declared import of_query
from streambank.sinks.delta import DeltaGuard
from streambank.sinks.ledger import LedgerGuard
from streambank.sinks.table import UnknownTable
from tests.support.jobs.jobs_file import declared_jobs, mistake

SECRET = "hunter2"


def job(folder: Path, sinks: str, *, queries: str = "", **variables: str) -> Job:
    head = 'repository = "repository"\n[jobs.orders]\napplication = "app.py"\ncheckpoint = "ck"\n'
    return declared_jobs(folder, f"{head}{queries}\n{sinks}", **variables).job("orders")


def refused(folder: Path, fields: str, *, queries: str = "") -> str:
    said = mistake(job, folder, f"[[jobs.orders.sinks]]\n{fields}", queries=queries)
    assert SECRET not in said
    return said


def test_each_kind(tmp_path: Path) -> None:
    delta, iceberg, ledger, append, by_key = job(
        tmp_path,
        """
        [[jobs.orders.sinks]]
        kind = "delta"
        table = "lake"
        writer = "orders"
        [[jobs.orders.sinks]]
        kind = "iceberg"
        table = "shop.orders"
        catalog = {type = "rest", uri = "https://catalog.example.com", token = "${TOKEN}"}
        tag = false
        [[jobs.orders.sinks]]
        kind = "ledger"
        url = "${DATABASE}"
        rows = ["orders", "lines"]
        [[jobs.orders.sinks]]
        kind = "append"
        [[jobs.orders.sinks]]
        kind = "idempotent-by-key"
        table = "the index"
        """,
    ).sinks
    assert (delta.path, delta.writer) == (f"file://{tmp_path}/lake", "orders")
    assert iceberg.path == "shop.orders" and not iceberg.tag
    assert iceberg.catalog["token"] == "${TOKEN}", "secrets are looked up when the table is asked"
    assert (ledger.path, ledger.table) == ("${DATABASE}#streambank_batches", "streambank_batches")
    assert ledger.rows == ("orders", "lines")
    assert (append.path, by_key.path) == ("foreachBatch", "the index")


def test_the_guard_of_each_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declared = job(
        tmp_path,
        '[[jobs.orders.sinks]]\nkind = "delta"\ntable = "lake"\n'
        '[[jobs.orders.sinks]]\nkind = "ledger"\nurl = "${LEDGER_URL}"\nrows = ["orders"]\n'
        '[[jobs.orders.sinks]]\nkind = "append"\n',
    ).sinks
    monkeypatch.setenv("LEDGER_URL", "sqlite://")
    assert [type(one.guard("query id")) for one in declared] == [DeltaGuard, LedgerGuard, type(None)]
    monkeypatch.delenv("LEDGER_URL")
    guard = declared[1].guard("query id")
    assert isinstance(guard, UnknownTable)
    captured = guard.capture(4)
    assert "LEDGER_URL is not set" in captured.warning and captured.record["not_asked"]
    assert guard.stand(4, None).safe is None and "LEDGER_URL" in guard.stand(4, None).sentence()


def test_a_job_of_several_queries_says_whose_they_are(tmp_path: Path) -> None:
    queries = 'queries = ["hourly", "daily"]'
    said = refused(tmp_path, 'kind = "append"', queries=queries)
    assert "the job has several queries" in said and "hourly, daily" in said
    assert "no query 'weekly'" in refused(tmp_path, 'kind = "append"\nquery = "weekly"', queries=queries)
    sinks = job(tmp_path, '[[jobs.orders.sinks]]\nkind = "append"\nquery = "daily"', queries=queries).sinks
    assert of_query(sinks, "daily") == sinks and of_query(sinks, "hourly") == ()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ('kind = "hudi"', "'hudi' is not one of its values"),
        ('table = "lake"', "kind: it is missing"),
        ('kind = "delta"', "table: it is missing"),
        ('kind = "delta"\ntable = "lake"\nrows = ["a"]', "a sink of kind delta has no such field"),
        ('kind = "iceberg"\ntable = "shop.orders"', "catalog: it is missing"),
        ('kind = "ledger"', "url: it is missing"),
        ('kind = "append"\nwritter = "x"', "there is no such field"),
        ('kind = "ledger"\nurl = "${HALF"', "does not begin a variable"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, fields: str, said: str) -> None:
    assert said in refused(tmp_path, fields)


@pytest.mark.parametrize(
    "fields",
    [
        f'kind = "ledger"\nurl = "postgresql://orders:{SECRET}@db/orders"',
        f'kind = "iceberg"\ntable = "a.b"\ncatalog = {{token = "{SECRET}"}}',
        f'kind = "delta"\ntable = "lake"\noptions = {{AWS_SECRET_ACCESS_KEY = "{SECRET}"}}',
    ],
)
def test_no_secret_stands_in_the_file(tmp_path: Path, fields: str) -> None:
    assert "environment" in refused(tmp_path, fields)


def test_one_sink_is_not_listed_twice(tmp_path: Path) -> None:
    entry = '[[jobs.orders.sinks]]\nkind = "delta"\ntable = "lake"\n'
    with pytest.raises(InputError, match="listed twice"):
        job(tmp_path, entry + entry)


def test_they_belong_to_a_job(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="belongs to a job"):
        job(tmp_path, '[[defaults.sinks]]\nkind = "append"')


def test_two_queries_are_not_one_writer(tmp_path: Path) -> None:
    entry = '[[jobs.orders.sinks]]\nkind = "delta"\ntable = "lake"\nwriter = "orders"\nquery = "{}"\n'
    with pytest.raises(InputError, match="as one writer"):
        job(tmp_path, entry.format("daily") + entry.format("hourly"), queries='queries = ["daily", "hourly"]')
