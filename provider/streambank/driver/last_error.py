"""The last error in a driver's log, fit to be shown elsewhere: what looks like a secret is left out.

A log is read by whoever may read the driver's host. A failed task's message goes further: to the page, to
mail, to a chat. So what follows a name such as `password` or `access.key`, passwords in addresses, keys of
AWS, and the values of this process's own secret variables are replaced.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from streambank.control.control import JobControl

HIDDEN = "***"
_LONGEST = 500
"""Characters of an error that are shown."""
_NEWEST_EVENTS = 100
"""Events among which a failure is looked for."""
_SHORTEST_SECRET = 6
"""A variable with fewer characters is no secret, and would be replaced in the middle of words."""

_NAMES = (
    r"(?:password|passwd|pwd|secret|token|credential|signature|authorization|api[._-]?key|access[._-]?key|"
    r"account[._-]?key|private[._-]?key|connection[._-]?string)"
)
_VALUE = r"(?:\"[^\"]*\"|'[^']*'|(?:Bearer |Basic )?[^\s,;&)\]}]+)"
_NAMED = re.compile(rf"([\w.-]*{_NAMES}[\w.-]*[\"']?\s*(?:=>|[=:])\s*){_VALUE}", re.IGNORECASE)
_IN_ADDRESS = re.compile(r"(://[^/\s:@]*:)[^/\s@]+(?=@)")
_BEARER = re.compile(r"\b(Bearer|Basic) [A-Za-z0-9+/=._~-]{8,}")
_OF_AWS = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")
_SECRET_VARIABLE = re.compile(_NAMES, re.IGNORECASE)

_ERROR = re.compile(
    r"(?:Caused by: |: )?(?:[A-Za-z_$][\w$]*\.)*"
    r"[A-Za-z_$][\w$]*(?:Error|Exception|Interrupt|Fault|Refused)\b.*"
)
_LEVEL = re.compile(r"(?:\S+ )?\S+ (?:ERROR|FATAL) \S.*")


def recorded_failure(control: JobControl, launch_id: str, *, whole: bool = False) -> str | None:
    """Why a query of a launch failed, as the runner recorded it; None where it recorded no failure.

    Args:
        control: The job's records.
        launch_id: The launch.
        whole: All of it as it was recorded, to be searched and not to be shown.

    Raises:
        StorageError: The records cannot be read.
    """
    for record in control.event_records.history(newest=_NEWEST_EVENTS):
        event = record.data
        mine = event.get("kind") == "query-ended" and event.get("launch_id") == launch_id
        if mine and event.get("failure"):
            return str(event["failure"]) if whole else shown(str(event["failure"]))
    return None


def last_error(lines: Sequence[str], variables: Mapping[str, str] | None = None) -> str | None:
    """What a log says went wrong last; None for an empty log.

    The last line that begins with the name of an error; else the last one of level ERROR; else the last one.

    Args:
        lines: The end of the log.
        variables: The environment whose secrets are left out; this process's by default.
    """
    said = [line.strip() for line in lines if line.strip()]
    found = next((line for line in reversed(said) if _ERROR.match(line)), None)
    found = found or next((line for line in reversed(said) if _LEVEL.match(line)), None)
    found = found or (said[-1] if said else None)
    # What Python's traceback says of an exception of the JVM begins with its colon.
    return None if found is None else shown(found.removeprefix(": "), variables)


def shown(text: str, variables: Mapping[str, str] | None = None) -> str:
    """A text without what looks like a secret, and not too long."""
    for name, value in (os.environ if variables is None else variables).items():
        if len(value) >= _SHORTEST_SECRET and _SECRET_VARIABLE.search(name):
            text = text.replace(value, HIDDEN)
    text = _NAMED.sub(rf"\g<1>{HIDDEN}", text)
    text = _IN_ADDRESS.sub(rf"\g<1>{HIDDEN}", text)
    text = _BEARER.sub(rf"\g<1> {HIDDEN}", text)
    text = _OF_AWS.sub(HIDDEN, text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
