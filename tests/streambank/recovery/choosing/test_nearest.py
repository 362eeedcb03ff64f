"""A restore from the repository or the replica that is nearest and whole."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from streambank.control.marker import read_marker
from streambank.core.errors import InputError, NotFoundError, StorageError, StreambankError
from streambank.core.names import PRIMARY, STANDBY
from streambank.core.units import utc_now
from streambank.recovery.choosing.nearest import by_distance, choose_nearest
from streambank.recovery.choosing.resolve import Chosen
from streambank.replicas.replicate import newest_first, open_replica, replicate
from streambank.repository.repository import Repository
from streambank.sites.forks import QueryLines
from streambank.sites.records import SiteRecord, Sites
from streambank.storage import open_store
from tests.support.cli import streambank, succeed
from tests.support.jobs.declared import declare
from tests.support.jobs.lost_repository import move_on, worked
from tests.support.jobs.simulated_job import JOB, SimulatedJob
from tests.support.refuses import refuses
from tests.support.storage.faulty_store import Fault, FaultyStore
from tests.support.storage.s3_servers import S3Server, seaweedfs

__all__ = ["seaweedfs"]  # a fixture


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("file:///live/orders", ["file:///a", "/b", "s3://one/r", "s3://two/r"]),
        ("s3a://two/live", ["s3://two/r", "file:///a", "/b", "s3://one/r"]),
        ("s3://one/live", ["s3://one/r", "file:///a", "/b", "s3://two/r"]),
        ("memory://x/live", ["file:///a", "/b", "s3://one/r", "s3://two/r"]),
    ],
)
def test_near_is_the_same_service_then_this_machines_disks_then_the_rest(
    target: str, expected: list[str]
) -> None:
    assert by_distance(["s3://one/r", "file:///a", "s3://two/r", "/b", "file:///a"], target) == expected


class Places:
    """A job with a repository and a replica, on disks."""

    def __init__(self, folder: Path) -> None:
        self.shop = SimulatedJob(folder)
        self.repository = self.shop.repository.store.uri
        self.replica = f"file://{folder}/replica"

    def replicate(self) -> None:
        source = self.shop.repository
        list(replicate(source, open_replica(source, open_store(self.replica)), newest_first(source)))

    def choose(
        self,
        reference: str,
        *locations: str,
        target: str = "file:///elsewhere",
        opened: Callable[[str], Repository] = lambda location: Repository.open(open_store(location)),
    ) -> tuple[str, Chosen]:
        places = locations or (self.repository, self.replica)
        found, chosen = choose_nearest(places, reference, JOB, target=target, record=False, open_place=opened)
        return found.store.uri, chosen


@pytest.fixture
def places(tmp_path: Path) -> Places:
    found = Places(tmp_path)
    found.shop.run(3)
    return found


def damage_packs(location: str) -> None:
    store = open_store(location)
    for info in [*store.list("packs"), *store.list("objects")]:
        data = bytearray(store.read(info.path))
        data[3] ^= 1
        store.write(info.path, bytes(data))


def test_where_all_is_well_it_is_the_repository(places: Places) -> None:
    taken = places.shop.take()
    places.replicate()
    place, chosen = places.choose("latest-good")
    assert (place, chosen.manifest.savepoint) == (places.repository, taken.savepoint)
    assert (chosen.passed_over, chosen.skipped) == ((), ())


@pytest.mark.parametrize("reference", ["latest-good", "latest", "batch:2", "before", "2999-01-01"])
def test_a_damaged_repository_is_passed_over_and_said(places: Places, reference: str) -> None:
    taken = places.shop.take(name="before")
    places.replicate()
    damage_packs(places.repository)
    place, chosen = places.choose(reference)
    assert (place, chosen.manifest.savepoint) == (places.replica, taken.savepoint)
    (passed,) = chosen.passed_over
    assert passed.location == places.repository
    assert taken.savepoint in passed.why and "damaged" in passed.why
    assert (chosen.as_of is None) == (reference != "2999-01-01")


def test_a_replica_that_is_behind_does_not_make_it_an_older_one(places: Places) -> None:
    places.shop.take()
    places.replicate()
    places.shop.run(1)
    newest = places.shop.take()
    for reference in ("latest-good", "latest", newest.savepoint, "batch:3"):
        place, chosen = places.choose(reference, places.replica, places.repository)
        assert (place, chosen.manifest.savepoint) == (places.repository, newest.savepoint)
        (passed,) = chosen.passed_over
        assert (passed.location, newest.savepoint in passed.why) == (places.replica, True)


def test_one_that_is_damaged_everywhere_is_skipped_and_the_next_one_found(places: Places) -> None:
    old = places.shop.take()
    places.replicate()
    packs = {info.path for info in places.shop.repository_store.list("packs")}
    places.shop.run(2)
    damaged = places.shop.take()
    places.replicate()
    for location in (places.repository, places.replica):
        store = open_store(location)
        for info in [one for one in store.list("packs") if one.path not in packs]:
            store.write(info.path, b"x" * info.size_bytes)
    place, chosen = places.choose("latest-good")
    assert (place, chosen.manifest.savepoint) == (places.repository, old.savepoint)
    assert [one.savepoint for one in chosen.skipped] == [damaged.savepoint]
    assert [one.location for one in chosen.passed_over] == [places.repository, places.replica]
    with refuses(NotFoundError, "no-good-savepoint") as caught:
        places.choose(damaged.savepoint)
    assert places.repository in caught.value.message and places.replica in caught.value.message


@pytest.mark.parametrize("readable", [True, False])
@pytest.mark.parametrize("reference", ["2999-01-01", "latest"])
def test_of_a_time_nothing_older_is_taken_but_the_next_one_is_named(
    places: Places, reference: str, readable: bool
) -> None:
    old = places.shop.take()
    places.replicate()
    packs = {info.path for info in places.shop.repository_store.list("packs")}
    places.shop.run(2)
    damaged = places.shop.take()
    places.replicate()
    for location in (places.repository, places.replica):
        store = open_store(location)
        for info in [one for one in store.list("packs") if one.path not in packs]:
            store.write(info.path, b"x" * info.size_bytes)
        if not readable:
            store.write(f"savepoints/{JOB}/{damaged.savepoint}.json", b"{}")
    with refuses(NotFoundError, "no-good-savepoint") as caught:
        places.choose(reference)
    assert damaged.savepoint in caught.value.message
    assert f"The newest older one that verifies is {old.savepoint} of batch 2" in caught.value.message
    assert f"give {old.savepoint} as the savepoint instead of {reference}" in caught.value.hint


def test_a_manifest_that_only_a_replica_can_read_is_read_there(places: Places) -> None:
    places.shop.take()
    places.shop.run(1)
    newest = places.shop.take()
    places.replicate()
    open_store(places.repository).write(f"savepoints/{JOB}/{newest.savepoint}.json", b"{}")
    place, chosen = places.choose("2999-01-01")
    assert (place, chosen.manifest.savepoint) == (places.replica, newest.savepoint)


def test_the_verb_leaves_out_what_was_saved_on_a_line_that_the_job_left(folder: Path) -> None:
    job = declare(folder, more='[jobs.flights.replicate]\nto = ["replica"]')
    checkpoint = worked(job)
    jobs = ("--jobs", folder / "streaming_jobs.toml")
    counts = succeed("job", "savepoint", "flights", *jobs, "--json").document
    checkpoint.run(1)
    succeed("job", "savepoint", "flights", *jobs)
    succeed("replicate", "--to", folder / "replica", "-r", folder / "repository")
    left = {"main": open_store(job.checkpoint).uri}
    record = SiteRecord(
        3, "active", STANDBY, PRIMARY, True, {}, "", utc_now(), {"main": counts["savepoint"]}, {}, left
    )
    Sites(job.records()).write(record)
    place = ("--into", folder / "back", "--sink", "accept", "--dry-run", "--json", "--from", "nearest")
    plan = succeed("restore", "latest-good", "--job", "flights", *jobs, *place).document
    assert plan["savepoint"] == counts["savepoint"]
    assert all("on the line that it left" in one["why"] for one in plan["passed_over"])


def test_what_was_saved_on_a_line_that_the_job_left_does_not_count(places: Places) -> None:
    taken = places.shop.take()
    places.shop.run(2).take()
    _, chosen = choose_nearest(
        (places.repository,),
        "latest-good",
        JOB,
        target="file:///elsewhere",
        record=False,
        open_place=lambda location: Repository.open(open_store(location)),
        lines=QueryLines({places.shop.checkpoint.uri: 2}),
    )
    assert chosen.manifest.savepoint == taken.savepoint
    (passed,) = chosen.passed_over
    assert "on the line that it left" in passed.why


def test_one_that_does_not_answer_is_passed_over(places: Places) -> None:
    taken = places.shop.take()
    places.replicate()
    faulty = FaultyStore(
        open_store(places.repository), *(Fault("error", call, frozenset({"read"})) for call in range(1, 9))
    )

    def opened(location: str) -> Repository:
        return Repository.open(faulty if location == places.repository else open_store(location))

    place, chosen = places.choose("latest-good", opened=opened)
    assert faulty.fired
    assert (place, chosen.manifest.savepoint) == (places.replica, taken.savepoint)
    assert [one.location for one in chosen.passed_over] == [places.repository]


def test_where_none_is_there_it_says_of_each_why(places: Places) -> None:
    with refuses(NotFoundError, "no-such-savepoint"):
        places.choose("latest-good", places.repository)
    with refuses(StorageError, "no-place-answers") as caught:
        places.choose("latest-good", places.replica, f"{places.replica}-2")
    assert f"no repository at {places.replica}-2" in caught.value.message


def test_a_reference_that_nothing_has_is_not_found(places: Places) -> None:
    places.shop.take()
    places.replicate()
    for reference, wanted in (("before", NotFoundError), ("batch:9", NotFoundError), ("03:99", InputError)):
        with pytest.raises(StreambankError) as caught:
            places.choose(reference)
        assert isinstance(caught.value, wanted)


def test_the_repository_is_lost_with_the_records_and_the_job_comes_back_from_a_replica(folder: Path) -> None:
    job = declare(folder, more='[jobs.flights.replicate]\nto = ["replica"]')
    checkpoint = worked(job)
    move_on(job)
    jobs = ("--jobs", folder / "streaming_jobs.toml", "--job", "flights")
    succeed("job", "savepoint", "flights", "--jobs", folder / "streaming_jobs.toml")
    succeed("replicate", "--to", folder / "replica", "-r", folder / "repository")
    for gone in ("repository", "repository.control"):
        shutil.rmtree(folder / gone)

    lost = streambank("restore", "latest-good", *jobs, "--generation", "--sink", "accept")
    assert (lost.code, "nearest" in lost.err) == (3, True)
    command = ("restore", "latest-good", *jobs, "--generation", "--sink", "accept", "--from", "nearest")
    plan = succeed(*command, "--dry-run", "--json").document
    assert plan["repository"] == f"file://{folder}/replica"
    assert [one["location"] for one in plan["passed_over"]] == [f"file://{folder}/repository"]
    assert f"file://{folder}/repository: There is no repository" in succeed(*command, "--dry-run").out
    done = succeed(*command, "--json").document
    assert (done["repository"], done["batch"]) == (plan["repository"], checkpoint.last)
    assert done["generation"] == 3, "above the generation that was lost, should it come back"
    marker = read_marker(job.checkpoint)
    assert marker is not None and marker.repository == job.repository, "where its savepoints belong"
    refused = streambank("job", "savepoint", "flights", "--jobs", folder / "streaming_jobs.toml")
    assert refused.code == 8 and "--new-repository" in refused.err
    again = succeed(
        "job", "savepoint", "flights", "--new-repository", "--jobs", folder / "streaming_jobs.toml", "--json"
    ).document
    assert Repository.open(open_store(job.repository)).find("latest") == ("flights", again["savepoint"])


def test_nearest_needs_a_declared_job(tmp_path: Path) -> None:
    into = ("--into", tmp_path / "back", "--from", "nearest")
    answer = streambank("restore", "latest-good", "-r", tmp_path, "--job", "orders", *into)
    assert (answer.code, "--jobs FILE" in answer.err) == (2, True)


def test_a_replica_by_its_location(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.shop.run(2)
    taken = places.shop.take()
    places.replicate()
    shutil.rmtree(places.repository.removeprefix("file://"))
    done = succeed(
        "restore", "latest-good", "-r", places.repository, "--from", places.replica, "--job", JOB,
        "--into", tmp_path / "back", "--json",
    ).document  # fmt: skip
    assert (done["savepoint"], done["repository"]) == (taken.savepoint, places.replica)


def test_on_s3_the_replica_in_the_bucket_of_the_target_comes_first_until_it_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seaweedfs: S3Server
) -> None:
    seaweedfs.use(monkeypatch)
    places = Places(tmp_path)
    places.shop.run(3)
    taken = places.shop.take()
    places.replica = open_store(seaweedfs.location()).uri
    places.replicate()
    target = f"{places.replica}-live"
    place, chosen = places.choose("latest-good", target=target)
    assert (place, chosen.passed_over) == (places.replica, ())
    place, _ = places.choose("latest-good", target="file:///live")
    assert place == places.repository
    damage_packs(places.replica)
    place, chosen = places.choose("latest-good", target=target)
    assert (place, chosen.manifest.savepoint) == (places.repository, taken.savepoint)
    assert [one.location for one in chosen.passed_over] == [places.replica]
