from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import pytest

from streambank.core.errors import InputError, NotFoundError
from streambank.core.python310 import UTC
from streambank.recovery.choosing.resolve import choose
from streambank.repository.references import (
    Kind,
    check_name_free,
    find,
    job_of_reference,
    moment_of,
    parse_reference,
    resolve,
)
from streambank.repository.repository import Repository
from streambank.storage.memory import MemoryStore
from tests.support.refuses import refuses
from tests.support.repository.repositories import TAKEN_AT, manifest_of, save

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 26, 2, 30, tzinfo=UTC)  # 03:30 in Berlin


@pytest.fixture
def repository() -> Repository:
    repository = Repository.open(MemoryStore(), create=True)
    for batch in (5, 3, 4):
        save(repository, batch=batch, taken_at=TAKEN_AT + timedelta(hours=batch))
    save(repository, job="orders/late", batch=3)
    save(repository, job="orders/early", batch=3)
    return repository


def id_of(batch: int, job: str = "flights") -> str:
    return manifest_of(job=job, batch=batch).savepoint


@pytest.mark.parametrize(
    ("text", "place", "kind"),
    [
        ("b000041-5d0a41c2e7b9", None, "id"),
        ("b0000", None, "id"),
        ("b", None, "id"),
        ("orders/late/b000041", "orders/late", "id"),
        ("latest", None, "latest"),
        ("orders/latest-good", "orders", "latest-good"),
        ("before-upgrade", None, "name"),
        ("b-day", None, "name"),
        ("orders/v2.1", "orders", "name"),
        ("batch:41", None, "batch"),
        ("orders/batch:0", "orders", "batch"),
        ("03:00", None, "time"),
        ("3:00:30", None, "time"),
        ("03:00+01:00", None, "time"),
        ("2026-11-26", None, "time"),
        ("2026-11-26 03:00", None, "time"),
        ("2026-11-26T03:00:00.5Z", None, "time"),
        ("orders/late/2026-11-26T03:00-0330", "orders/late", "time"),
    ],
)
def test_each_reference_has_one_meaning(text: str, place: str | None, kind: Kind) -> None:
    read = parse_reference(text)
    assert (read.place, read.kind) == (place, kind)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("batch:", "bad-name"),
        ("batch:4x", "bad-name"),
        ("batch:-1", "bad-name"),
        ("noon:ish", "bad-time"),
        ("03:00 tomorrow", "bad-time"),
        ("", "bad-name"),
        ("two words", "bad-name"),
        ("b\n", "bad-name"),
        (" 03:00", "bad-time"),
    ],
)
def test_what_is_no_reference_is_refused(text: str, code: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_reference(text)
    assert (caught.value.code, bool(caught.value.hint)) == (code, True)


@pytest.mark.parametrize(
    ("said", "zone", "expected", "called"),
    [
        ("03:00", BERLIN, "2026-11-26T02:00:00+00:00", "Europe/Berlin"),  # today: it is 03:30
        ("03:31", BERLIN, "2026-11-25T02:31:00+00:00", "Europe/Berlin"),  # not yet today
        ("03:00", UTC, "2026-11-25T03:00:00+00:00", "UTC"),
        ("02:00Z", BERLIN, "2026-11-26T02:00:00+00:00", "UTC"),
        ("2026-11-26", BERLIN, "2026-11-25T23:00:00+00:00", "Europe/Berlin"),
        ("2026-07-01 12:00", BERLIN, "2026-07-01T10:00:00+00:00", "Europe/Berlin"),
        ("2026-07-01T12:00:30.25", UTC, "2026-07-01T12:00:30.250000+00:00", "UTC"),
        ("2026-07-01T12:00-0330", BERLIN, "2026-07-01T15:30:00+00:00", "-03:30"),
    ],
)
def test_a_time_is_read_by_the_clocks_of_the_job(said: str, zone: tzinfo, expected: str, called: str) -> None:
    name = "UTC" if zone is UTC else "Europe/Berlin"
    found = moment_of(said, name, zone, NOW)
    assert (found.at.astimezone(UTC).isoformat(), found.zone) == (expected, called)


@pytest.mark.parametrize(
    "said", ["25:00", "03:60", "2026-02-30", "2026-01-01T24:10", "03:00:60", "03:00+99:00"]
)
def test_a_time_that_no_clock_shows_is_refused(said: str) -> None:
    with refuses(InputError, "bad-time"):
        moment_of(said, "UTC", UTC, NOW)


class TestByTime:
    """The savepoints were taken at TAKEN_AT plus 3, 4 and 5 hours."""

    @pytest.mark.parametrize(("hours", "batch"), [(3, 3), (3.9, 3), (4, 4), (99, 5)])
    def test_the_newest_that_is_not_younger(self, repository: Repository, hours: float, batch: int) -> None:
        said = (TAKEN_AT + timedelta(hours=hours)).isoformat()
        assert repository.find(said, "flights") == ("flights", id_of(batch))
        assert repository.find(f"flights/{said}") == ("flights", id_of(batch))

    def test_a_zone_moves_it(self, repository: Repository) -> None:
        said = (TAKEN_AT + timedelta(hours=5)).astimezone(UTC).replace(tzinfo=None).isoformat()
        assert repository.find(said, "flights")[1] == id_of(5)
        repository.zone_of = lambda job: ("Europe/Berlin", BERLIN)  # an hour earlier
        found = repository.resolve(said, "flights")
        assert found.savepoint == id_of(4)
        assert found.as_of is not None
        assert found.as_of.zone == "Europe/Berlin"
        assert str(found.as_of).endswith("+01:00 (Europe/Berlin)")

    def test_before_the_first_one_there_is_none(self, repository: Repository) -> None:
        with refuses(NotFoundError, "no-such-savepoint") as caught:
            repository.find((TAKEN_AT + timedelta(hours=2)).isoformat(), "flights")
        assert id_of(3) in caught.value.hint

    def test_needs_one_job(self, repository: Repository) -> None:
        with refuses(InputError, "which-job"):
            repository.find("03:00")


class TestByBatch:
    def test_the_one_of_it(self, repository: Repository) -> None:
        assert repository.find("batch:4") == ("flights", id_of(4))
        assert repository.find("orders/late/batch:3") == ("orders/late", id_of(3, "orders/late"))

    def test_not_of_one_that_begins_so(self, repository: Repository) -> None:
        save(repository, batch=41)
        assert repository.find("batch:4", "flights") == ("flights", id_of(4))
        with pytest.raises(NotFoundError):
            repository.find("batch:400", "flights")

    def test_of_several_jobs(self, repository: Repository) -> None:
        with refuses(InputError, "ambiguous"):
            repository.find("batch:3")


class TestByName:
    def test_the_one_that_has_it(self, repository: Repository) -> None:
        assert repository.give_name("flights", id_of(4), "before-upgrade") == id_of(4)
        assert repository.find("before-upgrade") == ("flights", id_of(4))
        assert repository.find("flights/before-upgrade") == ("flights", id_of(4))
        assert job_of_reference(repository.store, "before-upgrade", None) == "flights"
        with pytest.raises(NotFoundError):
            repository.find("before-upgrad")
        with pytest.raises(NotFoundError):
            repository.find("before-upgrade", "orders")

    def test_each_job_has_names_of_its_own(self, repository: Repository) -> None:
        repository.give_name("flights", id_of(4), "x")
        repository.give_name("orders/late", id_of(3, "orders/late"), "x")
        assert find(repository.store, "x", "orders") == ("orders/late", id_of(3, "orders/late"))
        with refuses(InputError, "ambiguous"):
            repository.find("x")

    def test_of_a_copy_without_records_the_manifest_says_it(self, repository: Repository) -> None:
        save(repository, batch=6, name="before-upgrade")
        assert repository.find("before-upgrade", "flights") == ("flights", id_of(6))
        # A record counts for more.
        repository.give_name("flights", id_of(4), "before-upgrade")
        assert repository.find("before-upgrade", "flights") == ("flights", id_of(4))
        names = {one.batch: one.names for one in repository.manifests("flights")}
        assert names == {3: (), 4: ("before-upgrade",), 5: (), 6: ()}

    def test_two_manifests_that_say_it_are_ambiguous(self, repository: Repository) -> None:
        save(repository, batch=6, name="x")
        save(repository, batch=7, name="x")
        with refuses(InputError, "ambiguous"):
            repository.find("x", "flights")

    def test_is_free_once_it_is_asked_for_the_same_savepoint(self, repository: Repository) -> None:
        repository.give_name("flights", id_of(4), "x")
        check_name_free(repository.store, "flights", "x", id_of(4))
        with refuses(InputError, "name-taken") as caught:
            check_name_free(repository.store, "flights", "x", id_of(5))
        assert id_of(4) in caught.value.message


def test_what_a_reference_resolves_to_does_not_depend_on_the_clock(repository: Repository) -> None:
    said, now = "10:00", TAKEN_AT + timedelta(days=30)
    assert resolve(repository.store, said, "flights", now=now).savepoint == id_of(5)


@pytest.mark.parametrize("said", ["latest", "latest-good", "03:00", "2030-01-01"])
def test_a_place_does_not_lead_to_another_job_than_the_one_that_is_named(
    repository: Repository, said: str
) -> None:
    with refuses(InputError, "another-job"):
        resolve(repository.store, f"flights/{said}", "orders/late")
    with refuses(InputError, "another-job"):
        choose(repository, f"flights/{said}", "orders/late", record=False)


def test_latest_is_the_newest_batch_though_a_clock_was_ahead_for_a_while(repository: Repository) -> None:
    hours = {351: 2, 356: 0, 454: 1}
    for batch, hour in hours.items():
        save(repository, job="jumps", batch=batch, taken_at=TAKEN_AT + timedelta(hours=hour))
    for said in ("latest", "latest-good"):
        assert resolve(repository.store, said, "jumps").savepoint.startswith("b000454")
