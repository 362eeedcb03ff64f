"""The page in a real Chromium with FAB's auth manager: users whose roles have rights to one job, or none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from demo.pictures.chromium import Chromium
from tests.support.airflow_face.fab_rights import PASSWORD, Served, served_with_fab
from tests.support.airflow_face.releases import needs_3_3
from tests.support.page import story as page_story
from tests.support.page.site import visit

pytestmark = [pytest.mark.storm, needs_3_3]

PAGE = "plugin/streambank"
ACTIONS = "document.querySelectorAll('.sb-page [aria-haspopup=dialog]').length"
LISTED = "[...document.querySelectorAll('.sb-job-link')].map((one) => one.textContent)"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served_with_fab(Path(tmp_path_factory.mktemp("fab"))) as found:
        yield found


@contextmanager
def seen_by(user: str | None, served: Served, folder: Path) -> Iterator[Chromium]:
    """A browser of a user, or of a visitor who is not signed in."""
    with visit(served.url, folder, None if user is None else served.tokens[user]) as page:
        yield page


def test_an_anonymous_is_sent_to_the_login_and_back(served: Served, tmp_path: Path) -> None:
    with seen_by(None, served, tmp_path) as page:
        page.open(f"{served.url}/{PAGE}/flights")
        page.until("!!document.querySelector('input[name=username]')", "there is no form of a login")
        assert "48,297" not in page.text()

        page.js("document.querySelector('input[name=username]').focus()")
        page.type("payer")
        page.js("document.querySelector('input[name=password]').focus()")
        page.type(PASSWORD)
        page.press("Enter")
        page.until("!location.pathname.startsWith('/auth/login')", "the login is refused")
        page.open(f"{served.url}/{PAGE}/flights")
        page.shows("At a glance")


@pytest.mark.parametrize("user", ["payer", "reader"])
def test_a_role_of_one_job_sees_that_job_alone(served: Served, tmp_path: Path, user: str) -> None:
    savepoint = page_story.savepoint_id(3)
    with seen_by(user, served, tmp_path) as page:
        page.open(f"{served.url}/{PAGE}")
        page.shows("flights")
        assert page.js(LISTED) == ["flights"]
        for path in ("orders", "orders/events", f"orders/savepoints/{savepoint}"):
            page.open(f"{served.url}/{PAGE}/{path}")
            page.shows("There is no job orders that you may see.")
        page.open(f"{served.url}/{PAGE}/flights/savepoints/{savepoint}")
        page.shows("What a restore would do")
        page.open(f"{served.url}/{PAGE}/flights/log")
        page.shows("You may not read the logs of this job's tasks.")
        page.open(served.url)
        page.shows("All 1 job")
        page.open(f"{served.url}/dags/flights.restore/plugin/streambank-job")
        page.shows("At a glance")


def test_who_may_not_trigger_has_no_button_and_is_given_the_reason(served: Served, tmp_path: Path) -> None:
    with seen_by("reader", served, tmp_path) as page:
        page.open(f"{served.url}/{PAGE}/flights")
        page.shows("You may see this job. Its actions need the right to trigger its DAGs.")

        assert page.js(ACTIONS) == 0


@pytest.mark.parametrize("user", ["payer", "op", "admin"])
def test_who_may_trigger_begins_a_run_with_a_form(served: Served, tmp_path: Path, user: str) -> None:
    with seen_by(user, served, tmp_path) as page:
        page.open(f"{served.url}/{PAGE}/flights")
        page.click("Savepoint…", ".sb-toolbar")
        page.until("document.querySelector('dialog[open] .sb-fields .sb-field') !== null")
        page.js("document.querySelector('dialog[open] form').requestSubmit()")
        page.shows("The run has begun.")


def test_without_the_right_to_read_plugins_airflow_s_ui_has_no_page(served: Served, tmp_path: Path) -> None:
    """FAB gives its roles Viewer and User no such right: docs/howto/page.md says how to."""
    with seen_by("viewer", served, tmp_path) as page:
        page.open(served.url)
        page.shows("Home")
        page.open(f"{served.url}/{PAGE}")
        page.until("document.body.innerText.length > 20")

        assert page.js("document.querySelector('.sb-root')") is None
