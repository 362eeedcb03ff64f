"""What the open page says while a night is played: read in a browser, whose windows refresh themselves."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread

from websockets.exceptions import WebSocketException

from demo.pictures.chromium import BrowserError, Chromium
from streambank.core.units import from_json_time
from tests.nights.record import Said

_UNREADABLE = (AssertionError, BrowserError, TimeoutError, WebSocketException)
LIST, CARD, JOB = "the list", "the card on Home", "the job's view"
LOOK_S = 0.5
POLL_S = 15.0
"""How often the page asks, as users have it."""
LINE_S = 60.0
"""How often a watcher keeps the line, as users have it."""

# What is red or yellow, and states that pass. Each root gives the words of its marks, without ages.
READ = """
(() => {
  const roots = ROOTS;
  const words = (one) => {
    const copy = one.cloneNode(true);
    const others = ".sb-muted, [aria-hidden], .sb-dot, small, time, a";
    copy.querySelectorAll(others).forEach((each) => each.remove());
    return copy.textContent.trim().replace(/\\s+/g, " ");
  };
  const marks = (root) => [...root.querySelectorAll(MARKS)].filter((one) => one.getClientRects().length);
  const said = roots.flatMap((root) => (root.matches(MARKS) ? [root] : marks(root))).map(words);
  return {
    there: document.querySelector(THERE) !== null,
    said: said.filter((one) => /\\w/.test(one)),
    seen: document.querySelector(".sb-summary time")?.dateTime ?? "",
    stopped: document.querySelector(".sb-summary .sb-pill")?.textContent.includes("stopped") ?? false,
  };
})()
"""
ROOTS = {
    LIST: "[...document.querySelectorAll('.sb-row')]"
    ".filter((one) => one.querySelector('.sb-job-link')?.textContent === JOB)",
    CARD: "[...document.querySelectorAll('.sb-home-list li')]"
    ".filter((one) => one.querySelector('a')?.textContent === JOB)",
    JOB: "[...document.querySelectorAll('.sb-page')]",
}
THERE = {LIST: ".sb-row", CARD: ".sb-home", JOB: ".sb-page .sb-summary"}
"""What each view has once it is drawn."""
MARKS = ", ".join(
    (
        ".sb-home-list li",
        ".sb-pill.sb-bad",
        ".sb-pill.sb-warn",
        ".sb-text-bad",
        ".sb-text-warn",
        ".sb-event-warn strong",
        ".sb-failed p",
        "[data-label=State] .sb-pill.sb-info",
        ".sb-head .sb-pill.sb-info",
        ".sb-news",
        ".sb-banner-info .sb-pill",
    )
)


class OpenPage:
    """Three windows of the page, read by a thread.

    Args:
        pictures: The beginning of the names of pictures: a picture of each view as it says something first.

    Attributes:
        said: What it has said since the harm, and not before it, the earliest first.
    """

    def __init__(self, windows: Mapping[str, Chromium], job: str, pictures: Path) -> None:
        self._windows, self._pictures = windows, pictures
        self._read = {
            view: READ.replace("ROOTS", roots)
            .replace("THERE", json.dumps(THERE[view]))
            .replace("MARKS", json.dumps(MARKS))
            .replace("JOB", json.dumps(job))
            for view, roots in ROOTS.items()
        }
        self._latest: dict[str, Counter[str]] = {}
        self._known: dict[str, Counter[str]] = {}
        self._seen = ""
        self._stopped = False
        self._begun: float | None = None
        self.said: list[Said] = []
        self.reads = dict.fromkeys(windows, 0)
        self._failed: dict[str, Exception] = {}

    def check_read(self) -> None:
        """What a view did not say counts only where it was read."""
        unread = [f"{view} ({self._failed.get(view)})" for view, reads in self.reads.items() if not reads]
        assert not unread, f"never read since the harm: {', '.join(unread)}"

    def settle(self) -> None:
        """Wait until all that was before is on the page: a person has it open for long."""
        now, deadline = datetime.now(UTC), time.monotonic() + LINE_S + POLL_S
        while not self._stopped and not (self._seen and from_json_time(self._seen) > now):
            if time.monotonic() > deadline:
                break
            time.sleep(LOOK_S)
        time.sleep(POLL_S + LOOK_S)

    def harmed(self, begun: float) -> None:
        """What it says from now on is said since the harm, which was at this time of the monotonic clock."""
        self._known = dict(self._latest)
        self._begun = begun
        self.reads = dict.fromkeys(self.reads, 0)

    def watch(self, stop: Event) -> None:
        while not stop.wait(LOOK_S):
            for view, page in self._windows.items():
                try:
                    self._look(view, page)
                except _UNREADABLE as error:  # as while it is being loaded
                    self._failed[view] = error
        for view, page in self._windows.items():
            with suppress(*_UNREADABLE):  # `check_read` says what was not read
                self._picture(view, "end").write_bytes(page.picture())

    def _look(self, view: str, page: Chromium) -> None:
        found = page.js(self._read[view])
        marks = Counter(found["said"])
        self.reads[view] += found["there"]
        self._latest[view] = marks
        if view == JOB:
            self._seen, self._stopped = found["seen"], found["stopped"]
        if self._begun is None:
            return
        known = self._known.setdefault(view, Counter())
        new = [one for one in dict.fromkeys(found["said"]) if marks[one] > known[one]]
        if not new:
            return
        known.update(marks - known)
        picture = ""
        after_s = time.monotonic() - self._begun
        if view not in {one.view for one in self.said}:
            self._picture(view, "first").write_bytes(page.picture())
            picture = self._picture(view, "first").name
        self.said.append(Said(view, new, after_s, picture))

    def _picture(self, view: str, when: str) -> Path:
        name = re.sub(r"\W+", "-", view).strip("-").lower()
        return self._pictures.with_name(f"{self._pictures.name}-{name}-{when}.png")


@contextmanager
def watched(person: Chromium, url: str, job: str, pictures: Path) -> Iterator[OpenPage]:
    """The page in windows of a person's browser, until the end of the `with`."""
    addresses = {LIST: "/plugin/streambank", CARD: "/", JOB: f"/plugin/streambank/{job}"}
    with ExitStack() as stack:
        windows = {view: stack.enter_context(person.window()) for view in addresses}
        for view, page in windows.items():
            page.open(f"{url}{addresses[view]}")
            assert page.js("document.visibilityState") == "visible", f"{view} would not ask again"
        opened, stop = OpenPage(windows, job, pictures), Event()
        thread = Thread(target=opened.watch, args=(stop,), name="page-watch")
        thread.start()
        try:
            yield opened
        finally:
            stop.set()
            thread.join()
