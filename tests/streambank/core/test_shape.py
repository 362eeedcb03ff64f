from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, is_dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, NamedTuple

import pytest

import streambank
import streambank_airflow
import streambank_spark
from streambank.core.errors import FormatError, StorageError
from streambank.core.python310 import UTC, StrEnum
from streambank.core.shape import (
    HIDDEN,
    MILLIS,
    OMIT_EMPTY,
    TENTHS,
    Between,
    JsonName,
    JsonObject,
    decode,
    encode,
    shape_of,
)

AT = datetime(2026, 11, 30, 3, 12, 0, 250_000, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    age_s: Annotated[float, TENTHS] = 0.0


class Kind(StrEnum):
    LOG = "log"
    STATE = "state"


class Entry(NamedTuple):
    path: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Whole(JsonObject):
    number: Annotated[int, JsonName("from"), Between(1, 9)]
    at: datetime
    state: Literal["live", "dead"]
    rows: int | None
    parts: tuple[Part, ...] = ()
    pair: tuple[str, int] = ("a", 1)
    by: Mapping[str, str] = field(default_factory=dict)
    by_name: Mapping[str, Part] = field(default_factory=dict)
    steps: Annotated[Mapping[str, float], MILLIS] = field(default_factory=dict)
    more: Annotated[Mapping[str, str], OMIT_EMPTY] = field(default_factory=dict)
    entries: tuple[Entry, ...] = ()
    whatever: Any = None
    secret: Annotated[str, HIDDEN] = "x"
    _: KW_ONLY
    share: float = 1.0
    sure: bool = True


WHOLE = Whole(
    number=3,
    at=AT,
    state="live",
    rows=None,
    parts=(Part("one", 1.26),),
    by={"user": "ann"},
    by_name={"main": Part("two")},
    steps={"stop": 1.23456},
    entries=(Entry("offsets/1", Kind.LOG),),
)
JSON = {
    "from": 3,
    "at": "2026-11-30T03:12:00.250Z",
    "state": "live",
    "rows": None,
    "parts": [{"name": "one", "age_s": 1.3}],
    "pair": ["a", 1],
    "by": {"user": "ann"},
    "by_name": {"main": {"name": "two", "age_s": 0.0}},
    "steps": {"stop": 1.235},
    "entries": [["offsets/1", "log"]],
    "whatever": None,
    "share": 1.0,
    "sure": True,
}


def test_a_dataclass_is_written_by_its_types() -> None:
    assert WHOLE.to_dict() == JSON


def test_what_is_written_is_read_again() -> None:
    found = decode(Whole, JSON, "record x")
    assert found.to_dict() == JSON
    assert found.parts == (Part("one", 1.3),) and found.at == AT and found.pair == ("a", 1)
    assert found.entries == WHOLE.entries and found.entries[0].kind is Kind.LOG


def test_fields_of_a_later_version_are_ignored_and_those_with_a_default_may_be_missing() -> None:
    least = {"from": 1, "at": "2026-11-30T04:12:00+01:00", "state": "dead", "rows": 2, "later": "?"}
    found = decode(Whole, least, "record x")
    assert found == Whole(1, AT - timedelta(milliseconds=250), "dead", 2)


def test_errors_are_written_by_what_they_say() -> None:
    assert encode(Part(StorageError("It failed.", code="io-error")))["name"]["error"] == "io-error"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"from": None}, "from is not a whole number"),
        ({"from": True}, "from is not a whole number"),
        ({"from": 10}, "from is 10, and must be from 1 to 9"),
        ({"at": "yesterday"}, "at is not a time with its time zone"),
        ({"at": "2026-11-30T03:12:00"}, "at is not a time with its time zone"),
        ({"at": 3}, "at is not a text"),
        ({"state": "undead"}, "state is none of live, dead"),
        ({"state": []}, "state is none of live, dead"),
        ({"rows": "2"}, "rows is not a whole number"),
        ({"parts": {}}, "parts is not a list"),
        ({"parts": [{"name": "one"}, {}]}, "parts[1].name is missing"),
        ({"parts": [{"name": "one"}, 3]}, "parts[1] is not an object"),
        ({"pair": ["a"]}, "pair must have 2 values"),
        ({"pair": ["a", "b"]}, "pair[1] is not a whole number"),
        ({"by": {"user": 3}}, "by.user is not a text"),
        ({"entries": [["x"]]}, "entries[0] must have 2 values"),
        ({"entries": [["x", "logs"]]}, "entries[0][1] is none of log, state"),
        (
            {"by_name": {"main": {"name": "x", "age_s": float("nan")}}},
            "by_name.main.age_s is not a finite number",
        ),
        ({"share": "1"}, "share is not a number"),
        ({"share": 10**400}, "share is not a finite number"),
        ({"sure": 1}, "sure is not true or false"),
    ],
)
def test_one_error_names_the_field_that_cannot_be_read(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(FormatError) as caught:
        decode(Whole, {**JSON, **changed}, "record x", hint="Move it away.")
    assert caught.value.message == f"The record x cannot be read: {said}."
    assert (caught.value.code, caught.value.hint) == ("damaged-record", "Move it away.")


def test_who_reads_may_refuse_in_its_own_words() -> None:
    with pytest.raises(StorageError, match="mark x: name is missing"):
        decode(Part, {}, "mark x", refuse=lambda what, why: StorageError(f"{what}: {why}"))


def test_what_is_no_object_is_no_dataclass() -> None:
    with pytest.raises(FormatError, match="The record x cannot be read: it is not an object"):
        decode(Whole, [], "record x")
    with pytest.raises(FormatError, match="The record x cannot be read: at is missing"):
        decode(Whole, {"from": 1}, "record x")


def test_types_are_looked_at_once_however_many_records_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    decode(Whole, JSON, "record x")
    monkeypatch.setattr("streambank.core.shape.get_origin", lambda kind: pytest.fail(f"{kind} again"))
    assert decode(Whole, JSON, "record x").to_dict() == JSON


def test_other_types_are_read_by_themselves() -> None:
    assert decode(dict[str, tuple[Part, ...]], {"main": [{"name": "x"}]}, "note") == {"main": (Part("x"),)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "package", [streambank, streambank_airflow, streambank_spark], ids=lambda one: one.__name__
)
def test_the_types_of_every_class_that_is_written_by_them_can_be_told(package: Any) -> None:
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    left = [JsonObject]
    while left:
        kinds = left.pop().__subclasses__()
        left += kinds
        for kind in kinds:
            assert not is_dataclass(kind) or shape_of(kind), kind
