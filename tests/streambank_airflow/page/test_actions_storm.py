"""What a person does on the page, in a real Chromium: forms, runs that begin, questions, kinds of users."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import pytest

from tests.support.airflow_face.metadata_db import pause
from tests.support.airflow_face.page_api import page_api
from tests.support.airflow_face.page_values import ask
from tests.support.page import story as page_story
from tests.support.page.site import QUESTION, Site, jobs, keep, no_errors, site

__all__ = ["jobs", "page_api", "site"]

# Airflow answers with fields of its own that it has deprecated.
pytestmark = [
    pytest.mark.storm,
    pytest.mark.filterwarnings("default:deprecated:DeprecationWarning"),
]

ACTIONS = ("run", "savepoint", "restore", "drill", "stop", "upgrade", "compact", "rescale", "sla")
ANSWERS = {"rescale": {"partitions": "8"}}
"""What a form must be given, since it has no default."""


def runs(dag_id: str) -> list[Any]:
    """The runs of a DAG that the page has begun, as Airflow has them."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session

    with create_session() as session:
        return session.query(DagRun).filter(DagRun.dag_id == dag_id, DagRun.run_id.like("manual%")).all()


def is_paused(dag_id: str) -> bool:
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session

    with create_session() as session:
        found = session.get(DagModel, dag_id)
        assert found is not None
        return bool(found.is_paused)


def test_a_viewer_sees_and_cannot_act(jobs: Site) -> None:
    with jobs.visit("viewer") as page:
        page.open(jobs.page("flights"))
        page.shows("The job is down")
        page.shows("You may see this job")

        assert page.js("[...document.querySelectorAll('.sb-page [aria-haspopup=dialog]')].length") == 0


@pytest.mark.parametrize("role", ["user", "admin"])
def test_each_action_begins_a_run_with_its_form(jobs: Site, role: str) -> None:
    with jobs.visit(role) as page:
        page.open(jobs.page("orders"))
        page.shows("At a glance")
        page.click("More", ".sb-toolbar")
        for verb in ACTIONS:
            before = len(runs(f"orders.{verb}"))
            title = {"sla": "Check now…"}.get(verb, f"{verb.capitalize()}…")
            page.click(title, ".sb-toolbar")
            page.until(
                "document.querySelector('dialog[open] .sb-fields .sb-field') !== null", f"no form of {verb}"
            )
            for field, answer in ANSWERS.get(verb, {}).items():
                page.js(f"document.querySelector('dialog[open] [name={field}]').focus()")
                page.type(answer)
            page.js("document.querySelector('dialog[open] form').requestSubmit()")
            page.shows("The run has begun.", f"{verb} is refused")
            assert len(runs(f"orders.{verb}")) == before + 1
            page.press("Escape")
            page.until("document.querySelector('dialog[open]') === null")
        no_errors(page)


def test_restore_this_one_is_filled_in(jobs: Site) -> None:
    savepoint = page_story.savepoint_id(3)
    with jobs.visit("admin") as page:
        page.open(jobs.page("orders", "savepoints", savepoint))
        page.click("Restore this savepoint…")
        page.until("document.querySelector('dialog[open] [name=savepoint]') !== null")
        assert page.js("document.querySelector('dialog[open] [name=savepoint]').value") == savepoint
        page.click("Show the plan", "dialog")
        page.shows("The run has begun.")
        (run,) = [one for one in runs("orders.restore") if one.conf["savepoint"] == savepoint]

        assert run.conf["start"] is True and run.conf["note"] is None
        link = page.js("document.querySelector('dialog[open] a').href")
        assert f"/dags/orders.restore/runs/{run.run_id[:15]}" in link


def test_what_is_wrong_in_a_form_is_said_at_its_field(jobs: Site) -> None:
    with jobs.visit("admin") as page:
        page.open(jobs.page("orders"))
        page.click("Restore…", ".sb-toolbar")
        page.until("document.querySelector('dialog[open] [name=savepoint]') !== null")
        page.js("document.querySelector('dialog[open] [name=savepoint]').select()")
        page.type(" ")
        page.press("Tab")
        page.js(
            "(() => { const one = document.querySelector('dialog[open] [name=savepoint]'); one.select(); })()"
        )
        page.js("document.querySelector('dialog[open] [name=savepoint]').focus()")
        page.call("Input.dispatchKeyEvent", type="keyDown", key="Backspace", windowsVirtualKeyCode=8)
        before = len(runs("orders.restore"))
        page.click("Show the plan", "dialog")
        page.shows("This needs an answer.")

        assert page.js("document.activeElement.name") == "savepoint"
        assert len(runs("orders.restore")) == before


ANOTHER_BODY = """
(() => {
  const ask = window.fetch;
  const body = JSON.stringify({ logical_date: null, conf: { batches: "many" } });
  window.fetch = (url, more) => ask(url, more && more.method === "POST" ? { ...more, body } : more);
})()
"""


def test_a_refusal_of_airflow_is_shown_in_words(jobs: Site) -> None:
    """The form lets it through; Airflow checks it again."""
    with jobs.visit("admin") as page:
        page.open(jobs.page("orders"))
        page.click("Drill…", ".sb-toolbar")
        page.until("document.querySelector('dialog[open] [name=batches]') !== null")
        page.js(ANOTHER_BODY)
        page.js("document.querySelector('dialog[open] form').requestSubmit()")
        page.until("document.querySelector('dialog[open] .sb-failed') !== null")

        assert "batches" in page.text() and "many" in page.text()


def test_a_paused_run_is_unpaused_by_the_one_button(jobs: Site) -> None:
    with jobs.visit("admin") as page:
        page.open(jobs.page("flights"))
        page.shows("The job is down")
        page.click("Run…", ".sb-banner")
        page.shows("Unpause")
        page.js("document.querySelector('dialog[open] form').requestSubmit()")
        page.shows("The run has begun.")

    assert not is_paused("flights.run")


def test_a_restore_unpauses_only_what_is_ticked(jobs: Site) -> None:
    """A box that is ticked already would start a broken job before a person has approved the plan."""
    pause("payments.run", True)
    box = "document.querySelector('dialog[open] .sb-wake input')"
    with jobs.visit("admin") as page:
        page.open(jobs.page("payments"))
        for ticked in (False, True):
            page.click("Restore…", ".sb-toolbar")
            page.shows("Runs of it that are queued begin at once.")
            assert page.js(f"{box}.checked") is False
            page.js("document.querySelector('dialog[open] [name=start]').click()")
            page.until(f"{box} === null", "a restore that starts nothing hands nothing back")
            page.js("document.querySelector('dialog[open] [name=start]').click()")
            page.until(f"{box} !== null")
            if ticked:
                page.js(f"{box}.click()")
            page.click("Show the plan", "dialog")
            page.shows("The run has begun.")
            assert ("is paused, so the run stops" in page.text()) is not ticked
            assert is_paused("payments.run") is not ticked
            page.press("Escape")
            page.until("document.querySelector('dialog[open]') === null")


LOST_ANSWER = """
(() => {
  const ask = window.fetch;
  window.fetch = async (url, more) => {
    const answer = await ask(url, more);
    if (!more || more.method !== "POST") return answer;
    window.fetch = ask;
    throw new TypeError("the connection was lost");
  };
})()
"""


def test_a_second_try_begins_no_second_run(jobs: Site) -> None:
    before = len(runs("clicks.drill"))
    with jobs.visit("admin") as page:
        page.open(jobs.page("clicks"))
        page.click("Drill…", ".sb-toolbar")
        page.until("document.querySelector('dialog[open] [name=batches]') !== null")
        page.js(LOST_ANSWER)
        page.js("document.querySelector('dialog[open] form').requestSubmit()")
        page.shows("Airflow cannot be reached.")
        page.js("document.querySelector('dialog[open] form').requestSubmit()")
        page.shows("The run has begun.")

    assert len(runs("clicks.drill")) == before + 1


def test_text_that_is_selected_over_the_edge_closes_no_form(jobs: Site) -> None:
    with jobs.visit("admin") as page:
        page.open(jobs.page("orders"))
        page.click("Restore…", ".sb-toolbar")
        page.until("document.querySelector('dialog[open] [name=savepoint]') !== null")
        x, y = page.js(
            "(() => { const at = document.querySelector('dialog[open] h2').getBoundingClientRect();"
            " return [at.x + 5, at.y + 5]; })()"
        )
        mouse = {"button": "left", "clickCount": 1}
        page.call("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, **mouse)
        page.call("Input.dispatchMouseEvent", type="mouseReleased", x=5, y=y, **mouse)
        assert page.js("document.querySelector('dialog[open]') !== null")
        for kind in ("mousePressed", "mouseReleased"):
            page.call("Input.dispatchMouseEvent", type=kind, x=5, y=y, **mouse)
        page.until("document.querySelector('dialog[open]') === null")


def test_of_several_queries_a_savepoint_is_of_one(jobs: Site) -> None:
    """No drill takes it, and what a restore repeats is reckoned from its own query."""
    savepoint = page_story.savepoint_id(3)
    with jobs.visit("admin") as page:
        page.open(jobs.page("ledger", "savepoints", savepoint))
        page.shows("1,317 batches after it are processed again")
        assert "Drill this savepoint" not in page.text()
        page.click("Restore this savepoint…")
        page.until("document.querySelector('dialog[open] [name=savepoint]') !== null")
        filled = page.js(
            "['query', 'savepoint'].map((one) => document.querySelector(`dialog[open] [name=${one}]`).value)"
        )
        assert filled == ["hourly", savepoint]


def test_who_may_not_read_questions_does_not_wait_for_one(
    jobs: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity

    manager, refused = type(get_auth_manager()), []
    allowed = manager.is_authorized_dag

    def without_questions(self: Any, *, access_entity: Any = None, **more: Any) -> bool:
        if access_entity == DagAccessEntity.HITL_DETAIL:
            refused.append(more)
            return False
        return bool(allowed(self, access_entity=access_entity, **more))

    monkeypatch.setattr(manager, "is_authorized_dag", without_questions)
    with jobs.visit("user") as page:
        page.open(jobs.page("orders"))
        page.click("Restore…", ".sb-toolbar")
        page.until("document.querySelector('dialog[open] [name=savepoint]') !== null")
        page.click("Show the plan", "dialog")
        page.shows("You may not read the questions of orders.restore")

        said = page.js("document.querySelector('dialog[open]').innerText")
        assert "the question appears here" not in said and "Open its questions" not in said
        assert refused


def test_who_may_only_read_a_question_is_not_asked_to_answer(jobs: Site) -> None:
    keep("clicks", page_story.line("clicks"), page_story.parts())
    with jobs.visit("viewer") as page:
        page.open(jobs.page("clicks"))
        page.shows(QUESTION)
        banner = page.js("document.querySelector('.sb-banner').innerText")

        assert "Read the question" in banner and "Read and answer" not in banner
        assert "ask a person who may" in banner


def test_by_keyboard_alone(jobs: Site) -> None:
    with jobs.visit("admin") as page:
        page.open(jobs.page("orders"))
        page.shows("At a glance")
        reached = []
        for _ in range(60):
            page.press("Tab")
            reached.append(page.focus())
            if reached[-1] == "Savepoint…":
                break
        assert reached[-1] == "Savepoint…", reached
        ring = page.js("getComputedStyle(document.activeElement).outlineStyle")
        assert ring != "none", "the focus can be seen"
        page.press("Enter")
        page.until("document.querySelector('dialog[open] .sb-fields .sb-field') !== null")
        for _ in range(30):
            page.press("Tab")
            inside = page.js(
                "document.activeElement === document.body || !!document.activeElement.closest('dialog[open]')"
            )
            assert inside, "the focus stays in the dialog"
        page.press("Escape")
        page.until("document.querySelector('dialog[open]') === null")
        assert page.focus() == "Savepoint…", "the focus goes back to where it was"


def test_a_question_that_waits_has_a_link(jobs: Site) -> None:
    # A line that is five minutes old, as after the tests before this one, would be worse than the question.
    keep("clicks", page_story.line("clicks"), page_story.parts())
    with jobs.visit("admin") as page:
        page.open(jobs.page("clicks"))
        page.shows(QUESTION)
        link = page.js("document.querySelector('.sb-banner a.sb-primary').href")

        assert link.startswith(f"{jobs.url}/dags/clicks.restore/runs/")


def test_the_question_of_a_run_appears_where_the_run_was_begun(jobs: Site) -> None:
    with jobs.visit("admin") as page:
        page.open(jobs.page("ledger"))
        page.click("Restore…", ".sb-toolbar")
        page.until("document.querySelector('dialog[open] [name=savepoint]') !== null")
        page.click("Show the plan", "dialog")
        page.shows("The run has begun.")
        begun = page.js("document.querySelector('dialog[open] a').innerText").removeprefix("Open the run ")
        assert page.js("document.querySelector('dialog[open] a.sb-primary')") is None
        ask("ledger.restore", begun, "approve", "Restore ledger?")
        page.shows("It waits for an answer: Restore ledger?")
        link = page.js("document.querySelector('dialog[open] a.sb-primary').href")

        assert unquote(link) == f"{jobs.url}/dags/ledger.restore/runs/{begun}/tasks/approve/required_actions"
        no_errors(page)
