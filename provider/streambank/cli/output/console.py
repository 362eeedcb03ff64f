"""What is written where.

Answers go to stdout: text for people, or with `--json` exactly one JSON document. Progress, warnings and
errors go to stderr. On a terminal there are bars and drawn tables; elsewhere plain lines that a log can hold.

Notes, records and names of files are of other people: whatever is written here for people goes through
`visible`, so that none of it steers the terminal.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from streambank.core.errors import StorageError
from streambank.core.text import CONTROL, visible

if TYPE_CHECKING:
    from streambank.work.pace import Step

LINE_EVERY_S = 10.0
"""How often a long phase says in a log how far it is."""

Shows = Callable[[Any], None]


@dataclass(slots=True)
class Mode:
    """How this process answers.

    Attributes:
        json: One JSON document instead of text.
        answered: Whether the one JSON document has been begun.
    """

    json: bool = False
    debug: bool = False
    answered: bool = False

    def reset(self, arguments: Sequence[str]) -> None:
        """Start again; the plain look at the arguments is for mistakes that end before options are read."""
        given = arguments[: arguments.index("--")] if "--" in arguments else arguments
        self.json = "--json" in given
        self.debug = "--debug" in given
        self.answered = False


MODE = Mode()


class OutputClosedError(Exception):
    """Whoever read our answer has seen enough: `streambank list | head`. Not a failure."""


def answer(data: Any, text: Callable[[], None]) -> None:
    """Give a command's answer: `data` as the JSON document, or what `text` prints.

    Raises:
        OutputClosedError: Nobody reads it any more.
        StorageError: It cannot be written (code `output-not-written`).
    """
    if MODE.json:
        write_document(data)
    else:
        with _writing():
            text()


def write_document(data: Any) -> None:
    """The one JSON document of a `--json` run; whatever comes after it is not written.

    Raises:
        OutputClosedError, StorageError: As `answer`.
    """
    if MODE.answered:
        return
    MODE.answered = True
    with _writing():
        # JSON is UTF-8; where stdout is something else its escapes say the same.
        for part in json.JSONEncoder(indent=2, ensure_ascii=not is_utf8()).iterencode(data):
            sys.stdout.write(CONTROL.sub(_escaped, part))
        sys.stdout.write("\n")


def _escaped(found: re.Match[str]) -> str:
    """A control character that JSON leaves as it is, by its escape; line breaks between values stay."""
    return "\n" if found[0] == "\n" else f"\\u{ord(found[0]):04x}"


def prepare_output() -> None:
    """Let no character be too much for stdout: what its encoding lacks is written escaped, as on stderr."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def discard_output() -> None:
    """Let nothing more be written to stdout, not even what Python flushes at its exit."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _writing() -> Iterator[None]:
    """Write to stdout to the last byte, or say why not."""
    if sys.stdout is None:
        raise _not_written("it is closed")
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise OutputClosedError from error
    except OSError as error:
        raise _not_written(error.strerror or str(error)) from error


def _not_written(why: str) -> StorageError:
    return StorageError(
        f"The answer could not be written to stdout: {why}.",
        code="output-not-written",
        hint="Send stdout to where it can be written. The command itself was carried out.",
    )


def is_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def is_utf8() -> bool:
    """Whether stdout takes every character as it is."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return encoding.lower().replace("_", "-") in ("utf-8", "utf8")


def line(text: str = "") -> None:
    """A line of the answer."""
    print(visible(text))


CLEAR = "\x1b[2J\x1b[H"
"""What empties a terminal."""


def clear() -> None:
    """An empty terminal, for an answer in place of the one before."""
    sys.stdout.write(CLEAR)


def note(text: str) -> None:
    """A line beside the answer, or several: a warning, an error, or how far the work is."""
    print("\n".join(map(visible, text.split("\n"))), file=sys.stderr)


class LogLines(logging.Handler):
    """Shows what the engine logs as lines beside the answer: what it does and waits for, and warnings.

    `--debug` shows what it logs for debugging, too.
    """

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < (logging.DEBUG if MODE.debug else logging.INFO):
            return
        warning = "warning: " if record.levelno >= logging.WARNING else ""
        note(f"{warning}{record.getMessage()}")


@contextmanager
def log_shown() -> Iterator[None]:
    """Show what the engine logs while a command runs (`LogLines`)."""
    lines = LogLines()
    loggers = [logging.getLogger(name) for name in ("streambank", "streambank_spark")]
    for logger in loggers:
        logger.addHandler(lines)
        logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(lines)
            logger.setLevel(logging.NOTSET)


def fields(pairs: Sequence[tuple[str, object]]) -> None:
    """Named values, one a line, aligned; those that are None or empty are left out."""
    shown = [(name, visible(str(value))) for name, value in pairs if value not in (None, "")]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        line(f"{name:<{width}}  {value}")


_GAP = 2
"""Spaces between two columns of a table."""
_FOLDED = 24
"""The last column is folded rather than left out where it has this much room."""


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    right: Sequence[str] = (),
    drop: Sequence[str] = (),
) -> None:
    """A table: drawn by rich on a terminal, aligned by spaces elsewhere.

    Args:
        rows: Cells; None is empty.
        right: Headings of the columns that are aligned on the right.
        drop: Headings of the columns that a narrow terminal does without, the first of them first. Where
            there are any, no cell is folded but the last column's.
    """
    cells = [["" if cell is None else visible(str(cell)) for cell in row] for row in rows]
    if is_terminal():
        _draw(columns, cells, right, drop)
        return
    lines = [list(columns), *cells]
    widths = [max(len(row[at]) for row in lines) for at in range(len(columns))]
    for row in lines:
        parts = (
            f"{cell:>{width}}" if column in right else f"{cell:<{width}}"
            for cell, width, column in zip(row, widths, columns, strict=True)
        )
        line("  ".join(parts).rstrip())


def _draw(
    columns: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[str], drop: Sequence[str]
) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    terminal = Console()
    shown = _fitting(columns, cells, drop, terminal.width) if drop else range(len(columns))
    plain = bool(os.environ.get("NO_COLOR"))
    drawn = Table(box=box.SIMPLE_HEAD, header_style="" if plain else "bold", pad_edge=False)
    for at in shown:
        justify: Literal["left", "right"] = "right" if columns[at] in right else "left"
        whole = bool(drop) and columns[at] != columns[-1]
        drawn.add_column(columns[at], justify=justify, overflow="fold", no_wrap=whole)
    for row in cells:
        drawn.add_row(*(Text(row[at]) for at in shown))
    terminal.print(drawn)
    left_out = [column for at, column in enumerate(columns) if at not in shown]
    if left_out:
        note(f"Not shown at {terminal.width} columns: {', '.join(left_out)}. --json has everything.")


def _fitting(
    columns: Sequence[str], cells: Sequence[Sequence[str]], drop: Sequence[str], width: int
) -> list[int]:
    """Places of the columns that fit side by side, those that may go taken in as far as there is room."""
    from rich.cells import cell_len

    widths = [max(cell_len(row[at]) for row in [columns, *cells]) for at in range(len(columns))]
    widths[-1] = min(widths[-1], _FOLDED)
    shown = [at for at, column in enumerate(columns) if column not in drop]
    for column in reversed(drop):
        at = columns.index(column)
        if sum(widths[one] + _GAP for one in (*shown, at)) - _GAP <= width:
            shown.append(at)
    return sorted(shown)


@contextmanager
def progress() -> Iterator[Callable[[Step], None]]:
    """A callback for long work: bars on a terminal, a line a phase elsewhere, always on stderr."""
    if sys.stderr.isatty():
        with _bars() as callback:
            yield callback
    else:
        lines = _Lines()
        yield lines
        lines.finish()


@contextmanager
def _bars() -> Iterator[Callable[[Step], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description:<7}"),
        BarColumn(),
        TextColumn("{task.fields[files]:>15}"),
        DownloadColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def show(step: Step) -> None:
            if step.phase not in tasks:
                tasks[step.phase] = bars.add_task(step.phase, files="")
            bars.update(
                tasks[step.phase],
                completed=step.bytes_done,
                total=step.bytes_total,
                files=f"{step.files_done}/{step.files_total} files",
            )

        yield show


class _Lines:
    """One line when a phase is over, and one every `LINE_EVERY_S` while it lasts."""

    def __init__(self) -> None:
        self._last: Step | None = None
        self._said: Step | None = None
        self._at_s = time.monotonic()

    def __call__(self, step: Step) -> None:
        if self._last is not None and self._last.phase != step.phase:
            self.finish()
        self._last = step
        if time.monotonic() - self._at_s >= LINE_EVERY_S:
            self._say(step)

    def finish(self) -> None:
        """The phase is over."""
        if self._last is not None and self._last != self._said:
            self._say(self._last)

    def _say(self, step: Step) -> None:
        counted_bytes = f", {size(step.bytes_done)}/{size(step.bytes_total)}" if step.bytes_total else ""
        note(f"{step.phase}: {step.files_done}/{step.files_total} files{counted_bytes}")
        self._said = step
        self._at_s = time.monotonic()


def size(size_bytes: int | None) -> str:
    """Bytes for people, in powers of 1000: `1.2 MB`."""
    if size_bytes is None:
        return ""
    from streambank.core.units import say_bytes

    return say_bytes(size_bytes)


def age(seconds: float) -> str:
    """How long ago, for people: `40 s`, `7 h 30 min`."""
    from streambank.core.units import say_duration

    return say_duration(max(0, round(seconds)))


def count(number: int, what: str) -> str:
    """`1 file`, `2 files`."""
    from streambank.core.units import say_count

    return say_count(number, what)


def bar(share: float, width: int) -> str:
    """A bar of a share of some width; a share that is not nothing is at least one step."""
    steps = min(width, max(round(share * width), 1 if share > 0 else 0))
    return ("\u2588" if is_utf8() else "#") * steps


def findings(found: Sequence[Mapping[str, Any]]) -> None:
    """Findings of verify, inspect and doctor: what, where, and what to do."""
    for each in found:
        where = f" {each['file']}" if each.get("file") else ""
        line(f"{each['severity']}: {each['code']}{where}: {each['cause']}")
        if each.get("effect"):
            line(f"  effect: {each['effect']}")
        if each.get("hint"):
            line(f"  hint: {each['hint']}")
