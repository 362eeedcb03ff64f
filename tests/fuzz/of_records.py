"""Records that decide which site, code or copy of a job counts, and the notes of unfinished work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

from streambank.code.chosen import choose_code, needed_programs, newest_choice
from streambank.code.code import Code
from streambank.code.vouched import vouch
from streambank.control.control import JobControl
from streambank.control.copies import (
    CopiedQuery,
    begin_refresh,
    begun_refreshes,
    commit_refresh,
    committed_refreshes,
    copied,
    last_refresh,
)
from streambank.control.generations import Generation
from streambank.control.processes import ProcessId, this_host
from streambank.control.records import encode_json
from streambank.control.target_owner import is_live
from streambank.core.errors import StreambankError
from streambank.core.units import utc_now
from streambank.sites.forks import left_after
from streambank.sites.records import SiteRecord, Sites, agree, which_counts
from streambank.storage import open_store
from streambank.upgrade.record import Upgrade, newest_upgrade, remember, upgrades_of
from streambank.work.target import NOTE, Owner, check_target, read_note
from tests.fuzz.inputs import Target, changed, filled, named

BY = {"user": "ann", "via": "cli"}
HERE, THERE = "memory://fuzz-here", "memory://fuzz-there"


def _control(location: str = HERE) -> JobControl:
    return JobControl(open_store(location).child("orders"), "orders")


def _files(make: Callable[[JobControl], object]) -> Callable[[], Mapping[str, bytes]]:
    """What the records of a job hold once something was done with them."""

    @cache
    def made() -> Mapping[str, bytes]:
        filled("fuzz-here", {})
        control = _control()
        make(control)
        return {one.path: control.store.read(one.path) for one in control.store.list()}

    return made


def _target(
    make: Callable[[JobControl], object], *asks: Callable[[JobControl], object], there: bool = False
) -> Target:
    files = _files(make)

    def feed(data: bytes) -> None:
        records = {f"orders/{path}": content for path, content in changed(files(), data).items()}
        filled("fuzz-here", records)
        if there:
            filled("fuzz-there", {f"orders/{path}": content for path, content in files().items()})
        refusals = []
        for ask in asks:
            try:
                ask(_control())
            except StreambankError as error:
                refusals.append(error)
        if refusals:
            raise refusals[0]

    return Target(lambda: named(files()), feed, is_tree=True)


def _make_sites(control: JobControl) -> None:
    sites = Sites(control)
    sites.write(SiteRecord(1, "active", "primary", "primary", False, {}, "", utc_now()))
    left = {"main": "file:///p"}
    begun = SiteRecord(
        2, "failing-over", "standby", "primary", True, BY, "", utc_now(), {}, {"main": 2}, left
    )
    sites.write(begun)
    sites.write(replace(begun, number=3, state="active", savepoints={"main": "b000003-0123456789ab"}))


def _ask_sites(control: JobControl) -> None:
    own = Sites(control)
    left_after(own.all(), "main")
    for one in own.all():
        one.describe()
        one.to_dict()


def _agree(control: JobControl) -> None:
    other = Sites(_control(THERE))
    which_counts(other, Sites(control), "orders")
    agree(other, Sites(control), "orders")


CODE = Code("/srv/a.py", ("x",), {"spark.a": "b"}, "/usr/bin/python3", None, "sha256:" + "0" * 64)


def _make_choice(control: JobControl) -> None:
    vouch(control, "code", CODE.to_dict())
    choose_code(control, replace(CODE, program=None), CODE, by=BY, why="an upgrade")


def _ask_choice(control: JobControl) -> None:
    chosen = newest_choice(control)
    assert chosen is not None
    chosen.counts(CODE)
    assert chosen.words
    if chosen.code is not None:
        assert chosen.code.identity


def _make_refreshes(control: JobControl) -> None:
    begin_refresh(control, ["memory://fuzz-copy/ck.g0002"], by=BY)
    generation = Generation(
        2, "memory://fuzz-copy/ck.g0002", "b000001-aa", utc_now(), BY, {"file:///o": "file:///n"}
    )
    commit_refresh(control, {"main": CopiedQuery(generation, "b000001-aa", 1, utc_now())}, {"by": BY}, seen=0)


def _ask_refreshes(control: JobControl) -> None:
    for _, directories in begun_refreshes(control):
        assert all(isinstance(one, str) for one in directories)
    list(committed_refreshes(control))
    last_refresh(control)
    for one in copied(control).values():
        one.to_dict()


def _make_upgrades(control: JobControl) -> None:
    upgrade = Upgrade("u1", "orders", "rehearsing", CODE, replace(CODE, args=("y",)), ("args",), by=BY)
    upgrade = remember(control, upgrade, state="stopping", savepoints={"main": "b000003-0123456789ab"})
    remember(
        control,
        upgrade,
        state="upgraded",
        batches={"main": 3},
        committed_at={"main": 1.5},
        steps={"stop": 1.0},
    )


def _ask_upgrades(control: JobControl) -> None:
    found = newest_upgrade(control)
    for one in (found, *upgrades_of(control)):
        if one is not None:
            one.to_dict()
            encode_json(one.to_record())
            assert isinstance(one.is_unfinished, bool) and isinstance(one.succeeded, bool)


@cache
def _notes() -> list[bytes]:
    """The note of a layout on this host whose process has ended."""
    owner = {**this_host().to_dict(), **ProcessId("restore", 1, 1).to_dict(), "restore": "x"}
    return [encode_json({NOTE: {"owner": owner, "files": ["metadata"], "job": "orders"}, "id": "q"})]


def _note(data: bytes) -> None:
    store = filled("fuzz-note", {"metadata": data})
    read_note(store)
    check_target(store, Owner({}, is_live))


TARGETS: Mapping[str, Target] = {
    "sites": _target(_make_sites, _ask_sites, _agree, there=True),
    "chosen": _target(_make_choice, _ask_choice, needed_programs),
    "refreshes": _target(_make_refreshes, _ask_refreshes),
    "upgrades": _target(_make_upgrades, _ask_upgrades, needed_programs),
    "notes": Target(_notes, _note),
}
