"""How a value is encoded, and how it is read and written: arms of `transformWithState` in Python.

All arms do the same: a key has five numbers, and each row adds to them. What runs in Python workers stands in
this module, which travels by value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from bench.choices.trial import STATE, Arm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NUMBERS = "a bigint, b bigint, c bigint, d bigint, e bigint"
STRINGS = "a string, b string, c string, d string, e string"
NESTED = "x struct<a: bigint, b: bigint>, y struct<c: bigint, d: bigint, z: struct<e: bigint>>"
TEXT = "text string"
ENTRIES = 50
"""How many elements a list, and how many entries a map, holds for each key, from its first row on."""


def _added(numbers: tuple[int, ...], n: int) -> tuple[int, ...]:
    a, b, c, d, _ = numbers
    return a + 1, b + n, max(c, n), min(d, n), n


def numbers_of(stored: Any) -> tuple[int, ...]:
    """Of a flat row of numbers, or of text."""
    return tuple(int(each) for each in stored) if stored else (0, 0, 0, 0, 0)


def flat(numbers: tuple[int, ...]) -> tuple[Any, ...]:
    """As numbers."""
    return numbers


def strings(numbers: tuple[int, ...]) -> tuple[Any, ...]:
    """As text."""
    return tuple(str(each) for each in numbers)


def nested_of(stored: Any) -> tuple[int, ...]:
    """Of two structs, one with a struct inside."""
    if not stored:
        return 0, 0, 0, 0, 0
    (a, b), (c, d, (e,)) = stored
    return a, b, c, d, e


def nested(numbers: tuple[int, ...]) -> tuple[Any, ...]:
    """As two structs."""
    a, b, c, d, e = numbers
    return (a, b), (c, d, (e,))


def json_of(stored: Any) -> tuple[int, ...]:
    """Of a JSON object."""
    return tuple(json.loads(stored[0]).values()) if stored else (0, 0, 0, 0, 0)


def as_json(numbers: tuple[int, ...]) -> tuple[Any, ...]:
    """As a JSON object."""
    return (json.dumps(dict(zip("abcde", numbers, strict=True))),)


def value_arm(
    name: str,
    schema: str,
    read: Callable[[Any], tuple[int, ...]],
    write: Callable[[tuple[int, ...]], tuple[Any, ...]],
    *,
    avro: bool = False,
    each_row: bool = False,
) -> Arm:
    """An arm with a value state: read once a batch and key, or once a row."""
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class Value(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.value = handle.getValueState("value", schema)

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
            numbers = read(self.value.get())
            for row in rows:
                if each_row:
                    numbers = read(self.value.get())
                numbers = _added(numbers, row.n)
                if each_row:
                    self.value.update(write(numbers))
            if not each_row:
                self.value.update(write(numbers))
            yield Row(key=key[0], count=numbers[0])

        def close(self) -> None:
            pass

    encoding = {f"{STATE}encodingFormat": "avro"} if avro else {}
    return Arm(name, lambda frame: _transform(frame, Value()), encoding)


def list_arm(name: str, *, append: bool) -> Arm:
    """An arm with a list of the newest numbers: read whole and written back, or only appended to."""
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class Newest(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.newest = handle.getListState("newest", "n bigint")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
            given = [(row.n,) for row in rows]
            if append:
                first = [] if self.newest.exists() else [(0,)] * ENTRIES
                self.newest.appendList([*first, *given])
            else:
                stored = [*self.newest.get()] or [(0,)] * ENTRIES
                self.newest.put([*stored, *given][-ENTRIES:])
            yield Row(key=key[0], count=len(given))

        def close(self) -> None:
            pass

    return Arm(name, lambda frame: _transform(frame, Newest()))


def array_arm(name: str) -> Arm:
    """The same list as one value with an array."""
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class Newest(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.newest = handle.getValueState("newest", "n array<bigint>")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
            given = [row.n for row in rows]
            stored = self.newest.get()
            self.newest.update(([*(stored[0] if stored else [0] * ENTRIES), *given][-ENTRIES:],))
            yield Row(key=key[0], count=len(given))

        def close(self) -> None:
            pass

    return Arm(name, lambda frame: _transform(frame, Newest()))


def map_arm(name: str, *, whole: bool) -> Arm:
    """An arm with a map from `n % ENTRIES` to a count: one entry read and written a row, or all of them."""
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class Counts(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.counts = handle.getMapState("counts", "slot bigint", "count bigint")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
            stored = {slot[0]: count[0] for slot, count in self.counts.iterator()} if whole else {}
            touched = set() if self.counts.exists() else set(range(ENTRIES))
            stored |= dict.fromkeys(touched, 0)
            for row in rows:
                slot = row.n % ENTRIES
                touched.add(slot)
                if slot not in stored:
                    found = None if whole else self.counts.getValue((slot,))
                    stored[slot] = found[0] if found else 0
                stored[slot] += 1
            for slot in stored if whole else touched:
                self.counts.updateValue((slot,), (stored[slot],))
            yield Row(key=key[0], count=len(touched))

        def close(self) -> None:
            pass

    return Arm(name, lambda frame: _transform(frame, Counts()))


def _transform(frame: DataFrame, processor: Any) -> DataFrame:
    return frame.groupBy("key").transformWithState(
        processor, "key bigint, count bigint", outputMode="Update", timeMode="None"
    )


def encodings() -> list[Arm]:
    """The same value in several encodings; the first is what the others are compared with."""
    return [
        value_arm("five numbers, UnsafeRow", NUMBERS, numbers_of, flat),
        value_arm("five numbers, Avro", NUMBERS, numbers_of, flat, avro=True),
        value_arm("numbers kept as strings", STRINGS, numbers_of, strings),
        value_arm("numbers in structs", NESTED, nested_of, nested),
        value_arm("one JSON text", TEXT, json_of, as_json),
    ]


def access() -> list[Arm]:
    """The same work by other calls; the first is what the others are compared with."""
    return [
        value_arm("value: read once, write once", NUMBERS, numbers_of, flat),
        value_arm("value: read and write at each row", NUMBERS, numbers_of, flat, each_row=True),
        array_arm(f"value with an array of {ENTRIES}"),
        list_arm(f"list of {ENTRIES}: read all, write back", append=False),
        list_arm("list: append only, never read", append=True),
        map_arm("map: the entries of the batch", whole=False),
        map_arm("map: read all, write back", whole=True),
    ]
