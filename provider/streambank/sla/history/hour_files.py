"""Hours of a query's history as they are kept beside its records, a file a day (docs/formats/hours.md).

They are a cache: what is in them can be had from the records again, as long as those are there. A file that
is damaged, of another version or gone is the same as one that was never written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from streambank.control.records import encode_json
from streambank.core.errors import NotFoundError
from streambank.core.json_text import loads
from streambank.core.names import MAIN
from streambank.core.units import EPOCH, from_json_time, to_json_time
from streambank.sla.history.hour import hour_of
from streambank.sla.history.point import Point, Stretch
from streambank.storage.store import Store, read_record
from streambank.storage.threads import at_once, each

FORMAT = 1
DAY_HOURS = 24
_NAME = re.compile(r"(\d{4}-\d{2}-\d{2})\.json")
_FIGURES = 3

Hours = dict[int, Sequence[Point]]
"""Points by hour, counted from 1970 on; an hour without batches has none."""


@dataclass(frozen=True, slots=True)
class KeptHours:
    """What is kept.

    Attributes:
        hours: Every hour that is known, whether or not it had batches.
        files: The highest number of a file of records that was there when the newest of them were made.
    """

    hours: Hours = field(default_factory=dict)
    files: int = 0


class HourFiles:
    """The files of one query, `sla/hours/<query>/<day>.json` below its job's records."""

    def __init__(self, store: Store, query: str | None = None) -> None:
        self._store = store
        self._query = query or MAIN
        self._prefix = f"sla/hours/{self._query}"

    def read(self, begin: int) -> KeptHours:
        """What is kept of the days from that of the hour `begin` on."""
        days = [day for day in self._days() if day >= begin // DAY_HOURS]
        parallel = at_once(self._store) if self._store.features.remote else 1
        hours: Hours = {}
        files = 0
        for found in each(partial(self._read), days, parallel):
            if found is not None:
                hours.update(found.hours)
                files = max(files, found.files)
        return KeptHours(hours, files)

    def write(self, hours: Mapping[int, Sequence[Point]], files: int) -> None:
        """Keep hours, whole days of them: what was kept of these days is replaced.

        The oldest day first. A crash in between leaves the newest day with the number of before, by which
        whatever made older hours be made again is seen again.
        """
        for day in sorted({hour // DAY_HOURS for hour in hours}):
            of_day = range(day * DAY_HOURS, (day + 1) * DAY_HOURS)
            data = {
                "format": FORMAT,
                "query": self._query,
                "files": files,
                "hours": {
                    f"{hour - of_day.start:02d}": [_encode(point) for point in hours[hour]]
                    for hour in of_day
                    if hour in hours
                },
            }
            self._store.write(self._key(day), encode_json(data))

    def drop_before(self, hour: int) -> None:
        """Delete the days before that of an hour."""
        for day in self._days():
            if day < hour // DAY_HOURS:
                self._store.delete(self._key(day))

    def drop_from(self, hour: int) -> None:
        """Delete the days from that of an hour on."""
        for day in reversed(self._days()):
            if day >= hour // DAY_HOURS:
                self._store.delete(self._key(day))

    def _days(self) -> list[int]:
        names = (_NAME.fullmatch(name) for name in self._store.names(self._prefix))
        return sorted(day for name in names if name is not None and (day := _day_of(name[1])) is not None)

    def _key(self, day: int) -> str:
        return f"{self._prefix}/{(EPOCH + timedelta(days=day)).date().isoformat()}.json"

    def _read(self, day: int) -> KeptHours | None:
        try:
            data = loads(read_record(self._store, self._key(day)))
            if data["format"] != FORMAT or data["query"] != self._query:
                return None
            hours: Hours = {}
            for text, points in data["hours"].items():
                hour = day * DAY_HOURS + int(text)
                hours[hour] = [_decode(point, hour) for point in points]
            return KeptHours(hours, int(data["files"]))
        except NotFoundError:  # somebody else dropped it
            return None
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            return None


def _day_of(text: str) -> int | None:
    try:
        return (datetime.fromisoformat(text).replace(tzinfo=UTC) - EPOCH).days
    except ValueError:
        return None


def _encode(point: Point) -> dict[str, Any]:
    stretch = point.stretch
    assert stretch is not None, "only hours are kept"
    return {
        "at": _microseconds(point.at),
        "began": _microseconds(stretch.began),
        "batches": stretch.count,
        "first": stretch.first,
        "last": point.batch,
        "run_id": point.run_id,
        "epoch": point.epoch,
        "watermark": to_json_time(point.watermark) if point.watermark else None,
        "values": _figures(point.values, stretch.lowest.values, stretch.highest.values),
        "operators": {
            str(operator): _figures(
                values, stretch.lowest.operators[operator], stretch.highest.operators[operator]
            )
            for operator, values in point.operators.items()
        },
    }


def _figures(*of: Mapping[str, float]) -> dict[str, list[float]]:
    return {name: [one[name] for one in of] for name in of[0]}


def _decode(data: Mapping[str, Any], hour: int) -> Point:
    """A point as it was kept.

    Raises:
        ValueError, KeyError, TypeError, AttributeError, OverflowError: It is none, or not of that hour.
    """
    at, began = _moment(data["at"]), _moment(data["began"])
    if not began <= at or hour_of(at) != hour or hour_of(began) != hour:
        raise ValueError(f"not within hour {hour}")
    epoch, watermark = data["epoch"], data["watermark"]
    last = Point(
        at,
        int(data["last"]),
        None if data["run_id"] is None else str(data["run_id"]),
        None if epoch is None else int(epoch),
        watermark=None if watermark is None else from_json_time(watermark),
    )
    each_values = list(_unfold(data["values"]))
    each_operators: list[dict[int, Mapping[str, float]]] = [{} for _ in range(_FIGURES)]
    for operator, values in data["operators"].items():
        for place, one in enumerate(_unfold(values)):
            each_operators[place][int(operator)] = one
    middle, lowest, highest = (
        replace(last, values=values, operators=operators)
        for values, operators in zip(each_values, each_operators, strict=True)
    )
    stretch = Stretch(int(data["batches"]), began, int(data["first"]), lowest, highest)
    return replace(middle, stretch=stretch)


def _unfold(values: Mapping[str, Sequence[float]]) -> Iterable[dict[str, float]]:
    """`_figures`, taken apart again."""
    found: tuple[dict[str, float], ...] = tuple({} for _ in range(_FIGURES))
    for name, figures in values.items():
        for one, figure in zip(found, figures, strict=True):
            number = float(figure)
            if not math.isfinite(number):
                raise ValueError(f"{name} is {number}")
            one[name] = number
    return found


def _microseconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def _moment(microseconds: Any) -> datetime:
    return EPOCH + timedelta(microseconds=int(microseconds))
