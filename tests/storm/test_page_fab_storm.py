"""The page with FAB's auth manager, which knows rights to single DAGs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.airflow_face.fab_rights import answers_with_fab
from tests.support.airflow_face.releases import needs_3_3

pytestmark = [pytest.mark.storm, needs_3_3]

BOTH = {"flights": 200, "orders": 200}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return answers_with_fab(Path(tmp_path_factory.mktemp("fab")))


def test_an_anonymous_and_a_user_without_rights_see_nothing(answers: dict[str, Any]) -> None:
    assert answers["anonymous"] == 401
    assert answers["nobody"]["jobs"] == []
    assert answers["nobody"]["status"] == {"flights": 404, "orders": 404}


@pytest.mark.parametrize("user", ["admin", "op"])
def test_who_may_do_everything_may_do_it_here(answers: dict[str, Any], user: str) -> None:
    found = answers[user]

    assert found["jobs"] == ["flights", "orders"] and found["status"] == found["log"] == BOTH
    assert found["trigger"]["flights"] == found["trigger"]["orders"] == [True]


def test_a_viewer_sees_all_and_may_trigger_nothing(answers: dict[str, Any]) -> None:
    found = answers["viewer"]

    assert found["jobs"] == ["flights", "orders"] and found["status"] == BOTH
    assert found["trigger"]["flights"] == found["trigger"]["orders"] == [False]


def test_a_role_of_one_job_sees_that_job_alone(answers: dict[str, Any]) -> None:
    for user, may in (("payer", True), ("reader", False)):
        found = answers[user]

        assert found["jobs"] == ["flights"]
        assert found["status"] == {"flights": 200, "orders": 404}
        assert found["trigger"]["flights"] == [may]
        # Nothing gave these roles the logs of tasks.
        assert found["log"] == {"flights": 403, "orders": 404}


def test_what_the_page_says_is_what_airflow_s_own_api_does(answers: dict[str, Any]) -> None:
    for user, found in answers.items():
        if user != "anonymous":
            for job in ("flights", "orders"):
                may = found["trigger"].get(job, [False]) == [True]
                assert found["trigger"][f"{job} by Airflow"] == may, (user, job)
