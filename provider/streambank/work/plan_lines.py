"""Tasks for machines elsewhere: the plan that goes out and the report that comes back, as lines of JSON.

A plan is a header and portions, one a line; a portion is what one attempt on one machine does as a whole:

    {"plan": 1, "kind": "copy", "repository": "s3://backups/streambank", "parallel": 4, ...}
    {"portion": 0, "tasks": [[0, {"path": "state/0/0/7.zip", "size_bytes": 4194304, ...}], ...]}

What comes back, in any order, for each portion that ended:

    {"task": 0, "outcome": {"digest": "blake3:..."}}
    {"counts": {"new_bytes": 4194304}}
    {"error": {"kind": "ConflictError", "error": "checkpoint-moved", "message": "...", "hint": "..."}}

and `{"end": true}` after the last one. A portion reports only what is durable, and all of it at once.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from streambank.core.errors import ConflictError, FormatError, InternalError, StreambankError
from streambank.core.json_text import loads
from streambank.repository.objects.packs import SMALL_BYTES
from streambank.work.executor import O, T, Task, Threads, Work

PLAN = 1
"""Version of both."""
KINDS: dict[str, str] = {  # a new kind of work is a `Work` and a line here
    "check": "streambank.work.check:Checking",
    "copy": "streambank.work.copy:Copying",
    "move": "streambank.work.move:Moving",
    "place": "streambank.work.place:Placing",
}
"""Kind of work -> dotted path of its class, imported where a plan asks for it."""

MAX_PORTION_BYTES = 256 << 20
MIN_PORTION_BYTES = 16 << 20
MAX_PORTION_FILES = 5000
MIN_PORTION_FILES = 250
PORTIONS = 64
"""So many portions there should be, if the limits of their sizes allow: enough to keep many cores at it."""


def write_plan(path: Path, work: Work[T, O], tasks: Sequence[T], parallel: int | None = None) -> int:
    """Write a plan.

    Raises:
        InputError: See `Work.header`.
    """
    header = {"plan": PLAN, "kind": work.kind, "parallel": parallel or work.at_once(), **work.header()}
    number = -1
    with path.open("w", encoding="utf-8") as lines:
        lines.write(json.dumps(header) + "\n")
        for number, portion in enumerate(cut(tasks)):
            wanted = [[index, tasks[index].to_dict()] for index in portion]
            lines.write(json.dumps({"portion": number, "tasks": wanted}) + "\n")
    return number + 1


def cut(tasks: Sequence[Task]) -> Iterator[list[int]]:
    """The numbers of tasks in portions, the more urgent ones in front.

    Small files go with small ones, so that a portion makes few packs and not one for a handful of files.
    """
    total_bytes, total_files = sum(task.size_bytes for task in tasks), sum(task.files for task in tasks)
    most_bytes = min(MAX_PORTION_BYTES, max(MIN_PORTION_BYTES, total_bytes // PORTIONS))
    most_files = min(MAX_PORTION_FILES, max(MIN_PORTION_FILES, total_files // PORTIONS))
    finished: list[list[int]] = []
    for small in (True, False):
        portion: list[int] = []
        size_bytes = files = 0
        for number, task in enumerate(tasks):
            if (task.size_bytes <= SMALL_BYTES * task.files) is not small:
                continue
            if portion and (size_bytes + task.size_bytes > most_bytes or files + task.files > most_files):
                finished.append(portion)
                portion, size_bytes, files = [], 0, 0
            portion.append(number)
            size_bytes += task.size_bytes
            files += task.files
        if portion:
            finished.append(portion)
    return iter(sorted(finished))


def run_portion(header: str, portion: str, *, last_try: bool = True) -> list[str]:
    """Do one portion of a plan on this machine, and return its lines of the report.

    Before the `last_try` what another try may heal is raised.

    Raises:
        FormatError: The plan is of another version.
    """
    plan = loads(header)
    if plan.get("plan") != PLAN:
        raise FormatError(
            f"The plan is of version {plan.get('plan')!r}, and only version {PLAN} is known.",
            code="unknown-format",
            hint="Use a plan and an engine from the same installation.",
        )
    return list(_lines(plan, loads(portion)["tasks"], last_try))


def _lines(plan: Mapping[str, Any], wanted: Sequence[Sequence[Any]], last_try: bool) -> Iterator[str]:
    kind = _kind(plan["kind"])
    tasks = [(number, kind.read_task(data)) for number, data in wanted]
    number_of = {id(task): number for number, task in tasks}
    outcomes: list[tuple[int, dict[str, Any]]] = []
    moved: ConflictError | None = None

    def done(task: Any, outcome: Any) -> None:
        outcomes.append((number_of[id(task)], kind.write_outcome(outcome)))

    try:
        with kind.opened(plan) as work:
            try:
                Threads(plan["parallel"]).run(work, [task for _, task in tasks], done)
            except ConflictError as error:
                moved = error  # whoever asked plans again; what has arrived is kept, and made durable below
        counts = work.counts()
    except StreambankError as error:
        if error.retryable and not last_try:
            raise
        yield json.dumps({"error": error.to_dict()})
        return
    for number, outcome in outcomes:
        yield json.dumps({"task": number, "outcome": outcome})
    if counts:
        yield json.dumps({"counts": counts})
    if moved is not None:
        yield json.dumps({"error": moved.to_dict()})


def _kind(name: str) -> type[Work[Any, Any]]:
    module, _, kind = KINDS[name].partition(":")
    found: type[Work[Any, Any]] = getattr(importlib.import_module(module), kind)
    return found


def read_error(data: Mapping[str, Any]) -> StreambankError:
    """The error that another machine reported."""
    kinds = {kind.__name__: kind for kind in StreambankError.__subclasses__()}
    kind = kinds.get(str(data.get("kind")), InternalError)
    return kind(str(data["message"]), code=str(data["error"]), hint=str(data.get("hint", "")))
