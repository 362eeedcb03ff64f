"""Hot keys by traffic: which share of the rows that reach a stateful operator belongs to one key.

A batch gives quantiles of a hash of the key, over a sample of its rows (`private/key_samples.py`). A key with
a share of p takes up p of the quantiles, since all its rows have the same hash. So a fixed number of
quantiles finds every key above a share, in one pass and in bounded memory, whatever the keys are. Batches are
added up over a window that moves on in slots.

Two errors are bounded: of the quantiles, by their number and their accuracy (Greenwald and Khanna 2001,
Spark's `percentile_approx`), and of the sample, by the score interval of Wilson (1927). The objective
`hot_key` takes the lower end, so the figure is "at least", and an even spread is never called hot.

The keys are not kept: they may be names of people. Their hashes are, if that is declared; otherwise the
hashes are salted, and lead to no key.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from streambank.control.control import JobControl
from streambank.control.progress import ProgressRecord, last_progress
from streambank.core.units import from_json_time, say_duration, to_json_time, utc_now
from streambank.declaration.objectives import PROMISES
from streambank.sla.fact import Fact
from streambank.sla.skew.hot_key_record import read_hot_keys

_ENOUGH = 100
_ROWS_OF_A_KEY = 3
"""Sampled rows of a batch, and for each of its keys, without which a batch says nothing of the keys' mean."""
QUANTILES = 500
"""Of one batch: a key with a share above 1/500 is seen for certain."""
ACCURACY = 5000
"""The accuracy that Spark is asked for: the rank of a quantile is off by 1/5000 of the rows at most."""
QUANTILE_ERROR = 1 / QUANTILES + 2 / ACCURACY
"""By so much the quantiles may be wrong about a share."""
HASH_BITS = 52
"""Of a hash, which a quantile carries as a double without loss: 32 bits decide the partition, 20 tell keys
of one partition apart."""
_PARTITION_BITS = 32
SALTED_BITS = 36
"""Of a salted hash, by which no key can be found; the bits above them are the number of its partition."""
MOST_SALTED = 1 << (HASH_BITS - SALTED_BITS)
"""How many partitions a salted hash can distinguish."""
_SCORE = 4.0
"""Standard deviations of the sample's interval. All 500 keys that can be seen lie within it with 97 %."""
_SLOTS = 10
_KEPT = 500
"""So many keys are kept of a slot; others count as not seen, which makes shares smaller and not larger."""
FRESH = timedelta(hours=1)
"""A measurement counts for so long, or for its window if that is longer."""
_BEFORE = "before the job was last started or restored"


@dataclass(frozen=True, slots=True)
class BatchSample:
    """What one batch says of the keys of an operator.

    Attributes:
        keys: How many keys these have, as counted by HyperLogLog++.
        quantiles: Of the hashes of their keys, at the middles of `QUANTILES` equal parts.
    """

    rows: int
    sampled: int
    keys: int
    quantiles: Sequence[int]


@dataclass(slots=True)
class _Slot:
    begins_s: float
    batches: int = 0
    rows: int = 0
    sampled: int = 0
    keys: float = 0.0
    by_hash: Counter[int] = field(default_factory=Counter)

    def add(self, batch: BatchSample) -> None:
        self.batches += 1
        self.rows += batch.rows
        self.sampled += batch.sampled
        self.keys += batch.keys * batch.sampled
        for key, seen in Counter(batch.quantiles).items():
            self.by_hash[key] += seen * batch.sampled / len(batch.quantiles)  # type: ignore[assignment]  # a Counter adds up floats as well
        if len(self.by_hash) > 2 * _KEPT:
            self.by_hash = Counter(dict(self.by_hash.most_common(_KEPT)))


class TrafficWindow:
    """The traffic of one operator over a window of time, in bounded memory.

    Args:
        sample: The share of rows that is sampled, above 0 and up to 1.
        salted: For how many partitions the salted hashes are made that are added; None where hashes that lead
            to their keys are added, which are reported.
    """

    def __init__(self, window_s: float, sample: float, max_keys: int, *, salted: int | None = None) -> None:
        self._window_s = window_s
        self._sample = sample
        self._max_keys = max_keys
        self._salted = salted
        self._slots: deque[_Slot] = deque()

    def add(self, now_s: float, batch: BatchSample) -> None:
        """Add a batch, at a time of a clock that does not jump."""
        slot_s = self._window_s / _SLOTS
        if not self._slots or now_s >= self._slots[-1].begins_s + slot_s:
            self._slots.append(_Slot(now_s))
        while now_s >= self._slots[0].begins_s + self._window_s + slot_s:
            self._slots.popleft()
        if batch.sampled and batch.quantiles:
            self._slots[-1].add(batch)
        else:
            self._slots[-1].rows += batch.rows

    def describe(self, partitions: int | None = None) -> dict[str, Any]:
        """The measurement as JSON (docs/formats/progress.md).

        Args:
            partitions: How many the operator has; None where its keys do not decide the partition.

        A partition is None where salted hashes were made for another number.
        """
        sampled = sum(slot.sampled for slot in self._slots)
        keys = sum(slot.keys for slot in self._slots) / sampled if sampled else 0.0
        by_hash = sum((slot.by_hash for slot in self._slots), Counter[int]())
        top = []
        for key, seen in by_hash.most_common(self._max_keys):
            share = min(1.0, seen / sampled)
            low, high = interval(share, sampled, self._sample)
            if low > 0:
                found = {
                    "share": _round(share),
                    "low": _round(low),
                    "high": _round(high),
                    "times_mean": _round(max(1.0, low * keys)),
                    "partition": self._partition(key, partitions),
                }
                top.append(found | ({"hash": f"{key:013x}"} if self._salted is None else {}))
        return {
            "batches": sum(slot.batches for slot in self._slots),
            "rows": sum(slot.rows for slot in self._slots),
            "sampled": sampled,
            "keys": round(keys),
            "smallest_share": _round(interval(0.0, sampled, self._sample)[1]) if sampled else None,
            "top": top,
        }

    def _partition(self, key: int, partitions: int | None) -> int | None:
        if partitions is None:
            return None
        if self._salted is None:
            return partition_of(key, partitions)
        return key >> SALTED_BITS if partitions == self._salted else None


def interval(share: float, sampled: int, sample: float) -> tuple[float, float]:
    """Between which shares of all rows a key lies that has a share of the sampled ones.

    Args:
        sample: Which part of all rows was sampled: of 1 nothing is left to chance.
    """
    low = high = share
    if sample < 1:
        rows = sampled / (1 - sample)
        spread = _SCORE * math.sqrt(share * (1 - share) / rows + (_SCORE / (2 * rows)) ** 2)
        middle, scale = share + _SCORE**2 / (2 * rows), 1 + _SCORE**2 / rows
        low, high = (middle - spread) / scale, (middle + spread) / scale
    return max(0.0, low - QUANTILE_ERROR), min(1.0, high + QUANTILE_ERROR)


def partition_of(key: int, partitions: int) -> int:
    """The partition of a key by its hash, whose upper bits are Spark's own hash of it (`Murmur3Hash`)."""
    upper = key >> (HASH_BITS - _PARTITION_BITS)
    signed = upper - (1 << _PARTITION_BITS) if upper >> (_PARTITION_BITS - 1) else upper
    return signed % partitions


def _round(value: float) -> float:
    return float(f"{value:.4g}")


def hot_key_facts(
    control: JobControl, query: str | None, now: datetime | None = None
) -> tuple[list[Fact] | None, str]:
    """The largest key of each operator against the mean: by state, and by the traffic that is measured.

    Args:
        now: The moment; a measurement of traffic that is older than it is fresh does not count.

    Returns:
        The facts, None where there are none; and why traffic was not measured, empty where it was or nothing
        asks for it.

    Raises:
        FormatError: The newest record of state is damaged (code `damaged-record`).
    """
    by_state = read_hot_keys(control, query)
    view = control.lease.view()
    last = last_progress(control.store, query)
    by_traffic, why = facts_of(last, now or utc_now(), None if view is None else view.epoch)
    return (None if by_state is None and not by_traffic else [*(by_state or ()), *by_traffic]), why


def as_of(measured: Mapping[str, Any], now: datetime) -> str:
    """The time of a measurement, for people."""
    age_s = max(0, round((now - from_json_time(measured["at"])).total_seconds()))
    before = "" if measured["current"] else f", {_BEFORE}"
    return f"as of {measured['at']} (batch {measured['batch']}), {say_duration(age_s)} ago{before}"


def facts_of(
    record: ProgressRecord | None, now: datetime, epoch: int | None = None
) -> tuple[list[Fact], str]:
    """What a progress record says of hot keys by traffic.

    Args:
        epoch: The newest epoch of the job's lease; None for that of the record.
    """
    if record is None or record.hot_keys is None:
        return [], ""
    if not record.is_of(epoch):
        return [], f"The newest measurement of traffic is of {to_json_time(record.at)}, {_BEFORE}"
    try:
        fresh = max(FRESH, timedelta(seconds=float(record.hot_keys["window_s"])))
        if now - record.at > fresh:
            return [], f"The newest measurement of traffic is of {to_json_time(record.at)}, which is too old"
        why: list[str] = []
        facts = []
        for hot_key in record.hot_keys["operators"]:
            if hot_key.get("why") is not None:
                why.append(f"{said_of(hot_key)}: {hot_key['why']}")
            elif hot_key["sampled"]:
                largest = hot_key["top"][0]["times_mean"] if hot_key["top"] else 1.0
                if largest <= (PROMISES["hot_key"].warn or 0.0) and not _is_enough(hot_key):
                    why.append(
                        f"{said_of(hot_key)}: too few rows of a batch are sampled to say that no key is hot "
                        f"({hot_key['sampled']:,} in {hot_key['batches']:,} batches); raise hot_keys.sample"
                    )
                    continue
                what = f"{sentence(hot_key, record.hot_keys)} (until batch {record.batch})."
                facts.append(Fact(record.at, float(largest), f"{said_of(hot_key)}, traffic", what))
        return facts, "; ".join(why)
    except (KeyError, TypeError, ValueError, IndexError):
        return [], "The newest measurement of traffic cannot be read"


def _is_enough(operator: Mapping[str, Any]) -> bool:
    """Whether a sample can show that no key is hot: a batch has several sampled rows for each of its keys."""
    in_batch = operator["sampled"] / max(1, operator["batches"])
    return bool(in_batch >= _ENOUGH and in_batch >= _ROWS_OF_A_KEY * operator["keys"])


def said_of(operator: Mapping[str, Any]) -> str:
    """How people call an operator of a measurement."""
    return f"operator {operator['operator']} ({operator['name']})"


def sentence(operator: Mapping[str, Any], measured: Mapping[str, Any]) -> str:
    """The measurement of an operator in one sentence, without its full stop."""
    of = (
        f"of {operator['rows']:,} rows within {float(measured['window_s']) / 60:g} min, of which "
        f"{operator['sampled']:,} were sampled"
    )
    if not operator["top"]:
        smallest = operator["smallest_share"]
        return f"No key has more than {100 * float(smallest or 1.0):.2g} % {of}"
    top = operator["top"][0]
    where = "" if top["partition"] is None else f", in partition {top['partition']}"
    low, share, high = (f"{100 * top[name]:.3g} %" for name in ("low", "share", "high"))
    return (
        f"The largest key has {share} ({low} to {high}) {of}{where}, and is one of about "
        f"{operator['keys']:,} keys of a batch"
    )


def measured_lines(measured: Mapping[str, Any]) -> list[str]:
    """A measurement for people, a line for each operator."""
    return [
        f"{said_of(operator)}: "
        + (
            f"not measured, because {operator['why']}"
            if operator.get("why") is not None
            else sentence(operator, measured)
            if operator["sampled"]
            else "no row was sampled"
        )
        for operator in measured["operators"]
    ]


class Traffic:
    """The traffic of all operators of a query.

    Args:
        points: Of each operator where it is measured: `operator`, `name`, `by`, and `why` if it is not.
    """

    def __init__(
        self,
        points: Iterable[Mapping[str, Any]],
        *,
        sample: float,
        window_s: float,
        max_keys: int,
        salted: int | None,
        clock_s: Callable[[], float],
    ) -> None:
        self._points = [dict(point) for point in points]
        self._settings = {"sample": sample, "window_s": window_s}
        self._clock_s = clock_s
        self._windows = {
            point["operator"]: TrafficWindow(window_s, sample, max_keys, salted=salted)
            for point in self._points
            if point.get("why") is None
        }

    def add(self, samples: Mapping[int, BatchSample]) -> None:
        """Add a batch: what it says of each operator; of one that it does not name it says nothing."""
        for operator, batch in samples.items():
            self._windows[operator].add(self._clock_s(), batch)

    def not_measured(self, why: str) -> None:
        """Give up: no operator is measured from now on; why is a sentence without its full stop."""
        self._windows = {}
        self._points = [{**point, "why": point.get("why") or why} for point in self._points]

    def describe(self, partitions: Mapping[int, int]) -> dict[str, Any]:
        """The measurement as JSON; `partitions`: of operators whose keys decide the partition, how many."""
        return {
            **self._settings,
            "operators": [
                point
                if point.get("why") is not None
                else point | self._windows[point["operator"]].describe(partitions.get(point["operator"]))
                for point in self._points
            ],
        }
