"""Text and numbers that a page may show: plain, without secrets, and of bounded length.

What is shown goes further than what a record holds: to everyone who may see the job in a browser. So every
text of a snapshot goes through here once more, whatever was done to it before.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

from streambank.core.environment import fill_in
from streambank.core.text import visible
from streambank.core.units import to_json_time
from streambank.declaration.declaration import Job
from streambank.driver.failure import HIDDEN, is_secret, secret_values, secrets_within, without

TEXT_CHARACTERS = 500
"""The longest text of a part; a longer one ends with an ellipsis."""
PART_BYTES = 256 << 10
"""The largest part, as compact JSON in ASCII."""
_READ_CHARACTERS = 4000
"""So many characters of a text are read: the message of a failed query may be megabytes long."""
_KEY_CHARACTERS = 200
_REMEMBERED_CHARACTERS = 200
"""A text that is no longer is made plain once, however often it is shown."""
_DEPTH = 24
_ELLIPSIS = "\u2026"
_USER_INFO = re.compile(r"(?<=://)(?<!abfs://)(?<!abfss://)(?<!wasb://)(?<!wasbs://)[^/\s]*@")
"""Azure has its container there."""
_QUERY = re.compile(r"((?!file:)\b[A-Za-z][A-Za-z0-9+.:-]*://[^\s?\"'<>]*)\?[^\s\"'<>)\]]+")
_ORACLE_USER = re.compile(r"(\bjdbc:oracle:\w{1,16}:)[^/\s@]{0,128}/\*\*\*@", re.IGNORECASE)
_BREAK = re.compile(r"\s*[\r\n]+\s*")


class Plain:
    """Makes values plain JSON.

    Args:
        secrets: Values that must not be shown, by names that say so (`password`, `access.key`, ...); others
            are shown.
    """

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._secrets = tuple(secret_values(secrets.items()))

    @classmethod
    def of_job(cls, job: Job) -> Plain:
        """Without the secrets of this process's environment, and of a job's settings and arguments."""
        named: list[tuple[str, str]] = []
        for one in (job, job.other_site):
            if one is None:
                continue
            for settings in (one.spark, one.kafka.config):
                named += settings.items()
            for sink in one.sinks:
                named += [*sink.catalog.items(), *sink.options.items(), ("", sink.url or "")]
            named += [(name, value) for name, _, value in (each.partition("=") for each in one.args)]
            named += pairwise(one.args)
        plain = cls({})
        variables = _shared(tuple(os.environ.items()))
        plain._secrets = _secrets(variables, tuple((name, str(value)) for name, value in named))
        return plain

    def text(self, text: str, most: int = TEXT_CHARACTERS) -> str:
        """A text in one line: no secret, no user and query of an address, no character that steers."""
        make = _plain_again if len(text) <= _REMEMBERED_CHARACTERS else _plain
        return shortened(make(text[:_READ_CHARACTERS], self._secrets), most)

    def json(self, value: Any, most: int = TEXT_CHARACTERS, depth: int = _DEPTH) -> Any:
        """A value as JSON that any reader understands: texts as `text`, times in UTC, no infinite numbers."""
        if value is None or isinstance(value, bool | int):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else None
        if isinstance(value, datetime):
            return to_json_time(value)
        if isinstance(value, str):
            return self.text(value, most)
        if depth == 0:
            return _ELLIPSIS
        if isinstance(value, Mapping):
            return {
                self.text(str(name), _KEY_CHARACTERS): self._named(str(name), one, most, depth)
                for name, one in value.items()
            }
        if isinstance(value, list | tuple | set | frozenset):
            return [self.json(one, most, depth - 1) for one in value]
        return self.text(str(value), most)

    def _named(self, name: str, value: Any, most: int, depth: int) -> Any:
        """A value of a mapping, whose name may say that it is a secret."""
        if isinstance(value, str) and is_secret(name, value):
            return HIDDEN
        return self.json(value, most, depth - 1)


def _plain(text: str, secrets: tuple[str, ...]) -> str:
    found = without(text, secrets)
    found = _ORACLE_USER.sub(r"\1@", _QUERY.sub(r"\1", _USER_INFO.sub("", found)))
    return visible(_BREAK.sub(" ", found).replace("\t", "    "))


# Most texts of a snapshot are those of the one before: names of fields, reasons, ids.
_plain_again = lru_cache(maxsize=1 << 14)(_plain)


@lru_cache(maxsize=4)
def _shared(variables: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """The same environment as one object, for all jobs."""
    return variables


@lru_cache(maxsize=2048)
def _secrets(variables: tuple[tuple[str, str], ...], named: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    known = dict(variables)
    filled = [(name, _filled(value, known)) for name, value in named]
    within = [found for _, value in filled for found in secrets_within(value)]
    more = [*within, *(unquote(one) for one in within)]
    return tuple(secret_values([*variables, *filled], more))


def _filled(value: str, variables: Mapping[str, str]) -> str:
    try:
        return fill_in(value, variables, lambda what, hint: ValueError(what))
    except ValueError:
        return value


def shortened(text: str, most: int) -> str:
    """A text of so many characters at most; one that was cut ends with an ellipsis."""
    return text if len(text) <= most else text[: most - 1].rstrip() + _ELLIPSIS


def rounded(value: float) -> float | int:
    """A number with four digits that count, which is as much as a chart shows."""
    short = float(f"{value:.4g}")
    return int(short) if short.is_integer() else short


def size_of(value: Any) -> int:
    """Bytes of a value as compact JSON in ASCII."""
    return len(json.dumps(value, separators=(",", ":")))


def digest_of(part: Mapping[str, Any]) -> str:
    """By what a part is recognised that has not changed: 16 hex digits over its content without `at`."""
    content = {name: value for name, value in part.items() if name != "at"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def fitted(part: dict[str, Any], most_bytes: int = PART_BYTES) -> dict[str, Any]:
    """A part that is no larger than it may be: its largest list loses its end until it fits.

    `events` lose their beginning, which is the oldest of them. `more` counts what was left out.

    Args:
        part: Plain JSON; it is changed.
    """
    while size_of(part) > most_bytes:
        lists = {name: size_of(one) for name, one in part.items() if isinstance(one, list | dict) and one}
        if not lists:
            break
        name = max(lists, key=lambda one: lists[one])
        whole = part[name]
        left = len(whole) * 3 // 4
        kept = slice(len(whole) - left, None) if name == "events" else slice(left)
        part[name] = whole[kept] if isinstance(whole, list) else dict(list(whole.items())[kept])
        part["more"] = int(part.get("more") or 0) + len(whole) - left
    return part
