"""Windows of the day in which a job's scheduled savepoints are not taken."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import time
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from streambank.declaration.fields import Fields

_WINDOW = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-(?:([01][0-9]|2[0-3]):([0-5][0-9])|(24):(00))")


@dataclass(frozen=True, slots=True)
class Blackout:
    """A window that comes every day, by a clock on the wall.

    Attributes:
        begin: Its first minute, in minutes since midnight.
        end: The minute after its last one, 1440 at most; before `begin` where it goes over midnight.
    """

    begin: int
    end: int

    def __str__(self) -> str:
        return "-".join(f"{minute // 60:02}:{minute % 60:02}" for minute in (self.begin, self.end))

    def holds(self, at: time) -> bool:
        """Whether a time of the day lies in it."""
        minute = at.hour * 60 + at.minute
        if self.begin < self.end:
            return self.begin <= minute < self.end
        return minute >= self.begin or minute < self.end


def parse_blackout(text: str) -> Blackout | None:
    """The window that a text such as `22:00-06:00` names; None where it names none."""
    found = _WINDOW.fullmatch(text)
    if found is None:
        return None
    hours = [int(part) for part in found.groups() if part is not None]
    window = Blackout(hours[0] * 60 + hours[1], hours[2] * 60 + hours[3])
    return None if window.begin == window.end else window


def read_blackout(fields: Fields) -> tuple[tuple[Blackout, ...], str]:
    """`blackout` and `time_zone` of `[jobs.NAME.savepoint]`.

    Raises:
        InputError: One of them is wrong (code `bad-declaration`).
    """
    windows = []
    for text in fields.texts("blackout") or ():
        window = parse_blackout(text)
        if window is None:
            raise fields.mistake(
                "blackout", f"{text!r} is no window of the day", 'Write windows such as "22:00-06:00".'
            )
        windows.append(window)
    zone = fields.text("time_zone")
    if zone is not None:
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise fields.mistake(
                "time_zone", f"{zone!r} is no time zone", "Write a name such as Europe/Berlin."
            ) from error
    return tuple(windows), zone or "UTC"
