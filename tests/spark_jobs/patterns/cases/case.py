"""A pattern, its input, and what a batch computation in plain Python gives of the same events."""

from __future__ import annotations

import importlib.util
import json
import runpy
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQueryManager

from tests.support.paths import ROOT
from tests.support.spark.sessions import ATTEMPTS, LATE_WORKER

PATTERNS = ROOT / "spark_jobs/patterns"
WATERMARK = timedelta(minutes=1)
"""Of every pattern, unless its case says otherwise."""

Event = dict[str, Any]
Rows = list[dict[str, Any]]


def _events_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pattern_events", PATTERNS / "events.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


events = _events_module()


@dataclass(frozen=True)
class Case:
    """A pattern and its answer.

    Attributes:
        pattern: The file in `spark_jobs/patterns`, without `.py`.
        kinds: Kinds of events that it reads; with more than one, each is in a folder of its name.
        expected: Gives the rows that the output must have, in any order, from all events of each kind,
            duplicates too, in the order in which they come.
        args: Its own arguments.
        key: Columns that name a row which a later batch replaces (`application.replace_batches`); empty if
            the output is appended.
        name: In the id of the test; default: the pattern.
        files: How many files of events, beside the closing one.
        rows: Events in a file.
        together: Files in a batch when it is compared; 1 if the answer depends on the batches.
        prepare: Writes what else it reads into a folder, and returns the arguments that name that.
    """

    pattern: str
    kinds: tuple[str, ...]
    expected: Callable[..., Iterable[dict[str, Any]]]
    args: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    name: str = ""
    files: int = 3
    rows: int = 60
    prepare: Callable[[Path], Sequence[str]] = lambda folder: ()
    together: int = 2

    def __str__(self) -> str:
        return self.name or self.pattern

    @property
    def application(self) -> Path:
        """The program."""
        return PATTERNS / f"{self.pattern}.py"

    def batches(self) -> dict[str, list[list[Event]]]:
        """The events of each file, by kind."""
        return {kind: events.batches(kind, seed=7, files=self.files, rows=self.rows) for kind in self.kinds}

    def feed(self, folder: Path, first: int = 0, last: int | None = None) -> None:
        """Write the files `first` to `last` (exclusive) of each kind."""
        for kind, made in self.batches().items():
            target = folder / kind if len(self.kinds) > 1 else folder
            events.write(made[first:last], target, first)

    def answer(self) -> list[str]:
        """The rows that the output must have, sorted."""
        given = [[event for batch in made for event in batch] for made in self.batches().values()]
        return comparable(self.expected(*given))

    def written(self, output: Path) -> list[str]:
        """The rows that the output has, sorted."""
        return comparable(replaced(output, self.key) if self.key else appended(output))


def comparable(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Rows as sorted text: without nulls, as Spark's JSON has them, and with times in UTC."""
    texts = []
    for row in rows:
        kept = {name: value for name, value in row.items() if value is not None}
        texts.append(json.dumps(kept, sort_keys=True, default=spark_time))
    return sorted(texts)


def spark_time(moment: object) -> str:
    """A time as Spark's JSON writes it."""
    assert isinstance(moment, datetime), moment
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03}Z"


def appended(output: Path) -> Rows:
    """Rows of the files that the log of Spark's file sink names."""
    names: list[str] = []
    logs = sorted((output / "_spark_metadata").glob("[0-9]*"), key=lambda log: int(log.name.split(".")[0]))
    for log in logs:
        entries = [json.loads(line) for line in log.read_text().splitlines()[1:]]
        named = [entry["path"].removeprefix("file://") for entry in entries]
        names = named if log.name.endswith(".compact") else names + named
    return [row for name in names for row in _json_lines(Path(name))]


def replaced(output: Path, key: Sequence[str]) -> Rows:
    """The newest row of each key, of the batches that `application.replace_batches` wrote."""
    newest: dict[tuple[Any, ...], dict[str, Any]] = {}
    for folder in sorted(output.glob("batch=*"), key=lambda each: int(each.name.removeprefix("batch="))):
        for file in sorted(folder.glob("part-*")):
            newest |= {tuple(row.get(name) for name in key): row for row in _json_lines(file)}
    return list(newest.values())


def _json_lines(file: Path) -> Rows:
    return [json.loads(line) for line in file.read_text().splitlines()]


def by_key(given: Iterable[Event], key: str) -> dict[str, list[Event]]:
    """The events of each key, in order of event time, and of their other columns at the same moment."""
    groups: dict[str, list[Event]] = {}
    for event in sorted(given, key=lambda one: tuple(one.values())):
        groups.setdefault(event[key], []).append(event)
    return groups


def final_watermark(given: Iterable[Event], delay: timedelta = WATERMARK) -> datetime:
    """Where the watermark is at the end."""
    newest: datetime = max(event["event_time"] for event in given)
    return newest - delay


def play(case: Case, folder: Path, *more: str) -> list[str]:
    """Run a pattern over all its input in the session of this process: the rows that it wrote, sorted."""
    case.feed(folder / "in")
    return run(case, folder, *more)


def run(case: Case, folder: Path, *more: str) -> list[str]:
    """Run a pattern, or let it go on, over what is fed: the rows that it wrote, sorted.

    One whose Python worker started late is started again, as the guide says: see `sessions.finish`.
    """
    source, output = folder / "in", folder / "out"
    beside = case.prepare(folder)
    arguments = ["--input", str(source), "--output", str(output), "--once", *case.args, *beside, *more]
    for attempt in range(ATTEMPTS):
        try:
            with pytest.MonkeyPatch.context() as patch, _listeners_removed(patch):
                patch.setattr(sys, "argv", [str(case.application), *arguments])
                patch.syspath_prepend(str(PATTERNS))
                runpy.run_path(str(case.application), run_name="__main__")
            break
        except StreamingQueryException as error:
            if LATE_WORKER not in str(error) or attempt == ATTEMPTS - 1:
                raise
    return case.written(output)


@contextmanager
def _listeners_removed(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Listeners of a pattern hear of its own queries alone, and not of those of later tests."""
    added: list[tuple[StreamingQueryManager, StreamingQueryListener]] = []
    add = StreamingQueryManager.addListener

    def add_listener(self: StreamingQueryManager, listener: StreamingQueryListener) -> None:
        add(self, listener)
        added.append((self, listener))

    patch.setattr(StreamingQueryManager, "addListener", add_listener)
    try:
        yield
    finally:
        for manager, listener in added:
            manager.removeListener(listener)
