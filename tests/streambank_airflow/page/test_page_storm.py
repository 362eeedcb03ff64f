"""The page in a real Chromium, in the UI of Airflow's own API server: views, actions, kinds of users."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from demo.pictures.chromium import Chromium
from streambank_airflow.operators.on_savepoint import page_url
from tests.support.airflow_face.metadata_db import delete_import_errors, pause, write_import_error
from tests.support.airflow_face.page_api import page_api, write_job
from tests.support.airflow_face.page_values import ask
from tests.support.airflow_face.releases import BEFORE_3_3
from tests.support.page import story as page_story
from tests.support.page.site import FEW, QUESTION, Site, jobs, keep, many, site

__all__ = ["jobs", "page_api", "site"]

# Airflow answers with fields of its own that it has deprecated.
pytestmark = [
    pytest.mark.storm,
    pytest.mark.filterwarnings("default:deprecated:DeprecationWarning"),
]

VIEWS = {
    "": "At a glance",
    "savepoints": "Time line",
    f"savepoints/{page_story.savepoint_id(0)}": "s3://standby/savepoints",
    f"savepoints/{page_story.savepoint_id(1)}": "What a restore would do",
    "events": "Restored",
    "log": "Timed out waiting for a node assignment",
    "recovery": "Newer savepoints that were passed over",
    "repository": "s3://lake/savepoints",
}
ACTIONS = ("run", "savepoint", "restore", "drill", "stop", "upgrade", "compact", "rescale", "sla")
ANSWERS = {"rescale": {"partitions": "8"}}
"""What a form must be given, since it has no default."""
WIDE = "document.querySelector('.sb-page').scrollWidth - document.querySelector('.sb-page').clientWidth"


def runs(dag_id: str) -> list[Any]:
    """The runs of a DAG that the page has begun, as Airflow has them."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session

    with create_session() as session:
        return session.query(DagRun).filter(DagRun.dag_id == dag_id, DagRun.run_id.like("manual%")).all()


def is_paused(dag_id: str) -> bool:
    """Whether Airflow has paused a DAG."""
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session

    with create_session() as session:
        found = session.get(DagModel, dag_id)
        assert found is not None
        return bool(found.is_paused)


def no_errors(page: Chromium) -> None:
    """Nothing of the page's own has failed."""
    assert not [one for one in page.errors if "streambank" in one], page.errors


def test_the_list_says_what_is_wrong_first(jobs: Site) -> None:
    with jobs.visit("viewer") as page:
        page.open(jobs.page())
        page.shows("sessions")
        order = page.js("[...document.querySelectorAll('.sb-job-link')].map((one) => one.textContent)")
        text = page.text()

        assert set(order) >= {*page_story.jobs(), "newcomer"}
        assert set(order[:5]) >= {"flights", "sessions", "lake"}
        assert order.index("clicks") < order.index("payments"), (
            "what waits for a person is before what is well"
        )
        for words in (
            "The job is down",
            "Restarts were given up",
            "cannot be read",
            "run is paused",
            "no watcher",
        ):
            assert words in text
        no_errors(page)


@pytest.mark.parametrize("path", VIEWS)
def test_each_view_has_an_address_of_its_own(jobs: Site, path: str) -> None:
    with jobs.visit("viewer") as page:
        page.open(jobs.page("orders", path) if path else jobs.page("orders"))
        page.shows(VIEWS[path])
        page.reload()
        page.shows(VIEWS[path])
        no_errors(page)


def test_one_goes_through_the_page_and_back(jobs: Site) -> None:
    with jobs.visit("viewer") as page:
        page.open(jobs.page())
        page.click("orders")
        page.shows("At a glance")
        page.click("Savepoints", ".sb-tabs")
        page.shows("Time line")
        page.js("history.back()")
        page.shows("At a glance")
        page.js("history.back()")
        page.shows("Need attention")
        assert page.js("location.pathname") == "/plugin/streambank"
        page.js("history.forward()")
        page.shows("At a glance")
        no_errors(page)


def test_plots_are_drawn_with_marks_of_what_happened(jobs: Site) -> None:
    with jobs.visit("viewer") as page:
        page.open(jobs.page("orders"))
        page.until("document.querySelectorAll('.sb-plot canvas').length === 6")
        page.shows("Restored")
        drawn = page.js(
            "[...document.querySelectorAll('.sb-plot canvas')].every((one) =>"
            " new Set(one.getContext('2d').getImageData(0, 0, one.width, one.height).data).size > 8)"
        )

        assert drawn, "each plot has more than a background"
        assert "expected by" in page.text()
        no_errors(page)


def test_what_comes_from_storage_is_text(jobs: Site) -> None:
    with jobs.visit("admin") as page:
        for path in ("imports", "orders/log"):
            page.open(jobs.page(path))
            page.shows("<script>")
            assert page.js("document.title") != "taken over"
            assert page.js("document.querySelectorAll('.sb-root img, .sb-root script').length") == 0


def test_a_viewer_sees_and_cannot_act(jobs: Site) -> None:
    with jobs.visit("viewer") as page:
        page.open(jobs.page("flights"))
        page.shows("The job is down")
        page.shows("You may see this job")

        assert page.js("[...document.querySelectorAll('.sb-page [aria-haspopup=dialog]')].length") == 0


def test_an_anonymous_sees_nothing(jobs: Site) -> None:
    with jobs.visit(None) as page:
        page.open(jobs.page("orders"))
        page.until("location.pathname.includes('login') || document.body.innerText.includes('signed out')")

        assert "48,297" not in page.text()


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


def test_the_link_of_a_task_leads_to_its_savepoint(jobs: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", jobs.url)
    with jobs.visit("viewer") as page:
        page.open(page_url("orders/main", page_story.savepoint_id(3)))
        page.shows("What a restore would do")
        page.open(page_url("orders"))
        page.shows("At a glance")


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


def test_what_the_next_expiry_deletes_is_not_kept(jobs: Site) -> None:
    with jobs.visit("viewer") as page:
        page.open(jobs.page("orders", "savepoints", page_story.savepoint_id(30)))
        page.shows("goes with the next expiry")


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


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_can_be_read_in_both_themes(jobs: Site, theme: str) -> None:
    with jobs.visit("viewer") as page:
        page.theme(theme)
        page.open(jobs.page())
        page.shows("sessions")
        page.until(f"document.documentElement.classList.contains('{theme}')")
        contrast = page.js(CONTRAST)

        assert min(contrast.values()) >= 4.5, contrast


CONTRAST = """
(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colours) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const one of colours) { canvas.fillStyle = one; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (colour) => colour.map((one) => one / 255)
    .map((one) => (one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4))
    .reduce((sum, one, index) => sum + one * [0.2126, 0.7152, 0.0722][index], 0);
  const found = {};
  for (const name of [".sb-job-link", ".sb-muted", ".sb-text-bad", ".sb-text-warn", ".sb-pill.sb-bad",
                      ".sb-pill.sb-ok", ".sb-pill.sb-off", ".sb-chip.sb-on", "small"]) {
    const one = document.querySelector(`.sb-root ${name}`);
    if (!one) continue;
    const behind = [];
    for (let at = one; at; at = at.parentElement) behind.unshift(getComputedStyle(at).backgroundColor);
    const words = light(rgb([...behind, getComputedStyle(one).color]));
    const [a, b] = [words, light(rgb(behind))].sort((x, y) => y - x);
    found[name] = (a + 0.05) / (b + 0.05);
  }
  return found;
})()
"""


@pytest.mark.parametrize("path", ["", "orders", "flights", *(f"orders/{view}" for view in VIEWS if view)])
def test_a_narrow_window_needs_no_scrolling_to_the_side(jobs: Site, path: str) -> None:
    with jobs.visit("admin", width=400) as page:
        page.open(jobs.page(path) if path else jobs.page())
        page.until("document.querySelector('.sb-root') && !document.querySelector('.sb-loading')")
        page.until("document.querySelector('.sb-root').innerText.length > 200")

        assert page.js(WIDE) <= 0


def test_a_thousand_jobs_stay_smooth(jobs: Site) -> None:
    with many(1000), jobs.visit("viewer") as page:
        page.open(jobs.page())
        page.until("document.querySelectorAll('.sb-row').length > 1000")
        page.js("document.querySelector('input[type=search]').focus()")
        page.type("job-0999")
        page.until("document.querySelectorAll('.sb-job-link').length === 1")
        page.js("document.querySelector('input[type=search]').select()")
        page.press("Tab")
        page.open(jobs.page() + "?show=trouble")
        page.shows("sessions")

        assert page.js("document.querySelectorAll('.sb-job-link').length") < 12
        no_errors(page)


def test_broken_storage_is_said_and_breaks_nothing(jobs: Site) -> None:
    with jobs.visit("viewer") as page:
        page.open(jobs.page("lake"))
        page.shows("cannot be read")
        page.shows("Check the network and the service.")
        for view in ("savepoints", "events", "recovery", "repository", "log"):
            page.open(jobs.page("lake", view))
            page.shows("s3://lake/savepoints does not answer" if view != "log" else "cannot be read")
        no_errors(page)


def test_what_is_old_is_said_in_red(jobs: Site) -> None:
    with jobs.visit("viewer") as page:
        page.open(jobs.page("quiet"))
        page.shows("What is shown is ")
        page.shows(" min old")


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


def test_a_watcher_that_is_due_is_not_missed(jobs: Site) -> None:
    """After a start or a restore the next watcher comes within a minute or so: that needs no person."""
    due = {"expected": True, "watched": False, "by": None, "seen_at": None, "why": ""}
    keep("clicks", page_story.line("clicks", state="starting", watch=due), page_story.parts())
    with jobs.visit("viewer") as page:
        for path in ((), ("clicks",)):
            page.open(jobs.page(*path))
            page.shows("not yet")
            row = ".sb-page" if path else ".sb-row:has(a[href$=clicks])"
            assert "Nothing watches" not in page.js(f"document.querySelector('{row}').innerText")
    keep("clicks", page_story.line("clicks"), page_story.parts())


def test_what_is_lost_is_lost_since_then_and_is_not_run(jobs: Site) -> None:
    """Nor is a second restore begun where the first one waits for an answer."""
    ended = {
        "expected": True,
        "watched": False,
        "by": "run",
        "seen_at": page_story.ago(12),
        "why": "It ended.",
    }
    lost = {"state": "checkpoint-lost", "down_since": page_story.ago(14), "watch": ended}
    with jobs.visit("admin") as page:
        for job, button in (("orders", "Restore…"), ("clicks", "Read and answer")):
            keep(job, page_story.line(job, **lost), page_story.parts())
            page.open(jobs.page(job))
            page.shows("The job's checkpoint is gone")
            head, banner = (
                page.js(f"document.querySelector('{one}').innerText") for one in (".sb-head", ".sb-banner")
            )
            assert " s, but it should run" in head, "its driver began a day ago"
            assert page.js("document.querySelector('.sb-banner .sb-primary').innerText") == button
            assert "Run…" not in banner
            keep(job, page_story.jobs()[job], page_story.parts())


def test_without_its_records_it_is_not_known_whether_a_job_needs_a_watcher(jobs: Site) -> None:
    none = {"expected": False, "watched": False, "by": None, "seen_at": None, "why": ""}
    lost = {"state": "repository-lost", "desired": None, "watch": none}
    keep("orders", page_story.line("orders", **lost), page_story.parts())
    with jobs.visit("admin") as page:
        page.open(jobs.page("orders"))
        page.shows("The job's records are lost")
        assert "not needed" not in page.text()
        assert "begins new records from a savepoint" in page.text()
    keep("orders", page_story.jobs()["orders"], page_story.parts())


NO_ANSWER = """
(() => {
  const ask = window.fetch;
  window.asked = window.aborted = 0;
  window.fetch = (url, more) => {
    if (!String(url).endsWith("/streambank/jobs")) return ask(url, more);
    window.asked += 1;
    return new Promise((_, refuse) => more.signal.addEventListener("abort", () => {
      window.aborted += 1;
      refuse(new DOMException("aborted", "AbortError"));
    }));
  };
})()
"""
LOOK = "document.dispatchEvent(new Event('visibilitychange'))"


def test_an_answer_that_takes_long_is_waited_for(jobs: Site) -> None:
    with jobs.visit("viewer") as page:
        page.open(jobs.page())
        page.shows("sessions")
        page.js(NO_ANSWER)
        page.until(f"{LOOK} && window.asked > 0")
        for _ in range(3):
            page.js(LOOK)

        assert page.js("[window.asked, window.aborted]") == [1, 0]


def test_what_an_earlier_airflow_has_left_does_not_sign_out(jobs: Site) -> None:
    with jobs.visit("viewer") as page:
        page.open(jobs.page())
        page.shows("sessions")
        page.js("localStorage.setItem('token', 'of another release')")
        page.reload()
        page.shows("sessions")


def test_home_has_a_card_and_a_dag_a_tab(jobs: Site) -> None:
    with jobs.visit("viewer") as page:
        page.open(jobs.url)
        page.until("document.querySelector('.sb-home-list') !== null", "no card on Home")
        assert "sessions" in page.js("document.querySelector('.sb-home').innerText")
        page.open(f"{jobs.url}/dags/orders.restore/plugin/streambank-job")
        page.shows("At a glance")
        page.click("Savepoints", ".sb-tabs")
        page.shows("Time line")
        assert page.js("location.pathname").startswith(
            "/dags/orders.restore/plugin/streambank-job/savepoints"
        )
        no_errors(page)


def test_the_navigation_leads_to_the_page(jobs: Site) -> None:
    """At the top on Airflow 3.3, below Browse before that."""
    with jobs.visit("viewer") as page:
        page.open(jobs.url)
        if BEFORE_3_3:
            page.click("Browse")
        page.click("Streambank")
        page.shows("sessions")

        assert page.js("location.pathname") == "/plugin/streambank"
        no_errors(page)


CANNOT_IMPORT = """Traceback (most recent call last):
  File "/opt/airflow/dags/streams.py", line 5, in <module>
    globals().update(build_dags("/opt/airflow/dags/streaming_jobs.toml"))
streambank.core.errors.InputError: [jobs.typo] has no application.
"""


def test_a_dag_file_that_cannot_be_imported_is_said(jobs: Site, tmp_path: Path) -> None:
    """Also of a job of which nothing was ever kept, and of a file whose jobs Airflow does not know."""
    write_job(tmp_path, "typo", only=FEW)
    write_import_error("streams.py", CANNOT_IMPORT, *(f"typo.{verb}" for verb in FEW))
    write_import_error("other.py", "SyntaxError: invalid syntax")
    try:
        with jobs.visit("admin") as page:
            page.open(jobs.page())
            page.shows("Airflow cannot import 2 DAG files: streams.py, other.py.")
            page.shows("The DAG file of the job cannot be imported")
            page.open(jobs.page("typo"))
            page.shows(
                "streams.py: streambank.core.errors.InputError: [jobs.typo] has no application. Airflow"
            )
            page.shows("Airflow runs none of the job's DAGs")
            page.click("See Airflow's Home")
            page.until("location.pathname === '/'")
            page.shows("Import Error")
            no_errors(page)
    finally:
        delete_import_errors()


def test_what_goes_away_while_one_watches_is_said(jobs: Site) -> None:
    """The last answer stays, and the page says that it is the last one."""
    with jobs.visit("viewer") as page:
        page.open(jobs.page())
        page.shows("sessions")
        page.call("Network.setBlockedURLs", urls=["*/streambank/jobs*"])
        page.js("document.dispatchEvent(new Event('visibilitychange'))")
        page.shows("Airflow cannot be reached.")

        assert "sessions" in page.text()
