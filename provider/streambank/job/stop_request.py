"""A stop that was asked for and is still to be finished, and how whoever asked finds it again."""

from __future__ import annotations

from dataclasses import dataclass

from streambank.control.control import JobControl
from streambank.control.requests import NO_EPOCH, STOP
from streambank.core.names import ASKER


@dataclass(frozen=True, slots=True)
class StopAsked:
    """A stop that was asked for and is still to be finished, by any process; JSON by `asdict`.

    Attributes:
        at: When it was asked for, ISO-8601.
        patience_s: How long the driver may take from then on, in seconds.
        epoch: The epoch of the driver that was asked; None where there is no driver to wait for.
    """

    at: str
    patience_s: float
    epoch: int | None = None
    request: int | None = None


def asked_before(control: JobControl, asker: str) -> StopAsked | None:
    """What an asker has asked for already, by the job's records; None where they never did.

    Its `patience_s` is 0, since that depends on options which the records do not tell.
    """
    asked = control.last_desired(lambda by: by.get(ASKER) == asker)
    if asked is None or asked["state"] != "stopped":
        return None
    return StopAsked(str(asked["at"]), 0.0, *request_of(control, asker))


def request_of(control: JobControl, asker: str) -> tuple[int, int] | tuple[None, None]:
    """The epoch of the driver that an asker has asked to stop, and the number of the request, the newest."""
    for record in control.requests.records.newest_first():
        asked = record.data.get("kind") == STOP and record.data.get("epoch") != NO_EPOCH
        if asked and (record.data.get("by") or {}).get(ASKER) == asker:
            return int(record.data["epoch"]), record.number
    return None, None
