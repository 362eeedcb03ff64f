"""What the operator of fail-overs shows a person, and what it takes for an approval."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from streambank.core.errors import InputError
from streambank.core.units import say_minute
from streambank.failover.failover import plan_failover
from streambank.failover.report import FailoverPlan, FailoverRequest
from streambank_airflow.markdown import rows_table
from streambank_airflow.operators import failover as module
from streambank_airflow.operators.failover import FailoverStreamingJobOperator, subject_of
from tests.support.airflow_face.metadata_db import run_dag, task_states
from tests.support.jobs.declared import BY
from tests.support.jobs.two_sites import NAME, TwoSites, two_sites
from tests.support.refuses import refuses


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[TwoSites]:
    with two_sites(tmp_path) as found:
        yield found


def plan_of(sites: TwoSites, **options: Any) -> FailoverPlan:
    return plan_failover(FailoverRequest(sites.job, by=BY, **options))


def rows_of(plan: FailoverPlan) -> str:
    return rows_table(plan.rows())


def test_a_plan_says_what_would_be_lost_by_its_time(sites: TwoSites) -> None:
    sites.start()
    sites.save()
    plan = plan_of(sites)
    moment = say_minute(plan.savepoints["main"].taken_at)
    assert subject_of(plan) == "Fail over job orders to the standby? A last savepoint is taken first: RPO 0."
    shown = rows_of(plan)
    assert f"0 with the last savepoint that is taken first; else everything after {moment} (" in shown
    assert "written later" not in shown and "disagree" not in shown and "Gives up" not in shown

    may_lose = plan_of(sites, final_savepoint=False)
    assert f"lose or repeat everything after {moment} (" in subject_of(may_lose)
    assert subject_of(may_lose).endswith(" if no last savepoint can be taken?")
    assert "Output of main written later, without a last savepoint" in rows_of(may_lose)

    silent = replace(may_lose, answers=False, answers_why="It burns.", saves=False)
    assert f"everything after {moment} (" in subject_of(silent)
    assert subject_of(silent).endswith("? The primary cannot be fenced.")
    restored = replace(plan, resumes=True, saves=False)
    assert "last savepoint" not in rows_of(restored) + subject_of(restored)


def test_a_plan_says_that_sites_disagree_and_what_is_given_up(sites: TwoSites) -> None:
    plan = replace(plan_of(sites), disagree=True)
    assert "| The sites disagree |" in rows_of(plan)
    assert "| Gives up | the fail-over to the primary" in rows_of(replace(plan, gives_up=True))


@pytest.mark.parametrize("text", ["", "None", "{'site': ", "standby", "['standby']", '{"answers": true}'])
def test_text_that_is_no_approval_never_means_that_no_person_was_asked(text: str) -> None:
    with refuses(InputError, "bad-option"):
        module._approved(text)


def test_none_and_mappings_are_as_given() -> None:
    assert module._approved(None) is None
    assert module._approved("{'site': 'standby', 'answers': True}") == {"site": "standby", "answers": True}


@pytest.mark.storm
@pytest.mark.usefixtures("airflow_database")
@pytest.mark.parametrize("approved", ["", "None", "{}"])
def test_a_task_with_a_broken_approval_begins_nothing(
    sites: TwoSites, monkeypatch: pytest.MonkeyPatch, approved: str
) -> None:
    begun: list[object] = []
    monkeypatch.setattr(
        "streambank.failover.failover.failover", lambda *_, **how: begun.append(how["approved"])
    )
    with DAG("broken_approval", schedule=None) as dag:
        FailoverStreamingJobOperator(
            task_id="failover", job=NAME, jobs_file=str(sites.jobs), approved=approved
        )
    assert task_states(run_dag(dag)) == {"failover": "failed"}
    assert not begun, "with no approval at all"
