"""The ten disasters of the docs: the night that plays each, and the table that the newest records give."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

from demo.places import ROOT
from tests.nights.record import FOLDER, Night, Run, news_of, said_rpo, said_s

PAGE = ROOT / "docs" / "howto" / "nights.md"
COMMAND = "python -m tests.nights --docs"
BEGIN, END = "<!-- the table: python -m tests.nights --docs -->", "<!-- the end of the table -->"
COLUMNS = (
    "disaster",
    "says it first",
    "what a person does in Airflow",
    "RPO",
    "RTO",
    "what is not recovered",
)


@dataclass(frozen=True, slots=True)
class Disaster:
    """One of the ten.

    Attributes:
        title: What happens.
        not_recovered: What nothing here brings back.
    """

    title: str
    not_recovered: str


TEN: Mapping[str, Disaster] = {
    "a": Disaster(
        "the driver is killed", "what a `foreachBatch` without a guard wrote of the batch that was cut off"
    ),
    "b": Disaster(
        "the checkpoint is deleted while the job runs",
        "input that its source no longer has, after the savepoint",
    ),
    "c": Disaster("a state file is damaged", "the same; without a savepoint, the state"),
    "j": Disaster(
        "the sink is ahead of the savepoint to restore",
        "rows of a sink that is not guarded: they stay, and come again",
    ),
    "o": Disaster(
        "the repository is damaged, and the checkpoint is lost",
        "without a replica, the damaged savepoint: an older one is restored",
    ),
    "i": Disaster(
        "the repository is unmounted, with the records",
        "the job stands until the disk is back, or a replica is restored",
    ),
    "p": Disaster(
        "the primary's store is down, with its checkpoint",
        "whether a driver still runs at a site that does not answer: a person has to know",
    ),
    "q": Disaster(
        "wrong code is deployed",
        "rows that wrong code has computed without an error, in a sink that is not guarded",
    ),
    "r": Disaster(
        "two drivers fight over the checkpoint",
        "what a driver does that was started without Streambank's runner: it has no lease",
    ),
    "s": Disaster("the records of the job are lost", "the history: metrics, drills, who did what"),
}
"""By the name of the night that plays it, in the order of the table."""


def newest() -> dict[str, Night]:
    """The newest record of each night that ended as it must, by its name."""
    found: dict[str, Night] = {}
    for path in FOLDER.glob("*.json"):
        for data in json.loads(path.read_text(encoding="utf-8")):
            known = {one.name for one in fields(Night)}
            if data["failure"] or not data.get("harmed_at"):
                continue
            night = Night(**{name: value for name, value in data.items() if name in known})
            night.runs = [Run(**run) for run in data["runs"]]
            if night.name not in found or found[night.name].harmed_at < night.harmed_at:
                found[night.name] = night
    return found


def docs_table(nights: Mapping[str, Night]) -> str:
    """The table of the docs, in Markdown.

    Args:
        nights: A record of each of the ten, by its name.
    """
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for name, disaster in TEN.items():
        night = nights[name]
        acts = "; ".join(map(_act, night.acts)) or "nothing"
        cells = (disaster.title, _first(night), acts, said_rpo(night), said_s(night.rto_s))
        lines.append("| " + " | ".join((*cells, disaster.not_recovered)) + " |")
    days = {f"{datetime.fromtimestamp(nights[name].harmed_at, UTC):%Y-%m-%d}" for name in TEN}
    lost = sum(nights[name].lost for name in TEN)
    repeated = sum(nights[name].repeated for name in TEN)
    rows = sum(nights[name].rows for name in TEN)
    said = f"Played on {' and '.join(sorted(days))}: {rows:,} rows, {lost} lost, {repeated} repeated."
    return "\n".join([*lines, "", said])


def write_docs(page: Path = PAGE) -> list[str]:
    """Put the table of the newest records into the docs.

    Returns:
        The nights that have no good record, and must be played first; nothing is written then.
    """
    nights = newest()
    missing = [name for name in TEN if name not in nights]
    if not missing:
        text = page.read_text(encoding="utf-8")
        before, rest = text.split(BEGIN)
        after = rest.split(END)[1]
        page.write_text(f"{before}{BEGIN}\n{docs_table(nights)}\n{END}{after}", encoding="utf-8")
    return missing


def rows_of(page: Path = PAGE) -> Iterator[list[str]]:
    """The cells of each row of the table in the docs."""
    table = page.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    for line in table.strip().splitlines()[2:]:
        if line.startswith("|"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def _first(night: Night) -> str:
    """What said first that something is wrong, and after how long: an alert, else a run that failed."""
    for one in sorted(night.alerts, key=lambda alert: str(alert["at"])):
        after_s = datetime.fromisoformat(one["at"]).timestamp() - night.harmed_at
        return f"the alert `{news_of(one)}` after {after_s:.0f} s"
    for run in night.runs:
        if run.state == "failed":
            codes = ", ".join(f"`{code}`" for code in sorted(run.codes))
            return f"a run of `{run.dag_id.partition('.')[2]}` that fails: {codes}"
    return "no alert: nothing has to be done"


def _act(act: str) -> str:
    """An act of a person, as the docs say it."""
    verb, _, rest = act.partition(" ")
    if verb == "trigger":
        dag, _, form = rest.partition(" ")
        return f"trigger `{dag}`" + (f" with `{_form(form)}`" if form else "")
    if verb == "answer":
        return f"answer {rest.partition(' ')[2].strip(chr(39))!r}"
    return act


def _form(form: str) -> str:
    return re.sub(r"b(\d+)-[0-9a-f]{12}", r"b\1", form)
