"""The ten disasters of the docs: the night that plays each, and the tables that the newest records give."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

from demo.places import ROOT
from tests.nights.record import FOLDER, Night, Run, Said, news_of, said_rpo, said_s

PAGE = ROOT / "docs" / "howto" / "nights.md"
COMMAND = "python -m tests.nights --docs"
TABLE = "<!-- the table: python -m tests.nights --docs -->", "<!-- the end of the table -->"
PAGE_TABLE = (
    "<!-- the table with the page open: python -m tests.nights --docs -->",
    "<!-- the end of the table with the page open -->",
)
"""Where they begin and end."""
COLUMNS = (
    "disaster",
    "says it first",
    "what a person does in Airflow",
    "RPO",
    "RTO",
    "what is not recovered",
)
PAGE_COLUMNS = ("disaster", "which view says it first", "its words", "after", "clicks to recovery")
MOST_WORDS = 3
"""So many phrases of a view are in the table; the worst are the first."""


@dataclass(frozen=True, slots=True)
class Disaster:
    """One of the ten.

    Attributes:
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


def newest(*, with_page: bool = False) -> dict[str, Night]:
    """The newest record of each night that ended as it must, by its name."""
    found: dict[str, Night] = {}
    for path in FOLDER.glob("*.json"):
        for data in json.loads(path.read_text(encoding="utf-8")):
            known = {one.name for one in fields(Night)}
            if data["failure"] or not data.get("harmed_at") or data.get("with_page", False) != with_page:
                continue
            night = Night(**{name: value for name, value in data.items() if name in known})
            night.runs = [Run(**run) for run in data["runs"]]
            night.said = [Said(**said) for said in data.get("said", ())]
            if night.name not in found or found[night.name].harmed_at < night.harmed_at:
                found[night.name] = night
    return found


def docs_table(nights: Mapping[str, Night]) -> str:
    """The table of the docs, in Markdown."""
    rows = []
    for name, disaster in TEN.items():
        night = nights[name]
        acts = "; ".join(map(_act, night.acts)) or "nothing"
        cells = (disaster.title, _first(night), acts, said_rpo(night), said_s(night.rto_s))
        rows.append((*cells, disaster.not_recovered))
    return _table(COLUMNS, rows, nights)


def page_table(nights: Mapping[str, Night]) -> str:
    """The table of the docs of what the open page says, in Markdown.

    Args:
        nights: Records of the ten with the page open, by name; what is not played yet is named below it.
    """
    rows = []
    for name, disaster in TEN.items():
        if name not in nights:
            continue
        night = nights[name]
        clicks = [f"`{one.replace(f'orders_{name}', 'the job')}`" for one in night.clicks]
        clicked = f"{len(clicks)}: {', '.join(clicks)}" if clicks else "0"
        said = ("none: the job was back before", "-", "-")
        if night.said:
            first = night.said[0]
            words = "; ".join(f"\u201c{one}\u201d" for one in first.words[:MOST_WORDS])
            said = (first.view, words, said_s(first.after_s))
        rows.append((disaster.title, *said, clicked))
    others = "; ".join(disaster.title for name, disaster in TEN.items() if name not in nights)
    return _table(PAGE_COLUMNS, rows, nights) + (f" Not played this way yet: {others}." if others else "")


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], nights: Mapping[str, Night]) -> str:
    """A table, and when and on how many rows of data it was measured."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows]
    played = [nights[name] for name in TEN if name in nights]
    days = {f"{datetime.fromtimestamp(one.harmed_at, UTC):%Y-%m-%d}" for one in played}
    lost, repeated = sum(one.lost for one in played), sum(one.repeated for one in played)
    count = sum(one.rows for one in played)
    said = f"Played on {' and '.join(sorted(days))}: {count:,} rows, {lost} lost, {repeated} repeated."
    return "\n".join([*lines, "", said])


def write_docs(page: Path = PAGE) -> list[str]:
    """Put the tables of the newest records into the docs: the first only if there is a record of all ten.

    Returns:
        The commands that play what has no good record.
    """
    missing = []
    for (begin, end), make, option in ((TABLE, docs_table, ""), (PAGE_TABLE, page_table, "--page ")):
        nights = newest(with_page=bool(option))
        lacks = [name for name in TEN if name not in nights]
        if lacks:
            missing.append(f"python -m tests.nights {option}{' '.join(lacks)}")
        if not lacks or (option and nights):
            before, rest = page.read_text(encoding="utf-8").split(begin)
            text = f"{before}{begin}\n{make(nights)}\n{end}{rest.split(end)[1]}"
            page.write_text(text, encoding="utf-8")
    return missing


def rows_of(markers: tuple[str, str] = TABLE, page: Path = PAGE) -> Iterator[list[str]]:
    """The cells of each row of a table in the docs."""
    begin, end = markers
    table = page.read_text(encoding="utf-8").split(begin)[1].split(end)[0]
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
