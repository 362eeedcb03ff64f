"""The page with an auth manager that is neither Airflow's own nor FAB's: rights to single DAGs, and teams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.airflow_face.own_rights import JOBS, answers_of_own
from tests.support.airflow_face.releases import needs_3_2

pytestmark = [pytest.mark.storm, needs_3_2]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return answers_of_own(Path(tmp_path_factory.mktemp("own")))


@pytest.mark.parametrize(
    ("user", "jobs", "may"),
    [
        ("admin", ["flights", "ledger", "orders"], True),
        ("member", ["flights", "ledger", "orders"], True),
        ("stranger", ["flights", "orders"], True),
        ("flights", ["flights"], True),
        ("looker", ["flights", "ledger", "orders"], False),
    ],
)
def test_a_user_sees_jobs_of_their_teams_and_rights_alone(
    answers: dict[str, Any], user: str, jobs: list[str], may: bool
) -> None:
    found = answers[user]

    assert found["jobs"] == jobs
    assert found["status"] == {job: 200 if job in jobs else 404 for job in JOBS}
    assert {job: found["trigger"][job] for job in jobs} == {job: [may] for job in jobs}


def test_what_the_page_says_is_what_airflow_s_own_api_does(answers: dict[str, Any]) -> None:
    for user, found in answers.items():
        assert found["read by Airflow"] == found["jobs"], user
        for job in JOBS:
            may = found["trigger"].get(job, [False]) == [True]
            assert found["trigger"][f"{job} by Airflow"] == may, (user, job)
