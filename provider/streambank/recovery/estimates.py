"""How long a restore will take, by what earlier ones and drills took."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from streambank.control.control import JobControl
from streambank.control.drills import last_passed
from streambank.core.shape import MILLIS, encode
from streambank.core.units import say_bytes, say_duration, time_or_none, to_json_time


@dataclass(frozen=True, slots=True)
class Estimate:
    """How long a restore will take, by what an earlier one, or a drill, took.

    Attributes:
        until: `restored`: the checkpoint is there; `first-batch`: the query has committed a batch on it.
        bytes: How much it restored; None for a drill.
    """

    until: Literal["restored", "first-batch"]
    seconds: Annotated[float, MILLIS]
    took_s: Annotated[float, MILLIS]
    at: datetime
    bytes: int | None = None

    def sentence(self) -> str:
        """For people, with what it rests on."""
        about, took, at = say_duration(self.seconds), say_duration(self.took_s), to_json_time(self.at)
        if self.until == "restored":
            copied = f"{say_bytes(self.bytes or 0)} took {took} at {at}"
            return f"about {about} for the copy of its files, not until the first batch: {copied}"
        return f"about {about} until the first batch is committed: the drill at {at} took that long"

    def to_dict(self) -> dict[str, Any]:
        return encode(self) | {"says": self.sentence()}


def estimates(control: JobControl, job: str, size_bytes: int) -> tuple[Estimate, ...]:
    """How long a restore will take, by the newest restore of the query and the newest drill that passed.

    A restore of more bytes takes longer in proportion; one of fewer takes as long, since small
    ones take their time for other things. Nothing where there was neither.

    Args:
        job: `job` or `job/query` of the savepoint.
    """
    found: list[Estimate] = []
    for record in control.stream("restores").newest_first():
        took_s, at, then = (record.data.get(name) for name in ("seconds", "started_at", "bytes"))
        moment = time_or_none(at)
        if record.data.get("job") != job or moment is None or not isinstance(then, int):
            continue
        if isinstance(took_s, (int, float)):
            longer = max(1.0, size_bytes / then) if then else 1.0
            found.append(Estimate("restored", took_s * longer, float(took_s), moment, then))
            break
    passed = last_passed(control)
    if passed is not None:
        rto_s, moment = passed.get("rto_s"), time_or_none(passed.get("started_at"))
        if isinstance(rto_s, (int, float)) and moment is not None:
            found.append(Estimate("first-batch", float(rto_s), float(rto_s), moment))
    return tuple(found)


def unknown_times(known: Collection[str]) -> str:
    """What is not known of how long a restore takes, in sentences; empty where all is."""
    said = []
    if "restored" not in known:
        said.append("How long the copy of its files takes is not known: the query has not been restored yet.")
    if "first-batch" not in known:
        said.append("How long it takes until the first batch is not known: no drill of the job has passed.")
    return " ".join(said)
