"""The page's routes in Airflow's own application, with its own logins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from streambank_airflow.airflow_versions import keeps_in_assets
from streambank_airflow.page.files import static_files
from streambank_airflow.page.store import LINE, part_key
from tests.support.airflow_face.metadata_db import (
    delete_import_errors,
    pause,
    write_dags,
    write_import_error,
)
from tests.support.airflow_face.page_api import ON, PageApi, keep_line, page_api, page_on, write_job
from tests.support.airflow_face.page_values import DatabaseValues
from tests.support.airflow_face.releases import BEFORE_3_3

__all__ = ["page_api", "page_on"]

HTML = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, page_api: PageApi) -> None:
    """Three jobs: one with all of its DAGs, one that can only be stopped, one of which nothing is kept."""
    folder = tmp_path_factory.mktemp("jobs")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ON.items():
            patch.setenv(name, value)
        write_job(folder / "orders", "orders")
        write_job(folder / "half", "half", only=("stop", "sla"))
        write_job(folder / "new", "new")


@pytest.fixture
def jobs(written: None, page_on: None) -> None:
    """The same, with their snapshots."""
    keep_line("orders", {"status": {"at": None, "error": None, "text": HTML}}, state_why=HTML)
    keep_line("half")


def jobs_of(answer: Any) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    return {one["job"]: one for one in answer.json()["jobs"] if one["job"] in ("orders", "half", "new")}


def test_a_viewer_sees_the_lines_of_all_jobs(jobs: None, page_api: PageApi) -> None:
    answer = page_api.get("jobs")

    found = jobs_of(answer)
    assert list(found) == ["half", "new", "orders"]
    assert found["orders"]["line"]["state_why"] == HTML
    assert found["orders"]["dag"] == "orders.run" and found["half"]["dag"] == "half.stop"
    assert found["new"]["line"] is None
    assert answer.json()["format"] == 1 and answer.json()["now"].endswith("Z")


def test_a_job_is_known_by_its_dags_where_variables_keep_its_page(
    jobs: None, page_api: PageApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before Airflow 3.3, and with a state store of one's own: nothing of any job is kept yet."""
    monkeypatch.setenv("AIRFLOW__STATE_STORE__BACKEND", "acme.Store")
    assert not keeps_in_assets()
    if not BEFORE_3_3:
        keep_line("half")

    found = jobs_of(page_api.get("jobs"))
    assert list(found) == ["half", "new", "orders"]
    assert found["half"]["line"] and found["new"]["line"] is None
    assert page_api.get("jobs/new").json()["line"] is None
    assert page_api.get("jobs/maintenance").status_code == 404


PATHS = ("jobs", "jobs/orders", "jobs/orders/status", "jobs/nothing", "jobs/orders/log")


@pytest.mark.parametrize("path", PATHS)
def test_an_anonymous_gets_nothing(jobs: None, page_api: PageApi, path: str) -> None:
    answer = page_api.get(path, role=None)

    assert answer.status_code == 401
    assert answer.headers["Cache-Control"] == "no-store"
    assert "orders" not in answer.text


@pytest.mark.parametrize("path", [*PATHS, "static/main.js", "static/nothing.js", "openapi.json", "docs", ""])
def test_every_answer_is_what_it_says_and_only_files_may_be_kept(
    jobs: None, page_api: PageApi, path: str
) -> None:
    answer = page_api.get(path)

    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    kept = path == "static/main.js"
    assert answer.headers["Cache-Control"] == ("no-cache" if kept else "no-store")
    assert answer.headers["Content-Type"].split(";")[0] == ("text/javascript" if kept else "application/json")


@pytest.mark.parametrize("path", ["openapi.json", "docs", "redoc", "", "static", "static/"])
def test_nothing_else_is_there(page_api: PageApi, path: str) -> None:
    assert page_api.get(path, role=None).status_code == 404


def test_what_a_user_may_do_is_what_airflow_lets_them_do(jobs: None, page_api: PageApi) -> None:
    pause("orders.run", False)
    pause("orders.sla")
    for role, may in (("viewer", False), ("user", True), ("admin", True)):
        answer = page_api.get("jobs/orders", role=role).json()

        assert answer["line"]["job"] == "orders"
        dags = {one["verb"]: one for one in answer["dags"]}
        assert list(dags)[:3] == ["run", "stop", "savepoint"]
        assert dags["run"]["dag_id"] == "orders.run"
        assert not dags["run"]["paused"] and dags["sla"]["paused"]
        assert {one["may"]["trigger"] for one in dags.values()} == {may}
        asked = page_api.client(role).post("/api/v2/dags/orders.stop/dagRuns", json={"logical_date": None})
        assert (asked.status_code != 403) == may


def test_a_part_is_given_as_it_was_kept(jobs: None, page_api: PageApi) -> None:
    answer = page_api.get("jobs/orders/status")

    assert answer.json() == {"at": None, "error": None, "text": HTML}
    assert page_api.get("jobs/orders/events").status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "jobs/nothing",
        "jobs/..%2forders",
        "jobs/orders/line",
        "jobs/%25",
        "jobs/orders/sta%25",
        "jobs/orders/status%00",
    ],
)
def test_names_of_requests_are_looked_up_and_nothing_else(jobs: None, page_api: PageApi, path: str) -> None:
    assert page_api.get(path).status_code == 404


@pytest.mark.parametrize(
    "name", ["orders%00", "%00", "o" * 5000, "orders%20", "ORDERS%0a", "orders;", "@", "-"]
)
def test_what_no_job_may_be_called_is_not_looked_up(
    jobs: None, page_api: PageApi, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Postgres takes no NUL in a text: the look-up would end as an error of the server."""
    asked: list[Any] = []
    monkeypatch.setattr("streambank_airflow.page.routes.rows", lambda: asked.append(name))
    for path in (f"jobs/{name}", f"jobs/{name}/status", f"jobs/{name}/log"):
        assert page_api.get(path).status_code == 404
    assert not asked


def test_a_job_without_dags_is_seen_by_nobody(page_api: PageApi, page_on: None) -> None:
    from tests.support.airflow_face.page_values import page_asset_of

    with page_asset_of("ghost"):
        keep_line("ghost")

        assert page_api.get("jobs/ghost", role="admin").status_code == 404
        assert "ghost" not in page_api.get("jobs", role="admin").text


def test_a_dag_that_no_file_has_any_more_shows_no_job(
    tmp_path: Path, page_on: None, page_api: PageApi
) -> None:
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session

    write_job(tmp_path, "stale", only=("run", "stop"))
    keep_line("stale")
    assert page_api.get("jobs/stale").json()["line"]["job"] == "stale"
    for dag_id, seen in (("stale.run", True), ("stale.stop", False)):
        with create_session() as session:
            session.get_one(DagModel, dag_id).is_stale = True

        assert (page_api.get("jobs/stale").status_code == 200) == seen


def test_a_dag_file_with_an_error_hides_no_job(tmp_path: Path, page_on: None, page_api: PageApi) -> None:
    """Airflow marks its DAGs as stale at once, while the job goes on."""
    write_job(tmp_path, "typo", only=("run", "stop"))
    keep_line("typo")
    assert {one["broken"] for one in page_api.get("jobs/typo").json()["dags"]} == {False}
    write_import_error("typo.py", "NameError: job", "typo.run", "typo.stop")
    try:
        answer = page_api.get("jobs/typo").json()
        assert answer["line"]["job"] == "typo"
        assert {one["verb"]: one["broken"] for one in answer["dags"]} == {"run": True, "stop": True}
        (entry,) = [one for one in page_api.get("jobs").json()["jobs"] if one["job"] == "typo"]
        assert entry["broken"]
    finally:
        delete_import_errors()


def test_the_file_of_a_broken_dag_is_named_as_airflow_s_import_errors_name_it(
    tmp_path: Path, page_on: None, page_api: PageApi
) -> None:
    write_job(tmp_path, "slip", only=("run", "stop"))
    assert not page_api.get("jobs").json()["import_errors"]
    write_import_error("slip.py", "NameError: job", "slip.run", "slip.stop")
    try:
        answer = page_api.get("jobs/slip").json()
        (error,) = page_api.client("viewer").get("/api/v2/importErrors").json()["import_errors"][:1]

        assert answer["line"] is None and answer["import_errors"]
        assert page_api.get("jobs").json()["import_errors"]
        for dag in answer["dags"]:
            assert (dag["broken"], dag["file"], dag["bundle"]) == (True, "slip.py", error["bundle_name"])
        assert error["filename"] == "slip.py"
    finally:
        delete_import_errors()
    assert page_api.get("jobs/slip").status_code == 404


def test_a_job_called_as_copies_are_has_dags_of_its_own(
    tmp_path: Path, page_on: None, page_api: PageApi
) -> None:
    for name in ("deals", "deals.refresh"):
        write_job(tmp_path / name, f'"{name}"', only=("run", "stop"))
        keep_line(name)

    for name in ("deals", "deals.refresh"):
        shown = page_api.get(f"jobs/{name}").json()["dags"]
        assert [one["dag_id"] for one in shown] == [f"{name}.run", f"{name}.stop"]


@pytest.mark.parametrize(
    "text", ["[]", "7", "{}", '{"job": "other", "format": 1}', '{"format": 1, "job": "orders", "v": NaN}']
)
def test_a_damaged_line_is_an_error_of_that_job_alone(jobs: None, page_api: PageApi, text: str) -> None:
    DatabaseValues("orders").set_text(LINE, text)

    found = jobs_of(page_api.get("jobs"))

    assert found["orders"]["line"]["error"]["code"] == "page-part-damaged"
    assert found["half"]["line"]["job"] == "half"
    assert page_api.get("jobs/orders").json()["line"]["error"]["code"] == "page-part-damaged"


@pytest.mark.parametrize("text", ["[]", "nothing", '{"format": 1, "digest": "0", "data": "x"}'])
def test_a_damaged_part_is_an_error_of_that_part_alone(jobs: None, page_api: PageApi, text: str) -> None:
    DatabaseValues("orders").set_text(part_key("status"), text)

    answer = page_api.get("jobs/orders/status")

    assert answer.status_code == 200
    assert answer.json()["error"].keys() == {"code", "message", "hint"}


def test_files_are_served_by_their_names_and_known_ones_not_again(page_api: PageApi) -> None:
    for name, file in static_files().items():
        answer = page_api.get(f"static/{name}", role=None)
        assert answer.content == file.content
        again = page_api.get(f"static/{name}", role=None, **{"If-None-Match": answer.headers["ETag"]})
        assert again.status_code == 304 and not again.content
    for path in ("static/plugin.py", "static/..%2fplugin.py", "static/%2e%2e/plugin.py", "static/.js"):
        assert page_api.get(path, role=None).status_code == 404
    assert "main.js" in static_files()


def test_the_browser_is_told_of_the_page(page_api: PageApi, page_on: None) -> None:
    plugins = page_api.client("admin").get("/api/v2/plugins").json()["plugins"]

    (own,) = [one for one in plugins if one["name"] == "streambank"]
    apps = {one["name"]: one for one in own["react_apps"]}
    assert {name: one["destination"] for name, one in apps.items()} == {
        "Streambank": "nav",
        "Streambank jobs": "dashboard",
        "Streambank job": "dag",
    }
    assert {one["bundle_url"] for one in apps.values()} == {"/streambank/static/main.js"}


def test_a_question_that_waits_is_shown_to_who_may_read_it(
    tmp_path: Path, page_on: None, page_api: PageApi
) -> None:
    from tests.support.airflow_face.page_values import waiting_question

    write_job(tmp_path, "asking")
    keep_line("asking")
    with waiting_question("asking.restore", "approve", "Restore the newest?"):
        found = {one["job"]: one for one in page_api.get("jobs").json()["jobs"]}["asking"]["approvals"]
        shown = page_api.get("jobs/asking").json()["approvals"]

    assert found == shown
    (one,) = found
    assert (one["dag_id"], one["task_id"], one["subject"]) == (
        "asking.restore",
        "approve",
        "Restore the newest?",
    )
    assert page_api.get("jobs/asking").json()["approvals"] == []


def test_a_question_for_others_alone_is_not_the_users_to_answer(
    tmp_path: Path, page_on: None, page_api: PageApi
) -> None:
    from tests.support.airflow_face.page_values import waiting_question

    write_job(tmp_path, "asking")
    keep_line("asking")
    for assignees, may in (((), True), (("admin", "ann"), True), (("ann",), False)):
        with waiting_question("asking.restore", "approve", "Restore the newest?", *assignees):
            (one,) = page_api.get("jobs/asking", "admin").json()["approvals"]
            assert (one["may_answer"], tuple(one["assignees"])) == (may, assignees)


def test_another_dag_of_that_name_is_no_job(page_api: PageApi, page_on: None) -> None:
    with DAG("stranger.run", schedule=None) as dag:
        pass
    write_dags(dag)

    assert page_api.get("jobs/stranger").status_code == 404


def test_the_list_is_json_of_text_alone(jobs: None, page_api: PageApi) -> None:
    text = page_api.get("jobs").text

    assert json.loads(text)
    assert text.isascii()
