"""How large state gets, before a job runs: how many rows live at once, and what each takes.

A row of a window lives until the watermark passes the window's end (Spark: WatermarkSupport,
StateStoreSaveExec), that is for the length of the window and the watermark's delay. Spark moves the watermark
once a batch, so it lives one batch longer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from streambank.advice.memory import check_numbers
from streambank.advice.request import LoadRequest
from streambank.core.errors import InputError
from streambank.core.shape import encode

KEY_FIELD_BYTES = 8
"""Of each field of an UnsafeRow: the value itself, or where it lies and how long it is."""
VERSION_BYTES = 1
"""In front of each key and value in RocksDB (Spark: RocksDBStateEncoder)."""


@dataclass(frozen=True, slots=True)
class StateSize:
    """How large state gets.

    Attributes:
        rows: Rows that live at once, as expected: events spread evenly over keys.
        most_rows: As many as there can be; the same as `rows` where no rate is known.
        lives_s: How long a row lives after its window has begun; None for always.
        windows: Windows of one key that live at once; None without windows.
        how: Sentences that say what it comes from.
        update_share: The part of the rows that a batch changes; None where the time between batches is not
            known.
    """

    rows: int
    most_rows: int
    row_bytes: int
    lives_s: float | None
    windows: int | None
    how: tuple[str, ...]
    unknown: tuple[str, ...] = ()
    update_share: float | None = None

    @property
    def state_bytes(self) -> int:
        """Uncompressed bytes of all rows that are expected."""
        return self.rows * self.row_bytes

    def to_dict(self) -> dict[str, Any]:
        return encode(self) | {
            "state_bytes": self.state_bytes,
            "most_state_bytes": self.most_rows * self.row_bytes,
        }


def row_bytes(fixed_fields: int, text_bytes: tuple[int, ...] = ()) -> int:
    """Bytes of an UnsafeRow: a bitmap of nulls, 8 bytes a field, and texts rounded up to 8 bytes.

    Args:
        fixed_fields: Numbers, times and booleans.
    """
    fields = fixed_fields + len(text_bytes)
    bitmap = 8 * math.ceil(fields / 64)
    return bitmap + KEY_FIELD_BYTES * fields + sum(8 * math.ceil(one / 8) for one in text_bytes)


def estimate(keys: int | None, row_bytes: int, load: LoadRequest) -> StateSize:
    """How large state gets.

    Args:
        keys: Distinct keys among the events; None if unknown.
        row_bytes: Bytes of a key and its value, as the function `row_bytes` counts them.

    Raises:
        InputError: A number makes no sense, or too little is known (code `bad-input`).
    """
    _check(keys, row_bytes, load)
    found = _estimate(keys, row_bytes, load)
    if load.events_per_second is None or not load.trigger_s or not found.rows:
        return found
    windows = math.ceil(load.window_s / (load.slide_s or load.window_s)) if load.window_s else 1
    touched = windows * _distinct(keys, load.events_per_second * load.trigger_s)
    return replace(found, update_share=min(1.0, touched / found.rows))


def _estimate(keys: int | None, row_bytes: int, load: LoadRequest) -> StateSize:
    if load.window_s is not None:
        return _of_windows(keys, row_bytes, load, load.window_s)
    if load.dedup_s is not None:
        return _of_duplicates(keys, row_bytes, load, load.dedup_s)
    lives_s = load.ttl_s if load.ttl_s is not None else load.watermark_s
    if lives_s is None:
        if keys is None:
            raise InputError(
                "How many rows the state has is not known: give keys, or a rate with a lifetime.",
                code="bad-input",
                hint="Give --keys, or --events-per-second with --ttl, or --window.",
            )
        return StateSize(
            keys,
            keys,
            row_bytes,
            None,
            None,
            (f"{keys:,} keys with one row each, which live until they are removed by hand.",),
            ("How fast new keys come: without a window, a watermark or a TTL the state grows with each.",),
        )
    lives_s += load.trigger_s or 0.0
    if load.events_per_second is None:
        if keys is None:
            raise InputError(
                "How many rows live at once is not known: give the keys or the events per second.",
                code="bad-input",
                hint="Give --keys or --events-per-second.",
            )
        return StateSize(
            keys, keys, row_bytes, lives_s, None,
            (f"{keys:,} keys, if each comes again within {lives_s:g} s.",),
            ("The events per second: fewer keys live at once if not all come within their lifetime.",),
        )  # fmt: skip
    rows = _distinct(keys, load.events_per_second * lives_s)
    return StateSize(
        rows, rows if keys is None else min(keys, math.ceil(load.events_per_second * lives_s)),
        row_bytes, lives_s, None,
        (f"{load.events_per_second:g} events/s for {lives_s:g} s" + _among(keys) + f": {rows:,} rows.",),
    )  # fmt: skip


def _of_windows(keys: int | None, row_bytes: int, load: LoadRequest, window_s: float) -> StateSize:
    slide_s = load.slide_s if load.slide_s is not None else window_s
    if load.watermark_s is None:
        raise InputError(
            "Windows without a watermark are never removed, so the state has no size.",
            code="bad-input",
            hint="Give --watermark, the delay of the query's withWatermark.",
        )
    lives_s = window_s + load.watermark_s + (load.trigger_s or 0.0)
    windows = math.ceil(lives_s / slide_s)
    said = (
        f"A window of {window_s:g} s lives until the watermark, {load.watermark_s:g} s behind, has passed "
        "its end"
        + (f", and one batch of {load.trigger_s:g} s more" if load.trigger_s else "")
        + f": {lives_s:g} s. One begins every {slide_s:g} s, so at most {windows} live at once."
    )
    if load.events_per_second is None:
        if keys is None:
            raise InputError(
                "How many rows a window has is not known: give the keys or the events per second.",
                code="bad-input",
                hint="Give --keys or --events-per-second.",
            )
        rows = windows * keys
        return StateSize(
            rows, rows, row_bytes, lives_s, windows,
            (said, f"{keys:,} keys in each: {rows:,} rows."),
            ("The events per second: a window has fewer rows than keys if not every key comes in it.",),
        )  # fmt: skip
    whole = _distinct(keys, load.events_per_second * window_s)
    area = _filling(keys, load.events_per_second, window_s) + (lives_s - window_s) * whole
    rows, most = round(area / slide_s), windows * whole
    return StateSize(
        rows, most, row_bytes, lives_s, windows,
        (said, f"{load.events_per_second:g} events/s{_among(keys)} fill a whole window with {whole:,} "
         f"rows; the newest ones are still being filled: {rows:,} rows on average, {most:,} at most."),
    )  # fmt: skip


def _of_duplicates(keys: int | None, row_bytes: int, load: LoadRequest, dedup_s: float) -> StateSize:
    lives_s = 2 * dedup_s + (load.trigger_s or 0.0)
    said = (
        f"The row of a key lives until the watermark, {dedup_s:g} s behind, has passed its first event by as "
        f"much: {lives_s:g} s"
    )
    if load.events_per_second is None:
        raise InputError(
            "How many keys come within that time is not known: give the events per second.",
            code="bad-input",
            hint="Give --events-per-second.",
        )
    if keys is None:
        rows = math.ceil(load.events_per_second * lives_s)
        return StateSize(rows, rows, row_bytes, lives_s, None, (f"{said}, each with another key.",))
    waits_s = keys / load.events_per_second
    rows = round(keys * lives_s / (lives_s + waits_s))
    said += f"; its next event comes {waits_s:.3g} s later: {rows:,} of {keys:,} keys on average."
    return StateSize(rows, keys, row_bytes, lives_s, None, (said,))


def _filling(keys: int | None, events_per_s: float, window_s: float) -> float:
    """The rows of a window, summed over the seconds from its begin to its end: `_distinct` integrated."""
    if keys is None:
        return events_per_s * window_s**2 / 2
    return keys * (window_s + keys / events_per_s * math.expm1(-events_per_s * window_s / keys))


def _distinct(keys: int | None, events: float) -> int:
    """Different keys among so many events that hit keys evenly; each another one where no number is known."""
    if keys is None:
        return math.ceil(events)
    return min(keys, round(keys * -math.expm1(-events / keys))) if keys else 0


def _among(keys: int | None) -> str:
    return ", each with another key" if keys is None else f" evenly over {keys:,} keys"


LEAST_RATE, MOST_RATE = 1e-6, 1e12
"""Events a second between which the formulas can calculate."""


def _check(keys: int | None, row_bytes: int, load: LoadRequest) -> None:
    _check_combined(load)
    numbers = {
        "--keys": keys,
        "--row-bytes": row_bytes,
        "--window": load.window_s,
        "--slide": load.slide_s,
        "--dedup": load.dedup_s,
        "--ttl": load.ttl_s,
        "--trigger": load.trigger_s,
    }
    check_numbers(numbers)
    if load.events_per_second is not None and not LEAST_RATE <= load.events_per_second <= MOST_RATE:
        raise InputError(
            "--events-per-second must be between 0.000001 and 1,000,000,000,000.",
            code="bad-input",
            hint="Give the events per second of all keys together.",
        )
    if load.slide_s is not None and (load.window_s is None or load.slide_s > load.window_s):
        raise InputError(
            "--slide needs --window, and cannot be longer than the window.",
            code="bad-input",
            hint="A tumbling window has no --slide.",
        )


def _check_combined(load: LoadRequest) -> None:
    apart = (
        ("--window", load.window_s, "--dedup", load.dedup_s, "Plan each operator by itself."),
        ("--window", load.window_s, "--ttl", load.ttl_s, "Plan each operator by itself."),
        ("--dedup", load.dedup_s, "--ttl", load.ttl_s, "Plan each operator by itself."),
        ("--dedup", load.dedup_s, "--watermark", load.watermark_s,
         "--dedup is the delay of the watermark; leave --watermark out."),
        ("--ttl", load.ttl_s, "--watermark", load.watermark_s,
         "--ttl is the whole life of a row: add the watermark's delay to it if the row waits for that."),
    )  # fmt: skip
    for one, first, other, second, hint in apart:
        if first is not None and second is not None:
            raise InputError(
                f"{one} and {other} each say how long a row lives, so only one of them can count.",
                code="usage",
                hint=hint,
            )
    lives = (load.window_s, load.slide_s, load.watermark_s, load.dedup_s, load.ttl_s)
    if any(one is not None for one in lives):
        return
    if load.trigger_s is not None and load.events_per_second is None:
        raise InputError(
            "--trigger says nothing without a rate, or without how long a row lives.",
            code="usage",
            hint="Give --events-per-second, --window, --watermark, --dedup or --ttl with it.",
        )
    if load.trigger_s is None and load.events_per_second is not None:
        raise InputError(
            "--events-per-second says nothing without how long a row lives, or how often batches come.",
            code="usage",
            hint="Give --window, --watermark, --dedup, --ttl or --trigger with it.",
        )
