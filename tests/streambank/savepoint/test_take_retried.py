"""A take with a name that is asked for again: by another try of the same task, by a person, by others."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.core.errors import InputError, StorageError
from streambank.core.names import ASKER
from streambank.repository.catalog import manifest_key
from tests.support.jobs.simulated_job import JOB, SimulatedJob
from tests.support.refuses import refuses

TRY = {"dag_id": "daily", ASKER: "daily scheduled__2026-11-28 take -1 0"}
CLEARED = {"dag_id": "daily", ASKER: "daily scheduled__2026-11-28 take -1 1"}
ANOTHER_RUN = {"dag_id": "daily", ASKER: "daily scheduled__2026-11-29 take -1 0"}


@pytest.fixture
def shop(tmp_path: Path) -> SimulatedJob:
    return SimulatedJob(tmp_path).run(3)


def names_of(shop: SimulatedJob, savepoint: str) -> tuple[str, ...]:
    return shop.repository.names(shop.repository.load(JOB, savepoint))


def test_another_try_ends_with_the_savepoint_of_the_one_before(shop: SimulatedJob) -> None:
    first = shop.take(name="nightly", taken_by=TRY)
    shop.run(2)

    again = shop.take(name="nightly", taken_by=TRY)

    assert (again.savepoint, again.batch, again.name) == (first.savepoint, first.batch, "nightly")
    assert again.already_there and again.new_bytes == 0


def test_so_does_one_whose_name_was_not_recorded_any_more(
    shop: SimulatedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object, **__: object) -> str:
        raise StorageError("The worker is lost.", code="lost")

    with monkeypatch.context() as patch:
        patch.setattr(type(shop.repository), "give_name", lost)
        with pytest.raises(StorageError):
            shop.take(name="nightly", taken_by=TRY)
    shop.run(2)

    again = shop.take(name="nightly", taken_by=TRY)

    assert again.already_there
    assert shop.repository.find("nightly") == (JOB, again.savepoint)


def test_so_does_one_that_named_a_savepoint_which_another_task_had_taken(shop: SimulatedJob) -> None:
    hourly = shop.take(taken_by={ASKER: "hourly scheduled__2026-11-28 take -1 0"})
    assert shop.take(name="nightly", taken_by=TRY).savepoint == hourly.savepoint
    shop.run(1)

    assert shop.take(name="nightly", taken_by=TRY).savepoint == hourly.savepoint


def test_one_that_a_person_clears_is_of_now_and_takes_the_name_along(shop: SimulatedJob) -> None:
    first = shop.take(name="nightly", taken_by=TRY)
    shop.run(2)

    cleared = shop.take(name="nightly", taken_by=CLEARED)
    retried = shop.take(name="nightly", taken_by=CLEARED)

    assert cleared.batch == first.batch + 2 and not cleared.already_there
    assert shop.repository.find("nightly") == (JOB, cleared.savepoint)
    assert (names_of(shop, first.savepoint), names_of(shop, cleared.savepoint)) == ((), ("nightly",))
    assert (retried.savepoint, retried.already_there) == (cleared.savepoint, True)


def test_cleared_with_no_batch_in_between_it_is_the_same(shop: SimulatedJob) -> None:
    first = shop.take(name="nightly", taken_by=TRY)

    cleared = shop.take(name="nightly", taken_by=CLEARED)

    assert (cleared.savepoint, cleared.already_there) == (first.savepoint, True)


def test_a_try_whose_savepoint_has_expired_takes_another_one(shop: SimulatedJob) -> None:
    first = shop.take(name="nightly", taken_by=TRY)
    shop.run(2)
    shop.repository_store.delete(manifest_key(JOB, first.savepoint))

    again = shop.take(name="nightly", taken_by=TRY)

    assert again.batch == first.batch + 2


@pytest.mark.parametrize("other", [ANOTHER_RUN, {"dag_id": "daily"}, {}])
def test_a_name_of_another_run_or_of_a_person_is_taken(shop: SimulatedJob, other: dict[str, str]) -> None:
    shop.take(name="nightly", taken_by=TRY)
    shop.run(1)

    with refuses(InputError, "name-taken"):
        shop.take(name="nightly", taken_by=other)


def test_a_name_that_a_person_gave_stays_where_it_is(shop: SimulatedJob) -> None:
    shop.take(name="nightly", taken_by={"user": "ann"})
    shop.run(1)

    with refuses(InputError, "name-taken"):
        shop.take(name="nightly", taken_by=TRY)
