"""A night whose page was not read says nothing about the page: it fails.

What starts a browser is a part of the storm: `make test` needs Python, Java, make and git only.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any, cast

import pytest

from demo.pictures.chromium import Chromium, chromium
from tests.nights.watching import CARD, JOB, LIST, OpenPage, watched
from tests.support.serving import Quiet, serving
from tests.support.waiting import poll

VIEWS = {
    "/plugin/streambank": '<p class="sb-row"><a class="sb-job-link">orders</a></p>',
    "/": '<section class="sb-home"></section>',
    "/plugin/streambank/orders": '<main class="sb-page"><p class="sb-summary"></p></main>',
}
ADDRESSES = dict(zip((LIST, CARD, JOB), VIEWS, strict=True))

in_a_browser = pytest.mark.storm


@contextmanager
def served(views: dict[str, str]) -> Iterator[str]:
    """A server with some views; its address."""

    class Handler(Quiet):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(views.get(self.path, "<p>It is broken.</p>").encode())

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as url:
        yield url


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with chromium(tmp_path_factory.mktemp("browser")) as page:
        yield page


def night(person: Chromium, views: dict[str, str], folder: Path) -> OpenPage:
    """What came of a night with these views: those that can be read have been."""
    with served(views) as url, watched(person, url, "orders", folder / "pictures") as page:
        page.harmed(time.monotonic())
        poll(lambda: all(page.reads[view] for view, path in ADDRESSES.items() if path in views))
    return page


class Window:
    """Stands in for a window of a browser: what it answers to each question."""

    def __init__(self, there: bool) -> None:
        self.there = there

    def js(self, expression: str) -> dict[str, Any]:
        return {"there": self.there, "said": ["late"], "seen": "", "stopped": False}

    def picture(self) -> bytes:
        return b"png"


def test_a_view_that_is_not_drawn_was_not_read(tmp_path: Path) -> None:
    windows = {view: cast(Chromium, Window(view != CARD)) for view in ADDRESSES}
    page, stop = OpenPage(windows, "orders", tmp_path / "pictures"), Event()
    page.harmed(time.monotonic())
    thread = Thread(target=page.watch, args=(stop,))
    thread.start()
    try:
        poll(lambda: page.reads[LIST] and page.reads[JOB])
    finally:
        stop.set()
        thread.join()
    with pytest.raises(AssertionError, match=f"never read since the harm: {CARD} "):
        page.check_read()
    page.reads[CARD] = 1
    page.check_read()


@in_a_browser
def test_a_night_whose_views_were_read_says_so(person: Chromium, tmp_path: Path) -> None:
    night(person, VIEWS, tmp_path).check_read()


@in_a_browser
@pytest.mark.parametrize("broken", [LIST, CARD, JOB])
def test_a_view_that_was_never_read_fails_the_night(person: Chromium, tmp_path: Path, broken: str) -> None:
    others = {path: text for path, text in VIEWS.items() if path != ADDRESSES[broken]}
    page = night(person, others, tmp_path)
    with pytest.raises(AssertionError, match=f"never read since the harm: {broken}"):
        page.check_read()


@in_a_browser
def test_a_browser_that_ends_fails_the_night(person: Chromium, tmp_path: Path) -> None:
    with served(VIEWS) as url, watched(person, url, "orders", tmp_path / "pictures") as page:
        poll(lambda: all(page.reads.values()))
        for window in page._windows.values():
            window._socket.close()
        page.harmed(time.monotonic())
    with pytest.raises(AssertionError, match="never read since the harm: the list") as caught:
        page.check_read()
    assert CARD in str(caught.value) and JOB in str(caught.value)
