"""How DAGs of jobs are called and tagged."""

from __future__ import annotations

from pathlib import Path

import pytest
from airflow.sdk import DAG

from streambank_airflow.dag_names import REFRESH, VERBS, is_tagged, owners
from streambank_airflow.dags import refresh
from streambank_airflow.dags.jobs import BUILDERS, build_dags
from streambank_airflow.hints import is_own_dag
from tests.support.jobs.declared import write_jobs


def test_verbs_are_those_of_the_dags_that_are_built_in_their_order() -> None:
    assert (*BUILDERS,) == VERBS
    assert REFRESH == refresh.VERB


def test_a_dag_is_of_the_job_with_the_longest_name() -> None:
    assert list(owners("orders.run")) == ["orders"]
    assert list(owners("a.b.run")) == ["a.b"]
    assert list(owners("orders.refresh.eu")) == ["orders"]
    assert list(owners("orders.refresh.run")) == ["orders.refresh", "orders"]
    assert list(owners("orders")) == list(owners("orders.maintain")) == []


@pytest.mark.parametrize(
    ("dag_id", "tags", "built"),
    [
        ("orders.run", {"streambank", "orders"}, True),
        ("a.b.refresh.eu", {"streambank", "a.b", "night"}, True),
        ("upkeep", {"streambank", "maintenance"}, True),
        ("orders.run", {"streambank", "example"}, False),
        ("orders.run", {"orders"}, False),
        ("orders.hourly", {"streambank", "orders"}, False),
        ("nightly", {"streambank", "orders"}, False),
        ("nightly", {"streambank"}, False),
        ("nightly", set(), False),
    ],
)
def test_the_tag_alone_makes_no_dag_a_built_one(dag_id: str, tags: set[str], built: bool) -> None:
    """People tag theirs with what they are about, too: `streambank`, as the examples do, or the job."""
    assert is_tagged(dag_id, tags) == built
    assert is_own_dag(DAG(dag_id, tags=tags)) == (not built)


def test_every_dag_that_is_built_is_known_as_one(tmp_path: Path) -> None:
    file = write_jobs(tmp_path, name='"orders.eu"')
    file.write_text(f'{file.read_text()}[maintenance]\ndag_id = "upkeep"\n')
    dags = build_dags(file)
    assert "upkeep" in dags and not any(map(is_own_dag, dags.values()))
