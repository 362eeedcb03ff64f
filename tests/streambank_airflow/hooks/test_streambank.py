from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import InputError, NotFoundError, RefusedError
from streambank.core.units import utc_now
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest
from streambank.storage import open_store
from streambank_airflow.hooks.streambank import StreambankHook
from streambank_airflow.operators.restore import RestoreSavepointOperator
from streambank_airflow.operators.savepoint import CreateSavepointOperator
from tests.support.jobs.managed_job import Managed
from tests.support.kafka.fake_broker import FakeBroker, write_checkpoint
from tests.support.refuses import refuses

pytestmark = pytest.mark.usefixtures("airflow_database")


def connection(
    patch: pytest.MonkeyPatch, extra: Mapping[str, object], name: str = "STREAMBANK_DEFAULT"
) -> None:
    patch.setenv(f"AIRFLOW_CONN_{name}", json.dumps({"conn_type": "streambank", "extra": dict(extra)}))


def test_the_connection_names_the_jobs_file(managed: Managed, monkeypatch: pytest.MonkeyPatch) -> None:
    connection(monkeypatch, {"jobs_file": str(managed.jobs_file), "repository": None})

    assert StreambankHook().declared.find("flights") == (managed.job, None)
    opened = asyncio.run(StreambankHook.aopen("streambank_default"))
    assert opened.declared.find("flights") == (managed.job, None)


def test_a_tasks_own_jobs_file_comes_first_and_needs_no_connection(managed: Managed) -> None:
    assert StreambankHook(jobs_file=str(managed.jobs_file)).declared.find("flights") == (managed.job, None)


def test_without_any_jobs_file_it_is_said_where_to_name_one() -> None:
    with pytest.raises(InputError, match="No jobs file") as caught:
        StreambankHook().declared.find("flights")

    assert "streambank_default" in caught.value.hint


def test_another_connection_than_the_default_must_exist() -> None:
    with pytest.raises(InputError, match="no connection elsewhere"):
        StreambankHook("elsewhere").declared.find("flights")


def test_an_unknown_field_is_refused_without_repeating_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    connection(monkeypatch, {"secret_key": "hunter2"})

    with pytest.raises(InputError, match="'secret_key'") as caught:
        StreambankHook().get_conn()

    assert "hunter2" not in f"{caught.value} {caught.value.hint}"


def test_a_query_that_a_job_does_not_have_is_refused(managed: Managed) -> None:
    with pytest.raises(InputError, match="has no query 'hourly'"):
        StreambankHook(jobs_file=str(managed.jobs_file)).declared.find("flights/hourly")


def test_the_connection_can_be_tested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connection(monkeypatch, {"repository": str(tmp_path / "repository")})
    assert StreambankHook().test_connection() == (
        True,
        "Nothing is there yet, and it can be written to: the first savepoint makes the repository.",
    )
    assert list(tmp_path.iterdir()) == [], "the look has left nothing"

    made = Repository.open(open_store(tmp_path / "repository"), create=True)

    assert StreambankHook().test_connection() == (True, f"The repository {made.id} is there.")


def test_a_connection_to_a_place_where_no_repository_can_be_is_no_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    connection(monkeypatch, {"repository": str(tmp_path)})
    works, said = StreambankHook().test_connection()
    assert (works, "other files are there, such as notes.txt" in said) == (False, True)

    connection(monkeypatch, {"repository": str(tmp_path / "notes.txt" / "below")})
    works, said = StreambankHook().test_connection()
    assert not works
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_what_the_button_finds_is_said_in_words_of_the_form(monkeypatch: pytest.MonkeyPatch) -> None:
    connection(monkeypatch, {"repository": "/proc/x"})
    assert StreambankHook().test_connection() == (
        False,
        "No repository can be made at file:///proc/x: no directory can be made there. Name a directory for "
        "the repository that can be made and written to.",
    )
    connection(monkeypatch, {"jobs_file": "/nowhere/jobs.toml"})
    works, said = StreambankHook().test_connection()
    assert not works and said.endswith("Correct the field Jobs file.") and "--" not in said


def test_a_connection_without_a_repository_is_not_told_by_the_name_airflow_gives_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection(monkeypatch, {})
    works, said = StreambankHook().test_connection()
    assert not works
    assert said == "This connection names no repository. Fill in its field Repository."


def test_a_query_that_nobody_declared_needs_only_its_checkpoint(
    managed: Managed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed.start()
    managed.stop()
    connection(monkeypatch, {"repository": str(tmp_path / "other")})

    took = StreambankHook().savepoints.take(
        "unmanaged", checkpoint=str(managed.checkpoint), by={"user": "somebody"}
    )
    report = StreambankHook().savepoints.verify("unmanaged", level="full", by={"user": "somebody"})

    assert (report.savepoint, report.ok, report.findings) == (took.savepoint, True, ())
    with pytest.raises(NotFoundError):
        StreambankHook().savepoints.verify("another", "latest", level="quick", by={})


def test_no_repository_is_made_in_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connection(monkeypatch, {"repository": str(tmp_path / "checkpoint/savepoints")})

    with refuses(InputError, "inside-checkpoint"):
        StreambankHook().declared.open_repository(
            "unmanaged", create=True, checkpoint=str(tmp_path / "checkpoint")
        )

    assert not (tmp_path / "checkpoint").exists()


def test_the_last_word_counts(managed: Managed) -> None:
    hook = StreambankHook(jobs_file=str(managed.jobs_file))
    now = utc_now()
    assert hook.jobs.obeys("flights", now)
    managed.control.set_desired("stopped", by={"user": "somebody"})

    assert hook.jobs.obeys("flights", now - timedelta(hours=1))
    assert hook.jobs.obeys("flights", None)
    assert not hook.jobs.obeys("flights", now + timedelta(hours=1))


# Operators say where the Kafka of a query is that nobody declared.


OFFSETS = '{"flights":{"0":100}}'


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every server that was asked; all of them have the topic."""
    servers: list[str] = []
    broker = FakeBroker()
    broker.put("flights", (0, 150))

    def reach(bootstrap: str, properties: Any, timeout_s: float, patience: Any) -> FakeBroker:
        servers.append(bootstrap)
        return broker

    monkeypatch.setattr("streambank.kafka.client.connect", reach)
    return servers


def test_an_undeclared_query_is_taken_and_restored_by_the_servers_that_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    extra = {"repository": str(tmp_path / "repository")}
    monkeypatch.setenv(
        "AIRFLOW_CONN_STREAMBANK_DEFAULT", json.dumps({"conn_type": "streambank", "extra": extra})
    )
    hook = StreambankHook()
    checkpoint = str(write_checkpoint(tmp_path / "checkpoint", OFFSETS))
    taken = hook.savepoints.take("orders", kafka="kafka:9092", checkpoint=checkpoint, by={})
    (source,) = hook.declared.open_repository("orders").load("orders", taken.savepoint).sources
    assert source["kafka"]["topics"]["flights"]["topic_id"]
    assert asked == ["kafka:9092"]

    into = str(tmp_path / "restored")
    plan = hook.recovery.plan("orders", into=into, kafka="elsewhere:9092")
    assert plan.plans["main"].sources[0]["safe"] is True
    assert asked == ["kafka:9092", "elsewhere:9092"]
    hook.recovery.restore("orders", into=into, kafka="mirror:9092")
    assert set(asked[2:]) == {"mirror:9092"}, "before the files are laid out, and after"
    assert open_store(into).exists("metadata")


def test_a_savepoint_that_names_no_servers_is_restored_by_those_of_the_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    from streambank.repository.repository import Repository
    from streambank.savepoint.take import take

    repository = Repository.open(open_store(tmp_path / "repository"), create=True)
    take(TakeRequest(open_store(write_checkpoint(tmp_path / "checkpoint", OFFSETS)), repository, "orders"))
    extra = {"repository": str(tmp_path / "repository")}
    monkeypatch.setenv(
        "AIRFLOW_CONN_STREAMBANK_DEFAULT", json.dumps({"conn_type": "streambank", "extra": extra})
    )
    into = str(tmp_path / "restored")
    with pytest.raises(RefusedError, match="The address of the query's Kafka") as refused:
        StreambankHook().recovery.plan("orders", into=into)
    assert "`kafka` of an Airflow operator" in refused.value.hint
    planned = StreambankHook().recovery.plan("orders", into=into, kafka="kafka:9092")
    assert planned.plans["main"].sources
    assert asked == ["kafka:9092"]


def test_operators_take_it_as_a_template() -> None:
    taking = CreateSavepointOperator(task_id="take", job="orders", checkpoint="/ck", kafka="{{ params.k }}")
    restoring = RestoreSavepointOperator(task_id="restore", job="orders", into="/to", kafka="kafka:9092")
    for operator in (taking, restoring):
        assert "kafka" in operator.template_fields
