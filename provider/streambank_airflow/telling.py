"""Telling people through Airflow's notifiers: once when something breaks, once when it has healed.

Each notifier has a memory of its own, so one that fails is asked again the next time, and the others are not
made to tell twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from airflow.sdk import BaseNotifier

from streambank.job.declaration import Job
from streambank.job.notify import teller_name
from streambank.sla import told_record
from streambank.sla.assess import Assessment
from streambank.sla.told import News, Told, news, without
from streambank.sla.verdict import Level
from streambank.storage import using_s3
from streambank_airflow.failures import said
from streambank_airflow.judging import SlaSubject
from streambank_airflow.notifiers import load_notifier
from streambank_airflow.sending import NotifierError, redacted, send_once
from streambank_airflow.sla_news import level_of, news_context, subject_of


@dataclass(frozen=True, slots=True)
class Teller:
    """One notifier.

    Attributes:
        name: Under which it is kept what it was told.
        label: How messages call it.
        make: Makes the notifier, when there is something to tell.
        least: From which level on it is told.
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
    for one in notifiers:
        kind = type(one)
        path = f"{kind.__module__}.{kind.__qualname__}"
        name = teller_name(path, [{field: getattr(one, field, None) for field in one.template_fields}, least])
        seen[name] += 1
        number = f"-{seen[name]}" if seen[name] > 1 else ""
        found.append(Teller(name + number, path, partial(_given, one), least))
    return tuple(found)


def tell(subject: SlaSubject, found: Assessment, teller: Teller, context: Mapping[str, Any]) -> Telling:
    """Tell one notifier what is news to it, and remember what it got.

    Args:
        subject: What was judged, with its records.
        found: The verdicts.
        teller: The notifier.
        context: The task's.

    Returns:
        What came of it. Whatever goes wrong is said there: a notifier that fails must not keep the others
        from being told, nor hide what was found.
    """
    told, why = 0, ""
    items: tuple[News, ...] = ()
    try:
        with using_s3(subject.access):
            records = subject.records()
            before = told_record.read(records, teller.name)
        own = {key: one for key, one in before.open.items() if subject.concerns(key[0], key[1])}
        others = {key: one for key, one in before.open.items() if key not in own}
        items, after = news(found.verdicts, Told(own), least=teller.least)
        told, why = _tell_each(teller, items, context)
        kept = Told({**others, **without(after, before, items[told:]).open})
        if kept != before:
            with using_s3(subject.access):
                told_record.keep(records, teller.name, kept, before)
    except Exception as error:
        why = said(error)
    return Telling(told, len(items) - told, why and f"{teller.label} ({subject.ref}): {why}")


def _tell_each(teller: Teller, items: Sequence[News], context: Mapping[str, Any]) -> tuple[int, str]:
    """Tell in turn until something goes wrong: how many were told, and what went wrong."""
    if not items:
        return 0, ""
    try:
        notifier = teller.make()
    except Exception as error:
        return 0, redacted(error, teller.secrets)
    for number, one in enumerate(items):
        try:
            send_once(notifier, {**context, **news_context(one)}, secrets=teller.secrets)
        except NotifierError as error:
            return number, f"{subject_of(one.verdict)} could not be told: {error}"
    return len(items), ""


def _given(notifier: BaseNotifier) -> BaseNotifier:
    return notifier
