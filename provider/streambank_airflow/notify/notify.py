"""Telling people through Airflow's notifiers: once when something breaks, once when it has healed.

Each notifier has its own memory, so one that fails is asked again the next time, and the others are not
made to tell twice.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from airflow.sdk import BaseNotifier

from streambank.core.errors import StorageError
from streambank.core.names import MAIN
from streambank.core.units import to_json_time
from streambank.declaration.declaration import Job
from streambank.declaration.notify import teller_name
from streambank.declaration.objectives import OF_JOB
from streambank.sla import alerts
from streambank.sla.alerts import Key, LevelChange, Open, OpenAlerts, news, without
from streambank.sla.assess import Assessment
from streambank.sla.objectives import HISTORY
from streambank.sla.verdict import LEVELS, Level, Verdict
from streambank.storage import using_s3
from streambank_airflow.failures import said
from streambank_airflow.hints import hint_for
from streambank_airflow.notify.alerts import code_of
from streambank_airflow.notify.notifiers import load_notifier
from streambank_airflow.notify.send import NotifierError, at_once, redacted, send_once
from streambank_airflow.watch.sla import SlaSubject

log = logging.getLogger(__name__)

PATIENCE_S = 60.0
"""How long notifiers may take, all together: one may have several things to tell."""
_OF_A_DAG_FILE = re.compile(r"^unusual_prefix_[0-9a-f]{40}_")
"""What Airflow puts before the name of a DAG file's module."""


@dataclass(frozen=True, slots=True)
class Teller:
    """One notifier.

    Attributes:
        name: Under which it is kept what it was told.
        make: Makes the notifier, when there is something to tell.
        secrets: Its arguments, which no error may show.
    """

    name: str
    label: str
    make: Callable[[], BaseNotifier]
    least: Level
    secrets: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Telling:
    """What came of telling one notifier of one job.

    Attributes:
        told: How many news it got.
        missed: How many it should have got.
        why: What went wrong, in a sentence; empty where nothing did.
    """

    told: int = 0
    missed: int = 0
    why: str = ""


def declared_tellers(job: Job) -> tuple[Teller, ...]:
    """Those of `sla.notify`, and of the job's own `notify` with the kind `sla`.

    Their classes are loaded when there is something to tell.
    """
    declared = (*job.sla.notify, *(one for one in job.notify if "sla" in one.kinds))
    found = {one.teller: one for one in declared}
    return tuple(
        Teller(one.teller, one.path, partial(load_notifier, one), level_of(one.least), one.args)
        for one in found.values()
    )


def given_tellers(notifiers: Sequence[BaseNotifier], least: Level) -> tuple[Teller, ...]:
    """Notifiers that a DAG gives as objects; each is known again by its class and its templates."""
    seen: Counter[str] = Counter()
    found: list[Teller] = []
    for notifier in notifiers:
        kind = type(notifier)
        path = f"{kind.__module__}.{kind.__qualname__}"
        name = teller_name(
            path, [{field: getattr(notifier, field, None) for field in notifier.template_fields}, least]
        )
        seen[name] += 1
        number = f"-{seen[name]}" if seen[name] > 1 else ""
        shown = _OF_A_DAG_FILE.sub("", path)
        found.append(Teller(name + number, shown, partial(_given, notifier), least))
    return tuple(found)


def tell_all(
    found: Iterable[tuple[SlaSubject, Assessment, Sequence[Teller]]], context: Mapping[str, Any]
) -> list[Telling]:
    """Tell everybody what is news to them, and remember what they got.

    They are told at once, each job's in a separate thread, and have `PATIENCE_S` together: one that hangs
    delays no other, and what it has not got by then is news again the next time.

    Returns:
        What came of each. Whatever goes wrong is said there: a notifier that fails must not keep the others
        from being told, nor hide what was found.
    """
    letters = [_Letter(subject, each, teller) for subject, each, tellers in found for teller in tellers]
    for one in letters:
        one.write()
    wanted = [letter for letter in letters if letter.items]
    ends = at_once([partial(one.send, context) for one in wanted], PATIENCE_S)
    for one, why in zip(wanted, ends, strict=True):
        one.why = one.why or why
    return [letter.keep() for letter in letters]


class _Letter:
    """What one notifier is told of one job."""

    def __init__(self, subject: SlaSubject, found: Assessment, teller: Teller) -> None:
        self.subject = subject
        self.found = found
        self.teller = teller
        self.items: tuple[LevelChange, ...] = ()
        self.told = 0
        self.why = ""
        self._before = OpenAlerts()
        self._after: OpenAlerts | None = None
        self._others: Mapping[Key, Open] = {}

    def write(self) -> None:
        """See what is news: everything, where the storage of earlier alerts does not answer.

        Then each run that finds it alerts again, until the storage is back: a job whose storage is down must
        not be the one without an alert.
        """
        try:
            with using_s3(self.subject.access):
                try:
                    self._before = alerts.read(self.subject.records(), self.teller.name)
                except StorageError as error:
                    log.warning(
                        "The earlier alerts to %s could not be read: %s", self.teller.label, said(error)
                    )
                    self.items, _ = news(self.found.verdicts, OpenAlerts(), least=self.teller.least)
                    return
            own = {key: one for key, one in self._before.open.items() if self.subject.concerns(*key[:2])}
            self._others = {key: one for key, one in self._before.open.items() if key not in own}
            self.items, self._after = news(self.found.verdicts, OpenAlerts(own), least=self.teller.least)
        except Exception as error:
            self.why = said(error)

    def send(self, context: Mapping[str, Any]) -> None:
        """Tell in turn, until something goes wrong."""
        try:
            notifier = self.teller.make()
        except Exception as error:
            self.why = redacted(error, self.teller.secrets)
            return
        for item in self.items:
            try:
                send_once(notifier, {**context, **news_context(item)}, secrets=self.teller.secrets)
            except NotifierError as error:
                self.why = f"the alert on {subject_of(item.verdict)} could not be sent: {error}"
                return
            self.told += 1

    def keep(self) -> Telling:
        """Remember what was told."""
        told = self.told  # one that hangs may go on meanwhile
        if self._after is not None:
            rest = without(self._after, self._before, self.items[told:]).open
            try:
                with using_s3(self.subject.access):
                    kept = OpenAlerts({**self._others, **rest})
                    alerts.keep(self.subject.records(), self.teller.name, kept, self._before)
            except Exception as error:
                self.why = said(error)
        why = self.why and f"{self.teller.label} ({self.subject.ref}): {self.why}"
        return Telling(told, len(self.items) - told, why)


def _given(notifier: BaseNotifier) -> BaseNotifier:
    return notifier


_EVENT = ("job", "query", "objective", "level", "value", "limit", "unit", "subject", "why", "advice")


def level_of(name: str) -> Level:
    """The level of a name that was checked."""
    return next(level for level in LEVELS if level == name)


def subject_of(verdict: Verdict) -> str:
    """What a verdict is about: `flights: state_bytes`, `orders/left: growth`, `orders: alive`."""
    query = "" if verdict.query == MAIN or verdict.objective in OF_JOB else f"/{verdict.query}"
    return f"{verdict.job}{query}: {verdict.objective}"


def sentence(verdict: Verdict) -> str:
    """A verdict for people."""
    said = {"breach": "is broken", "warn": "warns", "unknown": "is unknown", "ok": "is kept"}[verdict.level]
    muted = f" (muted: {verdict.mute.why})" if verdict.mute is not None else ""
    # The reason of a history that cannot be read ends with the code of the error.
    advice = hint_for(code_of(verdict.why) or verdict.objective, verdict.advice, verdict.job)
    advice = advice and f" {advice}"
    # Of a history that cannot be read the reasons are there: each is a sentence.
    reasons = " ".join(("", *verdict.evidence)) if verdict.objective == HISTORY and advice else ""
    return f"{subject_of(verdict)} {said}{muted}. {verdict.why}{reasons}{advice}"


def message_of(news: LevelChange) -> str:
    """What is told, for people."""
    since = to_json_time(news.since)
    if news.kind == "healed":
        was = "warned" if news.was == "warn" else "was broken"
        return f"{subject_of(news.verdict)} is kept again; it {was} since {since}. {news.verdict.why}"
    return f"{sentence(news.verdict)} Since {since}."


def event_of(news: LevelChange) -> dict[str, Any]:
    """What an asset's event tells: flat, and never where anything is."""
    verdict = news.verdict.to_dict()
    return {
        **{name: verdict[name] for name in _EVENT},
        "kind": news.kind,
        "was": news.was,
        "since": to_json_time(news.since),
        "at": verdict["at"],
    }


def news_context(news: LevelChange) -> dict[str, Any]:
    """What a notifier's templates see beside what every task's do."""
    return {
        "news": {
            "kind": news.kind,
            "since": to_json_time(news.since),
            "was": news.was,
            "message": message_of(news),
        },
        "verdict": news.verdict.to_dict(),
        "job": news.verdict.job,
        # As every alert has them, so that one text serves for all kinds.
        "kind": "sla",
        "message": message_of(news),
        "code": "",
    }
