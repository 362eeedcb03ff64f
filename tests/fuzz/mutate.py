"""Inputs that are nearly right: other bytes, JSON with other values, types and names, sealed again."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

from streambank.repository.sealed import seal

NUMBERS = (
    0,
    -1,
    1,
    2**31,
    2**32,
    2**63 - 1,
    2**63,
    2**64,
    -(2**63),
    10**19,
    10**29,
    1e308,
    -1e308,
    5e-324,
    0.1,
    True,
)
RAW = (
    b"1e999",
    b"-1e999",
    b"NaN",
    b"Infinity",
    b"[" * 3000,
    b'{"a":' * 3000,
    b"9" * 5000,
    b"-" + b"9" * 400,
    b"1e-99999",
    b'"\\ud800"',
    b'"\\u0000"',
    b"null",
    b"",
    b"[]",
    b"{}",
    b'""',
    b"0001",
    b"true",
    b"\xff\xfe",
)
TEXTS = (
    "",
    "\x00",
    "\u202e",
    "../../x",
    "/",
    "a" * 5000,
    "9" * 30,
    "-1",
    "1e400",
    "\ud800",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59.999999Z",
    "2026-11-25T00:00:00Z",
    "NaN",
    "{}",
    "[[[",
    "decimal(38,99)",
    "blake3:00",
    "%n",
)
_NUMBER = re.compile(rb"-?[0-9]+")
_SEAL = re.compile(rb'\n"([a-z_]+_digest)": "(blake3|sha256):[0-9a-f]{64}"\n\}\n\Z')


class Mutator:
    """Makes inputs from seeds, always the same ones for the same source of chance."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def __call__(self, data: bytes, others: Sequence[bytes]) -> bytes:
        """A changed copy of one seed, maybe with a part of another one."""
        sealed = _SEAL.search(data)
        if sealed is not None and self.chance.random() < 0.8:
            body = data[: sealed.start() + 1]
            changed = self._change(body, others)
            return b"".join(seal((changed,), sealed[1].decode(), sealed[2].decode()))
        return self._change(data, others)

    def _change(self, data: bytes, others: Sequence[bytes]) -> bytes:
        for _ in range(self.chance.choice((1, 1, 1, 2, 4))):
            data = self.chance.choice((self._bytes, self._json, self._json, self._numbers))(data, others)
        return data

    def _bytes(self, data: bytes, others: Sequence[bytes]) -> bytes:
        at, to = sorted(self.chance.randrange(len(data) + 1) for _ in range(2))
        other = self.chance.choice(others)
        part = other[self.chance.randrange(len(other) + 1) :][: self.chance.choice((1, 8, 64, 4096))]
        ways: tuple[Callable[[], bytes], ...] = (
            lambda: data[:at] + bytes([self.chance.randrange(256)]) + data[at + 1 :],
            lambda: data[:at] + data[to:],
            lambda: data[:to] + data[at:],
            lambda: data[:at],
            lambda: data[:at] + part + data[at:],
            lambda: data[:at] + self.chance.choice(RAW) + data[to:],
            lambda: data[:at] + bytes([self.chance.choice((0, 127, 128, 255))]) * 4 + data[at + 4 :],
        )
        return self.chance.choice(ways)()

    def _numbers(self, data: bytes, others: Sequence[bytes]) -> bytes:
        """Another number in the place of one, wherever it stands."""
        found = list(_NUMBER.finditer(data[:200_000]))
        if not found:
            return self._bytes(data, others)
        one = self.chance.choice(found)
        new = self.chance.choice((*(str(number).encode() for number in NUMBERS), *RAW))
        return data[: one.start()] + new + data[one.end() :]

    def _json(self, data: bytes, others: Sequence[bytes]) -> bytes:
        """Another value, type, name or depth somewhere in a line that is JSON."""
        lines = data.split(b"\n")
        places = [number for number, line in enumerate(lines) if line[:1] in (b"{", b"[", b'"')][:2000]
        if not places:
            return self._bytes(data, others)
        number = self.chance.choice(places)
        line = lines[number].rstrip(b",")
        field = line[:1] == b'"'
        try:
            value = json.loads(b"{" + line + b"}" if field else line)
        except (ValueError, RecursionError):
            return self._bytes(data, others)
        try:
            changed = json.dumps(self._node(value, 0), ensure_ascii=False).encode("utf-8", "surrogatepass")
        except (ValueError, RecursionError):
            return self._bytes(data, others)
        lines[number] = (changed[1:-1] if field else changed) + lines[number][len(line) :]
        return b"\n".join(lines)

    def _node(self, value: Any, depth: int) -> Any:
        inner = value if isinstance(value, dict | list) else None
        if inner and self.chance.random() < 0.75:
            if isinstance(inner, list):
                at = self.chance.randrange(len(inner))
                return [*inner[:at], self._node(inner[at], depth + 1), *inner[at + 1 :]]
            name = self.chance.choice(list(inner))
            return {**inner, name: self._node(inner[name], depth + 1)}
        return self._other(value, inner)

    def _other(self, value: Any, inner: Any) -> Any:
        text = value if isinstance(value, str) else ""
        if text[:1] in ("{", "[") and self.chance.random() < 0.7:  # JSON within JSON, as Spark writes it
            try:
                return json.dumps(self._node(json.loads(text), 0))
            except (ValueError, RecursionError):
                return text[: len(text) // 2]
        ways: list[Callable[[], Any]] = [
            lambda: self.chance.choice(NUMBERS),
            lambda: self.chance.choice(TEXTS),
            lambda: self.chance.choice((None, [], {}, True, [None], {"": None})),
            lambda: [value],
            lambda: {"a": value},
            lambda: text * 3,
            lambda: text[:-1],
        ]
        if isinstance(inner, dict) and inner:
            gone = self.chance.choice(list(inner))
            ways += [
                lambda: {name: one for name, one in inner.items() if name != gone},
                lambda: {**inner, self.chance.choice(TEXTS): inner[gone]},
                lambda: list(inner.values()),
            ]
        if isinstance(inner, list) and inner:
            ways += [lambda: inner * 3, lambda: inner[:-1], lambda: [*inner, inner[0]], lambda: inner[0]]
        return self.chance.choice(ways)()
