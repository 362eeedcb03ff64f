"""The person's hands: how a night's person triggers DAGs and answers questions, through REST or by clicks.

A click is one of the mouse on something of the page or of Airflow's UI. Typing into a field is the one click
that puts the cursor there; a choice from a list is two. Each trigger begins at the list of jobs, which is
open anyway; an answer goes on from where the trigger has led.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote

from demo.pictures.chromium import Chromium
from demo.rest import Airflow, RestError

READING_S = 2.0
"""A person reads before acting. Airflow takes a task that is answered at once for one that has failed, and a
run that is marked at once has no failed task to clear."""
TRIES = 3
"""So often a person clicks where Airflow answers with an error: its SQLite is locked now and then."""
SLOW_S = 90.0
"""How long a view may take on a busy machine."""
TAKEN_S = 15.0
"""How long an answer may take to be taken."""
BUTTONS = {"failover": "Fail over", "sla": "Check now"}
"""What the page's buttons say, where that is not the verb."""
DIALOG = "dialog[open]"
SAVEPOINTS = "Savepoints"


class Hands(Protocol):
    """What a person can do."""

    def trigger(self, dag_id: str, conf: Mapping[str, Any]) -> str:
        """Trigger a DAG by hand; the run."""

    def answer(self, dag_id: str, run_id: str, task_id: str, option: str) -> None:
        """Answer the question of a task with one of its options."""


@dataclass(frozen=True, slots=True)
class ByRest:
    """Acts through Airflow's REST API, as its UI does."""

    client: Airflow

    def trigger(self, dag_id: str, conf: Mapping[str, Any]) -> str:
        for _ in range(TRIES - 1):
            with suppress(RestError):
                return self.client.trigger(dag_id, conf)
            time.sleep(READING_S)
        return self.client.trigger(dag_id, conf)

    def answer(self, dag_id: str, run_id: str, task_id: str, option: str) -> None:
        self.client.answer(dag_id, run_id, task_id, option)


@dataclass(slots=True)
class AtThePage:
    """Acts by clicks: on Streambank's page, and where that leads to in Airflow's UI.

    Attributes:
        clicks: What was clicked, in order.
    """

    page: Chromium
    url: str
    job: str
    clicks: list[str] = field(default_factory=list)

    def trigger(self, dag_id: str, conf: Mapping[str, Any]) -> str:
        verb, answers = dag_id.removeprefix(f"{self.job}."), dict(conf)
        self._to_the_job()
        button = f"{BUTTONS.get(verb, verb.capitalize())}…"
        if "savepoint" in answers and verb == "restore":
            self._to_savepoints(answers["savepoint"], button)
        else:
            if not self.page.js(f"!!{_control(button)}"):
                self._click(_control("More", ".sb-toolbar"), "More")
            self._click(_control(button), button)
        self.page.until(_first(f"{DIALOG} .sb-fields .sb-field"), f"there is no form of {verb}", SLOW_S)
        for name, value in answers.items():
            self._fill(name, value)
        begin = _first(f"{DIALOG} button[type=submit]")
        for _ in range(TRIES):
            self._click(begin, str(self.page.js(f"{begin}.innerText")))
            ended = _first(f"{DIALOG} .sb-form[role=status], {DIALOG} .sb-failed")
            self.page.until(ended, f"{dag_id} does not begin", SLOW_S)
            run = self.page.js(f"{_first(f'{DIALOG} p > a')}?.innerText ?? ''")
            if run:
                return str(run).removeprefix("Open the run ")
            time.sleep(READING_S)
        raise AssertionError(f"{dag_id} is refused: {self.page.text()[-600:]}")

    def answer(self, dag_id: str, run_id: str, task_id: str, option: str) -> None:
        within = f"{DIALOG} footer"
        if not self.page.js(f"!!{_first(DIALOG)}"):
            self._to_the_job()
            within = ".sb-banner"
        place = json.dumps(f"/dags/{dag_id}/runs/{quote(run_id, safe='')}/tasks/{task_id}/")
        asks = f"[...document.querySelectorAll('{within} a')].find((one) => one.href.includes({place}))"
        self._click(asks, "Read and answer")
        offered = _first(f'[data-testid="hitl-option-{option}"]')
        for _ in range(TRIES):
            self._click(offered, option)
            with suppress(AssertionError):  # it is offered as before
                self.page.until(f"!{offered} || {offered}.disabled", timeout_s=TAKEN_S)
                return
        raise AssertionError(f"{option} is not taken: {self.page.text()[-600:]}")

    def _to_the_job(self) -> None:
        self.page.open(f"{self.url}/plugin/streambank")
        self._click(_control(self.job, ".sb-table"), self.job)
        self.page.until(_first(".sb-toolbar"), f"there is no view of {self.job}", SLOW_S)

    def _to_savepoints(self, savepoint: str, button: str) -> None:
        """Open the form for a savepoint from the table of savepoints, which fills it in."""
        self._click(_control(SAVEPOINTS, ".sb-tabs"), SAVEPOINTS)
        link = json.dumps(f'a[href$="/{savepoint}"]')
        row = f"[...document.querySelectorAll('tr')].find((row) => row.querySelector({link}))"
        self._click(f"{row}?.querySelector('.sb-row-actions button')", button)

    def _fill(self, name: str, value: Any) -> None:
        """Give an answer in the open form, if that is not what it says already."""
        one = _first(f'{DIALOG} [name="{name}"]')
        kind = self.page.js(f"{one}.type")
        now = f"{one}.checked" if kind == "checkbox" else f"{one}.value"
        meant = value if kind == "checkbox" else str(value)
        if self.page.js(now) == meant:
            return
        folded = f"{one}.closest('details:not([open])')"
        if self.page.js(f"!!{folded}"):
            self._click(f"{folded}.querySelector('summary')", "More")
        if kind == "checkbox":
            self._click(one, name)
        elif kind == "select-one":
            # A browser without a window has no list to choose from: the keys do what the two clicks would.
            self.clicks += [name, str(value)]
            self.page.js(f"{one}.focus()")
            for _ in range(int(self.page.js(f"{one}.options.length"))):
                if self.page.js(now) != meant:
                    self.page.press("ArrowDown")
        else:
            self._click(one, name)
            self.page.js(f"{one}.select()")
            self.page.type(str(value))
        assert self.page.js(now) == meant, f"{name} is not {value!r}"

    def _click(self, find: str, words: str) -> None:
        self.page.click_on(f"({find})", words, SLOW_S)
        self.clicks.append(words)


def _first(selector: str) -> str:
    return f"document.querySelector({json.dumps(selector)})"


def _control(words: str, within: str = ".sb-page") -> str:
    """Finds the first visible button or link of the page that has these words and no more."""
    return (
        f"[...document.querySelectorAll({json.dumps(f'{within} :is(a, button)')})]"
        f".find((one) => one.getClientRects().length && one.innerText.trim() === {json.dumps(words)})"
    )
