"""The storm in parts: which tests each part has, what a part leaves on record, and whether all of them ran.

    python -m tests.support.storm [COMMIT]      the records of a commit: its parts, and what is missing
    python -m tests.support.storm --weigh       keep the seconds of its records for the next cut into parts

A part is a set of files, cut so that all parts take about as long, by earlier records (`seconds.json`).
A record is one JSON file: `.streambank/storm/<commit>/<part>of<parts>.json`. Parts may run in several clones;
bring their records together by copying the folder.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.paths import ROOT

RECORDS = ROOT / ".streambank" / "storm"
SECONDS = ROOT / "tests" / "storm" / "seconds.json"
UNKNOWN_S = 60.0
"""So long a file is taken to run that no record tells of."""


@dataclass(frozen=True, slots=True)
class Part:
    """One of several parts, as `--part 2/4` names it.

    Attributes:
        number: Which, from 1.
    """

    number: int = 1
    of: int = 1

    @classmethod
    def parse(cls, text: str) -> Part:
        number, slash, of = text.partition("/")
        part = cls(int(number), int(of)) if slash and number.isdecimal() and of.isdecimal() else None
        if part is None or not 1 <= part.number <= part.of:
            raise ValueError(f"{text!r} is not a part: give for example PART=2/4")
        return part

    def files(self, found: Iterable[str], seconds: Mapping[str, float]) -> set[str]:
        """The files of this part: the longest first, each to the part that has least so far."""
        parts: list[set[str]] = [set() for _ in range(self.of)]
        sums = [0.0] * self.of
        for file in sorted(set(found), key=lambda one: (-seconds.get(one, UNKNOWN_S), one)):
            least = sums.index(min(sums))
            parts[least].add(file)
            sums[least] += seconds.get(file, UNKNOWN_S)
        return parts[self.number - 1]


@dataclass(slots=True)
class Record:
    """What a run of the storm, or of a part of it, came to.

    Attributes:
        changed: Files differed from that commit, so the record proves nothing of it.
        part: Which part, `2/4`; `ARGS` for a choice by hand.
        began: When, UTC.
        cells: By test: `passed`, `failed` or `skipped`, and its seconds with setup and teardown.
    """

    commit: str
    changed: bool
    part: str
    began: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    seconds: float = 0.0
    cells: dict[str, tuple[str, float]] = field(default_factory=dict)

    def add(self, report: pytest.TestReport) -> None:
        """Take in a step of a test: the worst outcome counts, and all seconds."""
        known, spent = self.cells.get(report.nodeid, ("passed", 0.0))
        outcome = known if known == "failed" or report.outcome == "passed" else report.outcome
        self.cells[report.nodeid] = (outcome, round(spent + report.duration, 2))

    def write(self, folder: Path) -> Path:
        """Keep it; a part that runs again replaces its record."""
        name = self.part.replace("/", "of") if "/" in self.part else datetime.now(UTC).strftime("%H%M%S")
        file = folder / self.commit / f"{name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        return file


def known_seconds() -> dict[str, float]:
    """How long each file took, by its path; empty before the first record was kept."""
    return dict(json.loads(SECONDS.read_text(encoding="utf-8"))) if SECONDS.exists() else {}


def records_of(commit: str, folder: Path = RECORDS) -> list[Record]:
    files = sorted((folder / commit).glob("*.json"))
    return [Record(**json.loads(file.read_text(encoding="utf-8"))) for file in files]


def report(commit: str, records: Iterable[Record], wanted: Iterable[str]) -> tuple[str, bool]:
    """A table of the parts and a sentence, and whether every test of the storm passed on this commit."""
    lines = ["| part | tests | passed | failed | skipped | seconds | |", "|---|---:|---:|---:|---:|---:|---|"]
    outcomes: dict[str, str] = {}
    for one in records:
        of = Counter(outcome for outcome, _ in one.cells.values())
        note = "files differed from the commit: does not count" if one.changed else one.began
        figures = (len(one.cells), of["passed"], of["failed"], of["skipped"], round(one.seconds))
        lines.append(f"| {one.part} | {' | '.join(map(str, figures))} | {note} |")
        if not one.changed:
            for cell, (outcome, _) in one.cells.items():
                outcomes[cell] = "passed" if "passed" in (outcome, outcomes.get(cell)) else outcome
    cells = set(wanted)
    missing = sorted(cells - outcomes.keys())
    bad = sorted(cell for cell in cells & outcomes.keys() if outcomes[cell] != "passed")
    lines += [
        "",
        *(f"did not run: {cell}" for cell in missing),
        *(f"{outcomes[cell]}: {cell}" for cell in bad),
    ]
    whole = not missing and not bad and bool(cells)
    said = f"The whole storm of {len(cells)} tests passed on {commit}."
    if not whole:
        passed = len(cells) - len(missing) - len(bad)
        said = f"{passed} of {len(cells)} tests of the storm passed on {commit}."
    return "\n".join([*lines, said]), whole


def current_commit() -> tuple[str, bool]:
    """The commit of the checkout, and whether files differ from it."""
    commit = _git("rev-parse", "--short=12", "HEAD").strip()
    return commit, bool(_git("status", "--porcelain", "--untracked-files=no").strip())


class Recorder:
    """A pytest plugin that keeps a record of the run."""

    def __init__(self, part: str) -> None:
        commit, changed = current_commit()
        self.record = Record(commit, changed, part)
        self._began = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.record.add(report)

    def pytest_sessionfinish(self) -> None:
        self.record.seconds = round(time.monotonic() - self._began, 1)
        if self.record.cells:
            self.record.write(RECORDS)


def _weigh(records: Iterable[Record]) -> None:
    seconds: Counter[str] = Counter()
    for one in records:
        for cell, (_, spent) in one.cells.items():
            seconds[cell.partition("::")[0]] += round(spent)  # whole seconds are enough
    kept = known_seconds() | dict(seconds)
    SECONDS.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n", encoding="utf-8")


class _Names:
    """A pytest plugin that keeps the names of the tests that were collected."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.found = [item.nodeid for item in session.items]


def _collected() -> list[str]:
    names = _Names()
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main(["-n", "0", "-m", "storm", "--collect-only", "-q", str(ROOT / "tests")], plugins=[names])
    return names.found


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def main(arguments: list[str]) -> int:
    """Tell what ran; 0 where the whole storm passed."""
    named = [one for one in arguments if not one.startswith("-")]
    commit = named[0] if named else current_commit()[0]
    records = records_of(commit)
    if "--weigh" in arguments:
        _weigh(records)
        return 0
    text, whole = report(commit, records, _collected())
    print(text)
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
