"""Savepoints of all queries of a job that belong together, and the nearest place that has all of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import InputError, IntegrityError, NotFoundError
from streambank.core.names import PRIMARY, STANDBY
from streambank.declaration.declaration import Job
from streambank.recovery.choosing import resolve
from streambank.recovery.choosing import together as choosing
from streambank.recovery.choosing.nearest import choose_nearest
from streambank.recovery.choosing.resolve import choose
from streambank.recovery.choosing.together import from_place
from streambank.recovery.together import plan_together, restore_together
from streambank.replicas.replicate import newest_first, open_replica, replicate
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import VerifyReport, verify
from streambank.sinks.unguarded import sinks_from_descriptions
from streambank.sites.records import SiteRecord, Sites
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.cli import succeed
from tests.support.jobs.simulated_job import BY
from tests.support.jobs.trio import BEGIN, QUERIES, Trio, flip, stands_at, unreadable
from tests.support.refuses import refuses


def test_they_belong_together_where_one_has_none_newer(trio: Trio) -> None:
    """One query has no savepoint since minute 10: the others go back to theirs of that time."""
    trio.take_all(0)
    trio.run(1)
    together_at = trio.take_all(10)
    trio.run(1)
    for minute in (20, 30):
        trio.run(1)
        trio.take("hours", minute)
        trio.take("users", minute)
    report = trio.restore()
    assert {name: one.plan.savepoint for name, one in report.reports.items()} == together_at
    assert report.plan.skew_s == 2.0


def test_a_closer_one_that_expires_meanwhile_is_passed_over(
    trio: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    trio.take_all(0)
    closest = trio.take_all(10)["hours"]
    trio.run(1)
    newest = trio.take("hours", 12)

    def expired(repository: Repository, job: str, savepoint: str, *args: Any, **options: Any) -> VerifyReport:
        if savepoint == closest:
            raise NotFoundError("It is gone.", code="no-such-savepoint", hint="")
        return verify(repository, job, savepoint, *args, **options)

    monkeypatch.setattr(resolve, "verify", expired)
    hours = plan_together(trio.request()).plans["hours"]
    assert hours.savepoint == newest
    assert [(one.savepoint, one.why) for one in hours.skipped] == [(closest, "It has expired meanwhile.")]


def test_a_damaged_one_takes_the_others_along(trio: Trio) -> None:
    older = trio.take_all(0)
    trio.run(1)
    newer = trio.take_all(10)
    flip(trio.repository, "users", newer["users"])
    report = trio.restore()
    assert {name: one.plan.savepoint for name, one in report.reports.items()} == older


def test_a_moment_or_a_name_stands_for_one_of_each(trio: Trio) -> None:
    older = trio.take_all(0)
    trio.run(1)
    newer = trio.take_all(10)
    for query, savepoint in older.items():
        trio.repository.give_name(f"flights/{query}", savepoint, "calm", by=BY)
    for reference, expected in (
        ("2026-03-01T12:05Z", older),
        ("2026-03-01T13:00+00:30", newer),
        ("calm", older),
        ("latest", newer),
    ):
        plans = plan_together(trio.request(reference=reference)).plans
        assert {name: one.savepoint for name, one in plans.items()} == expected, reference


@pytest.mark.parametrize("reference", ["b000002", "batch:2", "flights/users/latest-good"])
def test_a_savepoint_of_one_query_is_none_of_a_job(trio: Trio, reference: str) -> None:
    trio.take_all(0)
    with refuses(InputError, "names-one-query"):
        plan_together(trio.request(reference=reference))


@pytest.mark.parametrize("left", [QUERIES[:1], QUERIES[:2]])
def test_savepoints_that_were_named_of_other_queries_are_refused(trio: Trio, left: tuple[str, ...]) -> None:
    """Queries were declared no more since they were planned: what is left is not all that was approved."""
    taken = trio.take_all(0)
    trio.job = replace(trio.job, queries={name: trio.job.queries[name] for name in left})
    for named in (taken, {"users": taken["users"]}):
        for doing in (plan_together, restore_together):
            with refuses(InputError, "names-one-query"):
                doing(trio.request(savepoints=named))
        with pytest.raises(InputError, match="savepoints are named of"):
            from_place(
                trio.job, "nearest", "latest-good", control=trio.control, target=trio.job.queries["hours"],
                record=False, savepoints=named,
            )  # fmt: skip
    assert trio.generations() == dict.fromkeys(QUERIES, (1, None))


def test_of_a_time_the_error_names_the_time_of_the_next_older_one(trio: Trio) -> None:
    older = trio.take_all(0)
    trio.run(1)
    newer = trio.take_all(10)
    unreadable(trio.repository, "users", newer["users"])
    with pytest.raises(IntegrityError) as caught:
        plan_together(trio.request(reference="2999-01-01"))
    assert newer["users"] in caught.value.message and older["users"] in caught.value.message
    moment = "2026-03-01T12:00:02.000Z"
    assert caught.value.hint.startswith(f"To go back that far, give {moment} as the savepoint instead of")
    plan = plan_together(trio.request(reference=moment))
    assert {name: one.savepoint for name, one in plan.plans.items()} == older


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("readable", [True, False])
def test_what_the_error_names_belongs_together(trio: Trio, query: str, readable: bool) -> None:
    """Hourly savepoints of each query, a second after the other, and the newest of one is damaged."""
    trio.take_all(-60)
    trio.run(1)
    older = trio.take_all(0)
    trio.run(1)
    newer = trio.take_all(60)
    (flip if readable else unreadable)(trio.repository, query, newer[query])
    with pytest.raises(IntegrityError) as caught:
        plan_together(trio.request(reference="latest", whole=True))
    assert older[query] in caught.value.message
    moment = "2026-03-01T12:00:02.000Z"
    if readable or query == "users":
        assert f"give {moment} as the savepoint instead of latest" in caught.value.hint
        plan = plan_together(trio.request(reference=moment))
    else:  # any later moment than that of the older one may mean the one that cannot be read
        assert caught.value.hint.startswith("Latest-good goes back by itself, with all queries to")
        plan = plan_together(trio.request())
    assert {name: one.savepoint for name, one in plan.plans.items()} == older and plan.skew_s == 2.0


@pytest.mark.parametrize("place", [None, "nearest"])
def test_no_younger_one_is_named_as_the_next_older_one(trio: Trio, place: str | None) -> None:
    older = trio.take("hours", 0)
    trio.run(1)
    meant = trio.take("hours", 10)
    trio.run(1)
    younger = trio.take("hours", 120)
    unreadable(trio.repository, "hours", meant)
    moment = "2026-03-01T12:30:00Z"
    with pytest.raises((IntegrityError, NotFoundError)) as caught:
        if place is None:
            choose(trio.repository, moment, "flights/hours", record=False)
        else:
            choose_nearest(
                (trio.job.repository,),
                moment,
                "flights/hours",
                target=trio.job.queries["hours"],
                record=False,
                open_place=trio.job.open_place,
            )
    assert f"verifies is {older} of batch" in caught.value.message and younger not in caught.value.message
    assert f"give {older} as the savepoint" in caught.value.hint


class TestFromPlace:
    """Where the savepoints of all queries come from, as one."""

    @pytest.fixture
    def pair(self, trio: Trio, tmp_path: Path) -> Trio:
        """The job with a replica of its repository."""
        replica = open_store(tmp_path / "replica").uri
        trio.job = replace(trio.job, replicate=replace(trio.job.replicate, to=(replica,)))
        return trio

    def replicate(self, trio: Trio) -> Repository:
        replica = open_replica(trio.repository, open_store(trio.job.replicate.to[0]))
        list(replicate(trio.repository, replica, newest_first(trio.repository)))
        return Repository.open(open_store(trio.job.replicate.to[0]))

    def nearest(self, trio: Trio, reference: str = "latest-good") -> tuple[str, dict[str, str], set[str]]:
        """The place, the savepoint of each query, and what was passed over."""
        place, chosen = from_place(
            trio.job,
            "nearest",
            reference,
            control=trio.control,
            target=trio.job.queries["hours"],
            record=False,
        )
        assert chosen is not None
        passed = {one.location for each in chosen.values() for one in each.passed_over}
        plan = plan_together(trio.request(reference, chosen=chosen, repository=place))
        assert {one.repository for one in plan.plans.values()} == {place.store.uri}
        return place.store.uri, {name: one.manifest.savepoint for name, one in chosen.items()}, passed

    @pytest.mark.parametrize("reference", ["latest-good", "latest", "2999-01-01"])
    def test_the_nearest_place_has_those_of_all_queries(self, pair: Trio, reference: str) -> None:
        newest = pair.take_all(0)
        replica = self.replicate(pair)
        place, found, passed = self.nearest(pair, reference)
        assert (place, found) == (pair.repository.store.uri, newest)
        unreadable(pair.repository, "sessions", newest["sessions"])
        place, found, passed = self.nearest(pair, reference)
        assert (place, found, passed) == (replica.store.uri, newest, {pair.repository.store.uri})

    def test_which_ones_are_meant_does_not_depend_on_the_place(self, pair: Trio) -> None:
        """The replica is behind, and of one query the repository is damaged down to where that is."""
        older = pair.take_all(0)
        replica = self.replicate(pair)
        pair.run(1)
        newer = pair.take_all(10)
        assert self.nearest(pair)[:2] == (pair.repository.store.uri, newer)
        unreadable(pair.repository, "users", newer["users"])
        assert self.nearest(pair)[:2] == (pair.repository.store.uri, older), "the same moment, and nearer"
        unreadable(pair.repository, "users", older["users"])
        assert self.nearest(pair)[:2] == (replica.store.uri, older)
        with refuses(NotFoundError, "no-good-savepoint") as caught:
            self.nearest(pair, "latest")
        assert "give 2026-03-01T12:00:02.000Z as the savepoint" in caught.value.hint

    def test_a_place_that_cannot_be_better_is_not_read(
        self, pair: Trio, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is closest to the moment of all may be older than that moment."""
        pair.take("users", 0)
        pair.take("sessions", 0.1)
        pair.run(1)
        pair.take("hours", 1)
        pair.run(1)
        pair.take("users", 2.5)
        pair.take("sessions", 2.6)
        self.replicate(pair)
        read: list[str] = []
        real = choosing.choose_together

        def spy(job: Job, repository: Repository, **options: Any) -> object:
            read.append(repository.store.uri)
            return real(job, repository, **options)

        monkeypatch.setattr(choosing, "choose_together", spy)
        place, found, _ = self.nearest(pair)
        assert read == [pair.repository.store.uri] == [place]
        assert pair.repository.load("flights/users", found["users"]).taken_at == BEGIN

    def test_of_latest_no_place_has_all_though_each_is_somewhere(self, pair: Trio) -> None:
        newest = pair.take_all(0)
        replica = self.replicate(pair)
        unreadable(pair.repository, "users", newest["users"])
        unreadable(replica, "hours", newest["hours"])
        with pytest.raises(NotFoundError) as caught:
            self.nearest(pair, "latest")
        assert caught.value.code == "no-good-savepoint" and "older one" not in caught.value.message
        assert newest["users"] in caught.value.message and newest["hours"] in caught.value.message

    def test_a_place_with_nothing_of_the_job_s_own_does_not_decide_what_that_is(
        self, pair: Trio, tmp_path: Path
    ) -> None:
        """Of one query a replica has but newer savepoints of a test, and nothing else says its query id."""
        own = pair.take_all(0)
        replica = self.replicate(pair)
        for key in [info.path for info in replica.store.list("savepoints/flights/users")]:
            replica.store.delete(key)
        for name in ("hours", "sessions"):
            pair.clock.setattr("streambank.savepoint.take.datetime", stands_at(BEGIN + timedelta(hours=1)))
            live = pair.live[name]
            live.plan()
            live.commit()
            sinks = sinks_from_descriptions(["ConsoleTable"])
            take(TakeRequest(live.store, replica, f"flights/{name}", sinks=sinks))
        test = LiveCheckpoint(open_store(tmp_path / "test"), seed=1).run(9)
        take(TakeRequest(test.store, replica, "flights/users", sinks=sinks))
        assert self.nearest(pair)[:2] == (pair.repository.store.uri, own)

    def test_a_site_that_the_job_left_does_not_count(self, pair: Trio) -> None:
        older = pair.take_all(0)
        pair.run(1)
        pair.take_all(10)
        left = {name: open_store(pair.job.queries[name]).uri for name in QUERIES}
        Sites(pair.control).write(
            SiteRecord(3, "active", STANDBY, PRIMARY, True, {}, "", BEGIN, older, {}, left)
        )
        assert self.nearest(pair)[1] == older

    def test_the_command_restores_from_the_nearest_place(self, pair: Trio, tmp_path: Path) -> None:
        newest = pair.take_all(0)
        replica = self.replicate(pair)
        declared = tmp_path / "jobs.toml"
        declared.write_text(f'{declared.read_text()}[jobs.flights.replicate]\nto = ["replica"]\n')
        unreadable(pair.repository, "users", newest["users"])
        command = ("job", "restore", "flights", "--jobs", declared, "--from")
        plan = succeed(*command, "nearest", "--dry-run", "--json").document
        assert {one["repository"] for one in plan["queries"].values()} == {replica.store.uri}
        assert plan["queries"]["users"]["passed_over"][0]["location"] == pair.repository.store.uri
        done = succeed(*command, "nearest", "--json").document
        assert {name: one["savepoint"] for name, one in done["queries"].items()} == newest
        again = succeed(*command, replica.store.uri, "--dry-run", "--json").document
        assert {one["repository"] for one in again["queries"].values()} == {replica.store.uri}
