"""The page in a real Chromium, in the UI of Airflow's own API server: what each view shows, and to whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank_airflow.operators.on_savepoint import page_url
from tests.support.airflow_face.metadata_db import delete_import_errors, write_import_error
from tests.support.airflow_face.page_api import page_api, write_job
from tests.support.airflow_face.releases import BEFORE_3_3
from tests.support.page import story as page_story
from tests.support.page.site import FEW, Site, jobs, keep, many, no_errors, seen_in_list, site

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
WIDE = "document.querySelector('.sb-page').scrollWidth - document.querySelector('.sb-page').clientWidth"


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


def test_where_only_the_storage_helps_no_button_leads(jobs: Site) -> None:
    with jobs.visit("admin") as page:
        page.open(jobs.page("lake"))
        page.shows("that is done outside of Airflow, and no button here does it")
        assert page.js("document.querySelector('.sb-banner [aria-haspopup=dialog]')") is None
        assert "Newest verified savepoint\nnot known" in page.text()
        page.open(jobs.page())
        page.shows("lake")
        assert [seen_in_list(page, "lake", one) for one in ("Savepoint", "Drill")] == [
            "not known",
            "not known",
        ]


def test_the_list_and_the_job_say_the_same_of_objectives(jobs: Site) -> None:
    parts = page_story.parts()
    verdicts = [one for one in parts["verdicts"]["verdicts"] if one["level"] in ("ok", "unknown")]
    kept = {**parts, "verdicts": {**parts["verdicts"], "verdicts": verdicts}}
    keep("quiet", page_story.line("quiet", level="unknown", objectives={"ok": 6, "unknown": 1}), kept)
    with jobs.visit("viewer") as page:
        page.open(jobs.page())
        page.shows("quiet")
        assert seen_in_list(page, "quiet", "Objectives") == "6 kept\n1 without data"
        page.open(jobs.page("quiet"))
        page.shows("6 kept, 1 without data")
    keep("quiet", page_story.jobs()["quiet"], page_story.parts())


def test_a_restart_is_news_for_a_while(jobs: Site) -> None:
    news = {"at": page_story.ago(130), "failed_at": page_story.ago(190), "why": "its driver died"}
    with jobs.visit("viewer") as page:
        keep("quiet", page_story.line("quiet", restarted=news), page_story.parts())
        page.open(jobs.page())
        page.shows("Restarted 2 min ago")
        row = ".sb-row:has(.sb-job-link[href$='/quiet'])"
        assert page.js(f"document.querySelector(`{row}`).classList.contains('sb-row-ok')")
        page.open(jobs.page("quiet"))
        page.shows("All is well")
        page.shows("Restarted 2 min ago. Reason: its driver died. See the events")
        # What needs a person stands first, and does not hide it.
        drill = {"at": page_story.ago(600), "passed": False, "step": None}
        keep("quiet", page_story.line("quiet", restarted=news, drill=drill), page_story.parts())
        page.open(jobs.page())
        page.shows("The last drill failed")
        reasons = page.js(f"[...document.querySelectorAll(`{row} .sb-reason`)].map((one) => one.innerText)")
        assert reasons[1].startswith("Restarted ") and "more" not in reasons[0]
        page.open(jobs.page("quiet"))
        page.shows("The last drill failed")
        page.shows("Reason: its driver died. See the events")
        keep("quiet", page_story.line("quiet", restarted={**news, "at": page_story.ago(3600)}), {})
        page.open(jobs.page())
        page.shows("quiet")
        assert "Restarted" not in page.text()
    keep("quiet", page_story.jobs()["quiet"], page_story.parts())


def test_what_comes_from_storage_is_text(jobs: Site) -> None:
    with jobs.visit("admin") as page:
        for path in ("imports", "orders/log"):
            page.open(jobs.page(path))
            page.shows("<script>")
            assert page.js("document.title") != "taken over"
            assert page.js("document.querySelectorAll('.sb-root img, .sb-root script').length") == 0


def test_an_anonymous_sees_nothing(jobs: Site) -> None:
    with jobs.visit(None) as page:
        page.open(jobs.page("orders"))
        page.until("location.pathname.includes('login') || document.body.innerText.includes('signed out')")

        assert "48,297" not in page.text()


def test_the_link_of_a_task_leads_to_its_savepoint(jobs: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", jobs.url)
    with jobs.visit("viewer") as page:
        page.open(page_url("orders/main", page_story.savepoint_id(3)))
        page.shows("What a restore would do")
        page.open(page_url("orders"))
        page.shows("At a glance")


def test_what_the_next_expiry_deletes_is_not_kept(jobs: Site) -> None:
    with jobs.visit("viewer") as page:
        page.open(jobs.page("orders", "savepoints", page_story.savepoint_id(30)))
        page.shows("goes with the next expiry")


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
        assert page.js(WIDE.replace(".sb-page", "html")) <= 0


def test_on_a_telephone_more_than_one_job_is_on_the_screen(jobs: Site) -> None:
    with jobs.visit("viewer", width=400) as page:
        page.open(jobs.page())
        page.shows("sessions")
        heights = page.js(
            "[...document.querySelectorAll('.sb-row:not(.sb-row-head)')].map((one) => one.scrollHeight)"
        )

        assert max(heights) < 450


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


def test_where_restarts_were_given_up_the_log_is_read_before_anything_is_restored(jobs: Site) -> None:
    """What ended the drivers may be the source, and then no restore helps."""
    with jobs.visit("admin") as page:
        page.open(jobs.page("sessions"))
        page.shows("Restarts were given up")
        buttons = page.js(
            "[...document.querySelectorAll('.sb-banner-act .sb-button')].map((one) => one.innerText)"
        )
        assert buttons == ["Read the log", "Restore…"]
        assert page.js("document.querySelector('.sb-banner .sb-primary').innerText") == buttons[0]
        page.click("Read the log")
        page.shows("The driver's log from its last exception on")
        no_errors(page)


@pytest.mark.parametrize("paused", [False, True])
def test_the_list_says_that_a_line_is_old_whatever_else_is_wrong(jobs: Site, paused: bool) -> None:
    """The run DAG of flights is paused; that of quiet is not."""
    job = "flights" if paused else "quiet"
    long_ago = page_story.ago(4 * page_story.HOUR)
    more = {"state": "failed", "down_since": long_ago, "at": page_story.ago(3 * page_story.HOUR)}
    keep(job, {**page_story.jobs()[job], **more}, page_story.parts())
    with jobs.visit("viewer") as page:
        page.open(jobs.page())
        page.shows(job)
        row = f"document.querySelector('.sb-row:has(a[href$={job}])')"
        page.until(f"{row}.innerText.includes('The job is down')")
        assert (
            page.js(f"{row}.querySelector('.sb-reason.sb-text-bad:last-child').innerText") == "seen 3 h ago"
        )
    keep(job, page_story.jobs()[job], page_story.parts())


def test_steps_of_drills_and_restores_are_in_words(jobs: Site) -> None:
    with jobs.visit("viewer") as page:
        page.open(jobs.page("orders", "recovery"))
        page.shows("failed at “Compare with the live query”")
        ended = page.js(
            "[...document.querySelectorAll('.sb-runs .sb-pill')].map((one) => one.innerText.trim())"
        )
        assert [one.split()[-1] for one in ended] == ["passed", "query”", "restored"], ended
        no_errors(page)


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
            for number in range(100):
                write_import_error(f"more-{number}.py", "SyntaxError: invalid syntax")
            page.open(jobs.page())
            page.shows("Airflow cannot import at least ")
            count = int(page.text().split("Airflow cannot import at least ")[1].split()[0])
            assert 90 < count <= 100, "before Airflow 3.3 a file takes the place of each of its DAGs"
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
