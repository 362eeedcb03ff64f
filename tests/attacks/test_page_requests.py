"""Requests to the page: of an anonymous, of who may see one job of two; and what is kept has been spoiled."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import pytest

from streambank_airflow.page.rights import Rights
from streambank_airflow.page.store import LINE, part_key
from tests.support.airflow_face.metadata_db import airflow_database
from tests.support.airflow_face.page_api import (
    ON,
    PageApi,
    keep_line,
    line_of,
    page_api,
    page_on,
    write_job,
)
from tests.support.airflow_face.page_values import DatabaseValues, waiting_question

__all__ = ["airflow_database", "page_api", "page_on"]

pytestmark = pytest.mark.airflow

MINE, THEIRS = "visible", "hidden"
SECRET = "what only they may read"
STRANGE = (
    "..%2fhidden",
    "%2e%2e/hidden",
    "%2e%2e%2fhidden",
    "visible%2f..%2fhidden",
    "visible/..%2f..%2fhidden",
    "hid%64en",
    "hidden%20",
    "%20hidden",
    "HIDDEN",
    "hidden.run",
    "hidden%23",
    "hidden%3f",
    "hidden;",
    "hidden%0a",
    "%25",
    "%25%25",
    "_idden",
    "hidd_n",
    "*",
    "%00",
    "hidden%00",
    "%ff%fe",
    "a" * 5000,
    "%F0%9F%92%A9",
    "'%20OR%20'1'='1",
    "%22",
)
"""How the job that may not be seen is asked for, and what is no job at all."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, page_api: PageApi) -> None:
    folder = tmp_path_factory.mktemp("jobs")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ON.items():
            patch.setenv(name, value)
        for job in (MINE, THEIRS):
            write_job(folder / job, job, only=("run", "restore"))


@pytest.fixture
def jobs(written: None, page_on: None) -> None:
    """Two jobs, of which everything is kept."""
    for job in (MINE, THEIRS):
        text = {"at": None, "error": None, "text": SECRET if job == THEIRS else "mine"}
        why = SECRET if job == THEIRS else "mine"
        keep_line(job, {"status": text, "log": text}, state_why=why)


@pytest.fixture
def of_one_job(jobs: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each user has rights to the DAGs of one job, and not to the logs of its tasks."""
    readable, may = Rights.readable, Rights.may

    def readable_of_mine(self: Rights, dag_ids: Any) -> set[str]:
        return {one for one in readable(self, dag_ids) if one.startswith(f"{MINE}.")}

    def may_of_mine(self: Rights, method: Any, dag_id: str, entity: Any = None) -> bool:
        is_log = entity is not None and entity.name == "TASK_LOGS"
        return dag_id.startswith(f"{MINE}.") and not is_log and may(self, method, dag_id, entity)

    monkeypatch.setattr(Rights, "readable", readable_of_mine)
    monkeypatch.setattr(Rights, "may", may_of_mine)


def is_guarded(answer: Any) -> None:
    """Every answer, of errors too, is what it says, is not stored, and a browser can read it."""
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Content-Type"].startswith("application/json")
    json.loads(answer.text, parse_constant=pytest.fail)


def test_who_may_see_both_jobs_sees_both(jobs: None, page_api: PageApi) -> None:
    """The negative control of the tests below."""
    for path in ("jobs", f"jobs/{THEIRS}", f"jobs/{THEIRS}/status", f"jobs/{THEIRS}/log"):
        answer = page_api.get(path, role="admin")
        assert answer.status_code == 200 and SECRET in answer.text
        is_guarded(answer)


def test_who_may_see_one_job_learns_nothing_of_the_other(of_one_job: None, page_api: PageApi) -> None:
    assert SECRET not in page_api.get("jobs").text and THEIRS not in page_api.get("jobs").text
    assert page_api.get(f"jobs/{MINE}/status").json()["text"] == "mine"
    missing = {part: page_api.get(f"jobs/nothing{part}") for part in ("", "/status", "/log", "/x")}
    for part, nothing in missing.items():
        unseen = page_api.get(f"jobs/{THEIRS}{part}")
        assert (unseen.status_code, unseen.text) == (nothing.status_code, nothing.text) != (200, "")
        assert unseen.status_code == 404
        is_guarded(unseen)


@pytest.mark.parametrize("role", ["viewer", None])
def test_no_spelling_leads_to_the_job_that_may_not_be_seen(
    of_one_job: None, page_api: PageApi, role: str | None
) -> None:
    for name in STRANGE:
        for path in (f"jobs/{name}", f"jobs/{name}/status", f"jobs/{MINE}/{name}"):
            answer = page_api.get(path, role=role)
            assert answer.status_code in ((401, 404) if role is None else (404,)), path
            assert SECRET not in answer.text
            json.loads(answer.text)


@pytest.mark.parametrize("name", ["log", "LOG", "Log", "log%0a", "log%20", "log%00", "%6cog", "part%2Flog"])
def test_the_log_is_for_who_may_read_the_logs_of_tasks(
    of_one_job: None, page_api: PageApi, name: str
) -> None:
    answer = page_api.get(f"jobs/{MINE}/{name}")
    assert answer.status_code == (403 if name in ("log", "%6cog") else 404)
    assert '"text"' not in answer.text


def test_what_waits_for_a_person_in_another_job_is_not_said(of_one_job: None, page_api: PageApi) -> None:
    for job in (MINE, THEIRS):
        with waiting_question(f"{job}.restore", "approve", f"Restore {job}?"):
            shown = page_api.get("jobs").text, page_api.get(f"jobs/{MINE}").text
        assert all((f"Restore {MINE}?" in text) == (job == MINE) for text in shown)
        assert not any(f"Restore {THEIRS}?" in text for text in shown)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "PROPFIND"])
def test_no_route_does_anything_but_get(jobs: None, page_api: PageApi, method: str) -> None:
    """So a page elsewhere changes nothing with a user's login; and a GET writes nothing."""
    client = page_api.client("admin")
    for path in ("jobs", f"jobs/{MINE}", f"jobs/{MINE}/status", "static/main.js"):
        assert client.request(method, f"/streambank/{path}").status_code == 405
        assert client.request("GET", f"/streambank/{path}").status_code == 200


def test_a_get_changes_nothing(jobs: None, page_api: PageApi, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow import settings
    from sqlalchemy import event

    said: list[str] = []

    def listen(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        said.append(statement.split(maxsplit=1)[0].upper())

    event.listen(settings.engine, "before_cursor_execute", listen)
    try:
        for path in ("jobs", f"jobs/{MINE}", f"jobs/{MINE}/status", "static/main.js"):
            assert page_api.get(path).status_code == 200
    finally:
        event.remove(settings.engine, "before_cursor_execute", listen)
    assert "SELECT" in said and set(said) <= {"SELECT", "PRAGMA"}


@pytest.fixture
def spoiled(jobs: None) -> Iterator[DatabaseValues]:
    values = DatabaseValues(MINE)
    yield values
    for key in (LINE, part_key("status"), part_key("log")):
        values.delete(key)


def part_of(text: str, **more: Any) -> str:
    """A head with such a text, whole by its digest."""
    data = text.encode("utf-8", "surrogatepass")
    digest = blake2b(data, digest_size=16).hexdigest()
    packed = base64.b64encode(zlib.compress(data)).decode()
    return json.dumps({"format": 1, "digest": digest, "data": packed, **more})


LINES = {
    "of another job": json.dumps(line_of(THEIRS)),
    "NaN": json.dumps({**line_of(MINE), "v": float("nan")}),
    "infinite": json.dumps({**line_of(MINE), "v": float("inf")}),
    "beyond all floats": json.dumps(line_of(MINE))[:-1] + ', "v": 1e999}',
    "endless number": json.dumps(line_of(MINE))[:-1] + f', "v": {"9" * 40_000}}}',
    "nested": "[" * 50_000,
    "half of a character": json.dumps(line_of(MINE))[:-1] + ', "v": "\\ud800"}',
    "no JSON": "<script>alert(1)</script>",
    "no object": "7",
    "empty": "",
}
PARTS = {
    "NaN": part_of('{"v": NaN}'),
    "infinite": part_of('{"v": -Infinity}'),
    "endless number": part_of('{"v": ' + "9" * 10_000 + "}"),
    "nested": part_of("[" * 100_000),
    "half of a character": part_of('"\\ud800"'),
    "a bomb": part_of('"' + "0" * (9 << 20) + '"'),
    "another digest": part_of("{}", digest="0" * 32),
    "pieces that are not there": part_of("{}", pieces=3),
    "pieces without end": part_of("{}", pieces=10**12, data=None),
    "pieces below nothing": part_of("{}", pieces=-1, data=None),
    "pieces of another part": part_of("{}", digest="../../part/log", pieces=1),
    "no base64": part_of("{}", data="%%%"),
    "no object": "7",
    "nested head": "[" * 50_000,
    "no JSON": "<script>",
}


@pytest.mark.parametrize("how", LINES)
def test_a_spoiled_line_is_named_and_stays_with_its_job(
    spoiled: DatabaseValues, page_api: PageApi, how: str
) -> None:
    spoiled.set_text(LINE, LINES[how])
    listed = page_api.get("jobs")
    found = {one["job"]: one["line"] for one in listed.json()["jobs"]}
    shown = page_api.get(f"jobs/{MINE}")
    for answer in (listed, shown):
        assert answer.status_code == 200
        is_guarded(answer)
    assert found[THEIRS]["state_why"] == SECRET, "the other job is as it was"
    assert found[MINE]["error"]["code"] == shown.json()["line"]["error"]["code"] == "page-part-damaged"


@pytest.mark.parametrize("how", PARTS)
def test_a_spoiled_part_is_named_and_stays_with_itself(
    spoiled: DatabaseValues, page_api: PageApi, how: str
) -> None:
    spoiled.set_text(part_key("status"), PARTS[how])
    answer = page_api.get(f"jobs/{MINE}/status")
    is_guarded(answer)
    if how not in ("no object", "nested head", "no JSON"):
        assert answer.json()["error"]["code"] == "page-part-damaged"
    assert answer.status_code == 200 and "error" in answer.json()
    assert page_api.get(f"jobs/{THEIRS}/status").json()["text"] == SECRET
    assert page_api.get(f"jobs/{MINE}").json()["line"]["job"] == MINE


def test_an_honest_part_of_the_same_making_is_given(spoiled: DatabaseValues, page_api: PageApi) -> None:
    spoiled.set_text(part_key("status"), part_of('{"v": "as it was kept"}'))
    assert page_api.get(f"jobs/{MINE}/status").json() == {"v": "as it was kept"}
