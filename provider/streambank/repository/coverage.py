"""How much of a savepoint has been hashed, and when: the arithmetic of sampled verification.

Digests are spread evenly, so their first 32 bits are positions on a circle of 2^32. Each sampled run hashes
the objects in one window of the circle, and the next one goes on where it ended. Windows of consecutive runs
touch each other, so runs whose shares add up to the whole circle have looked at every position: an object
that was there all the time has been hashed, whatever savepoints came, went or were repacked in between.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import Any

from streambank.core.errors import InputError
from streambank.core.units import from_json_time, to_json_time
from streambank.repository.digest import split_digest

POSITIONS = 1 << 32
# A `Fraction` also reads `1e999999999`, and computes for hours what that is.
_PERCENT = re.compile(r"(\d{1,20}(?:\.\d{0,20})?|\.\d{1,20}) *%", re.ASCII)


def position(digest: str) -> int:
    """Where an object lies on the circle."""
    return int(split_digest(digest)[1][:8], 16)


def parse_share(text: str) -> Fraction:
    """The share that a run looks at, from text such as `10%` or `2.5%`.

    Raises:
        InputError: It is not above 0 and at most 100 percent (code `bad-share`).
    """
    percent = _PERCENT.fullmatch(text.strip())
    share = Fraction(percent[1]) / 100 if percent else Fraction(0)
    if not 0 < share <= 1:
        raise InputError(
            f"{text!r} is not a share of a repository.",
            code="bad-share",
            hint="Write a percentage above 0 and at most 100, such as 10%.",
        )
    return share


@dataclass(frozen=True, slots=True)
class Window:
    """The part of the circle that one run looks at; it may go over the end to the beginning.

    Attributes:
        width: How many positions, `POSITIONS` at most.
    """

    start: int
    width: int

    @classmethod
    def of(cls, start: int, share: Fraction) -> Window:
        """The window that begins at a position and holds at least this share of the circle."""
        return cls(start, min(POSITIONS, -(-share.numerator * POSITIONS // share.denominator)))

    @property
    def end(self) -> int:
        """Where the next window begins."""
        return (self.start + self.width) % POSITIONS

    def holds(self, place: int) -> bool:
        """Whether a position lies in it."""
        return (place - self.start) % POSITIONS < self.width

    def arcs(self) -> Iterator[tuple[int, int]]:
        """It as one or two ranges, first position and the one after the last."""
        last = self.start + self.width
        yield self.start, min(last, POSITIONS)
        if last > POSITIONS:
            yield 0, last - POSITIONS


@dataclass(frozen=True, slots=True)
class Span:
    """A range of positions that one run looked at.

    Attributes:
        end: The one after its last.
        at: When that run ended, in UTC.
        ok: Whether the savepoint's objects there were what was stored.
    """

    start: int
    end: int
    at: datetime
    ok: bool


@dataclass(frozen=True, slots=True)
class Coverage:
    """For each position of the circle the newest run that hashed a savepoint's objects there.

    Attributes:
        spans: In order and apart from each other; what lies between was never looked at.
    """

    spans: tuple[Span, ...] = ()

    @classmethod
    def whole(cls, at: datetime, ok: bool) -> Coverage:
        """After a run that hashed everything."""
        return cls((Span(0, POSITIONS, at, ok),))

    def after(self, window: Window, at: datetime, ok: bool) -> Coverage:
        """After one more run."""
        spans = list(self.spans)
        for start, end in window.arcs():
            spans = [part for span in spans for part in _without(span, start, end)]
            spans.append(Span(start, end, at, ok))
        return Coverage(tuple(sorted(spans, key=lambda span: span.start)))

    @property
    def ok(self) -> bool:
        """Whether nothing that was hashed was damaged when it was last hashed."""
        return all(span.ok for span in self.spans)

    @property
    def since(self) -> datetime | None:
        """Every byte has been hashed since then; None where some never were."""
        end = 0
        for span in self.spans:
            if span.start != end:
                return None
            end = span.end
        return min(span.at for span in self.spans) if end == POSITIONS else None

    def to_list(self) -> list[list[Any]]:
        """It as JSON: first position, end, time and result of each span."""
        return [[span.start, span.end, to_json_time(span.at), span.ok] for span in self.spans]

    @classmethod
    def from_list(cls, spans: Iterable[Any]) -> Coverage:
        """What `to_list` gave; nothing where it cannot be understood, so that all is hashed again."""
        try:
            found = cls(tuple(Span(start, end, from_json_time(at), ok) for start, end, at, ok in spans))
        except (TypeError, ValueError):
            return cls()
        edge = 0
        for span in found.spans:
            if type(span.start) is not int or type(span.end) is not int or type(span.ok) is not bool:
                return cls()
            if not edge <= span.start < span.end <= POSITIONS:
                return cls()
            edge = span.end
        return found


def _without(span: Span, start: int, end: int) -> Iterator[Span]:
    """What is left of a span outside of a range."""
    if span.start < start:
        yield Span(span.start, min(span.end, start), span.at, span.ok)
    if span.end > end:
        yield Span(max(span.start, end), span.end, span.at, span.ok)
