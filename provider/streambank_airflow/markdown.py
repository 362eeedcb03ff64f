"""Plans as Markdown: whatever stands in one gets there by `cell` or `code`, and none of it is markup.

A plan is approved as it is read, so no name, location or note may look like more than itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

from streambank.core.text import visible
from streambank_airflow.hints import in_words

_MARKUP = re.compile(r"([|\[\]`*_~\\])")
_BACKTICKS = re.compile("`+")
_LINE_END = re.compile("\r?\n")
_RETURN = " \u23ce "
"""Stands for the end of a line, and looks like the key for it."""
_OTHER_BLANK = re.compile(r"[^\S ]")
_MORE_BLANKS = re.compile("(?<= ) +")
"""Blanks after the first one, which a page would not show."""


class Markdown(str):
    """Text that is Markdown already: what these functions make of text that is not."""

    __slots__ = ()


def cell(text: str) -> Markdown:
    """Text as itself: it cannot break out of its cell of a table, or bring markup of its own."""
    if isinstance(text, Markdown):
        return text
    return Markdown(_MARKUP.sub(r"\\\1", escape(_line(text), quote=False)))


def code(text: str) -> Markdown:
    """Text as a code span that no backtick in it ends; as plain text where a table could not hold it."""
    line = _line(text)
    if not line or "|" in line:
        return cell(line)
    fence = "`" * (max((len(run) for run in _BACKTICKS.findall(line)), default=0) + 1)
    edge = " " if line.startswith("`") or line.endswith("`") else ""
    return Markdown(f"{fence}{edge}{line}{edge}{fence}")


def filled(pattern: str, *values: str) -> Markdown:
    """A sentence of ours, with the values in its `{}`; those that are no Markdown yet by `cell`."""
    return Markdown(pattern.format(*map(cell, values)))


def table(rows: Iterable[tuple[str, str]]) -> Markdown:
    """A table of two columns without headings; a text that is no Markdown yet by `cell`."""
    lines = "\n".join(f"| {cell(name)} | {cell(value)} |" for name, value in rows)
    return Markdown(f"| | |\n|---|---|\n{lines}\n")


def rows_table(rows: Iterable[tuple[str, str]]) -> Markdown:
    """The rows of a plan or report (procedure/rows.py), with its warnings and notes in Airflow's words."""
    from streambank.procedure.rows import NOTE, WARNING

    return table(
        (f"{title[:1].upper()}{title[1:]}", in_words(text) if title in (WARNING, NOTE) else text)
        for title, text in rows
    )


def _line(text: str) -> str:
    """The same text in one line, with nothing in it that a page would leave out: it is what is approved."""
    shown = visible(_LINE_END.sub(_RETURN, text.strip()))
    shown = _OTHER_BLANK.sub("\ufffd", shown)
    return _MORE_BLANKS.sub(lambda found: "\N{NO-BREAK SPACE}" * len(found[0]), shown)
