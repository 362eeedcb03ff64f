"""A savepoint whose rehearsal has not passed: only its id or its name means it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streambank.control.drills import drills_of
from streambank.core.errors import InputError, NotFoundError, RefusedError, StorageError
from streambank.core.units import to_json_time, utc_now
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.drills.drill import drill, rehearse
from streambank.drills.each import kept
from streambank.drills.report import DrillReport, QueryDrill
from streambank.drills.request import DrillRequest
from streambank.driver.damage import savepoints_of
from streambank.job.crash_loop import _saved
from streambank.recovery.choosing.nearest import Places
from streambank.recovery.choosing.resolve import choose
from streambank.recovery.choosing.together import _promised, choose_together
from streambank.replicas.replicate import replicate_to
from streambank.replicas.status import status
from streambank.repository.catalog import newest_good
from streambank.repository.manifest import Manifest
from streambank.repository.marks import REHEARSAL, Mark, add_mark
from streambank.repository.repository import Repository
from streambank.retention.expire import expire
from streambank.retention.policy import Policy
from streambank.savepoint.verify import verify
from streambank.sites.forks import QueryLines
from streambank.storage import Store, open_store
from tests.support.jobs.declared import BY, write_jobs

QUERIES = 'queries = ["a", "b"]'


@dataclass
class Saved:
    """A job and its savepoints, which have no files."""

    job: Job
    repository: Repository
    now: datetime

    def save(self, batch: int, hours: float, *, query: str = "", of: str | None = None) -> str:
        name = f"b{batch:06d}-{'d' if of else '0'}{batch:011x}"
        self.repository.commit(
            Manifest(
                savepoint=name,
                job=f"flights/{query}" if query else "flights",
                query_id=f"q{query}",
                batch=batch,
                taken_at=self.now - timedelta(hours=hours),
                checkpoint=f"file:/checkpoint/{query}",
                derived_from=of,
            )
        )
        return name

    def mark(self, savepoint: str, passed: bool, *, query: str = "") -> None:
        place = f"flights/{query}" if query else "flights"
        add_mark(
            self.repository.store,
            self.repository.digest_name,
            place,
            savepoint,
            REHEARSAL,
            fields={"passed": passed},
        )

    def reject(self, batch: int, hours: float, of: str, *, query: str = "") -> str:
        made = self.save(batch, hours, query=query, of=of)
        self.mark(made, False, query=query)
        return made

    def resolve(self, reference: str) -> str:
        return self.repository.resolve(reference, "flights").savepoint


def saved(folder: Path, more: str = "") -> Saved:
    job = load_jobs(write_jobs(folder, more=more)).job("flights")
    return Saved(
        job, Repository.open(open_store(job.repository), create=True), utc_now().replace(microsecond=0)
    )


def passed_drill(made: Saved, savepoint: str) -> DrillReport:
    return DrillReport(
        job="flights",
        repository=made.repository.store.uri,
        queries=(QueryDrill("main", savepoint, 42, made.now, age_s=0.0),),
        scratch="",
        started_at=made.now,
        seconds=1.0,
    )


@pytest.fixture
def trio(tmp_path: Path) -> tuple[Saved, dict[str, str]]:
    """Of `a` one savepoint; of `b` an older, a newer, and a rejected one, which is the closest to `a`."""
    made = saved(tmp_path, QUERIES)
    ids = {
        "a": made.save(10, 4, query="a"),
        "old": made.save(8, 7, query="b"),
        "new": made.save(12, 2, query="b"),
    }
    ids["rejected"] = made.reject(8, 4.2, ids["old"], query="b")
    return made, ids


def test_a_restore_of_all_queries_takes_another_as_the_closest(
    trio: tuple[Saved, dict[str, str]],
) -> None:
    made, ids = trio
    chosen = choose_together(made.job, made.repository).queries
    assert {name: one.manifest.savepoint for name, one in chosen.items()} == {"a": ids["a"], "b": ids["new"]}
    made.mark(ids["rejected"], True, query="b")
    chosen = choose_together(made.job, made.repository).queries
    assert chosen["b"].manifest.savepoint == ids["rejected"], "one that has passed is the closest"


def test_a_place_does_not_promise_a_moment_that_only_it_reaches(trio: tuple[Saved, dict[str, str]]) -> None:
    made, ids = trio
    made.save(11, 1, query="a")
    made.reject(12, 0.5, ids["new"], query="b")
    nothing_left = {"a": QueryLines(), "b": QueryLines()}
    promised = _promised(made.job, made.repository, nothing_left)
    assert made.now - promised == timedelta(hours=2)


class TestOneQuery:
    """Each chooser, and each advice, passes over it."""

    def test_the_newest_good_one_is_another(self, tmp_path: Path) -> None:
        made = saved(tmp_path)
        good = made.save(41, 3)
        for number in range(3):
            made.reject(42 + number, 1 / (1 + number), good)
        assert [one.savepoint for one in newest_good(made.repository.store, "flights", 1)] == [good]
        assert [one.savepoint for one in savepoints_of(made.job, "main")[0]] == [good]
        assert good in _saved(made.job)["main"]

    def test_the_beginning_of_its_id_means_another(self, tmp_path: Path) -> None:
        made = saved(tmp_path)
        good = made.save(41, 3)
        rejected = made.reject(41, 1, good)
        assert made.resolve("b000041") == made.resolve(good) == good
        assert made.resolve(rejected) == rejected
        for start in ("b000041-d", rejected[:-1]):
            with pytest.raises(NotFoundError, match=f"not passed could be meant: {rejected}") as caught:
                made.resolve(start)
            assert "Only its whole id or its name" in caught.value.hint
        made.save(42, 2)
        with pytest.raises(InputError, match="could be any of 2 savepoints") as ambiguous:
            made.resolve("b00004")
        assert ambiguous.value.code == "ambiguous" and rejected not in ambiguous.value.message
        made.mark(rejected, True)
        assert made.resolve(rejected[:-1]) == rejected

    def test_a_drill_takes_another(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refused(*args: object, **more: object) -> None:
            raise RefusedError("No driver is started here.", code="job-running", hint="")

        monkeypatch.setattr("streambank.drills.drill.start_job", refused)
        made = saved(tmp_path)
        good = made.save(41, 3)
        bad = made.reject(42, 1, good)
        assert [one.savepoint for one in kept(made.repository.store, made.job)] == [good]
        for _ in range(5):
            report = rehearse(DrillRequest(made.job, savepoint="random", by=BY))
            assert [one.savepoint for one in report.queries] == [good]
        report = rehearse(DrillRequest(made.job, savepoint=bad, by=BY))
        assert [one.savepoint for one in report.queries] == [bad], "its id means it"

    def test_a_later_drill_of_it_that_passed_ends_that(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = saved(tmp_path)
        good = made.save(41, 3)
        bad = made.reject(42, 1, good)
        passed = passed_drill(made, bad)
        failed = replace(passed, failed_step="batches", code="drill-timeout", error="It took too long.")
        for report, meant in ((failed, good), (replace(passed, not_run="It cannot."), good), (passed, bad)):
            monkeypatch.setattr("streambank.drills.drill.rehearse", lambda *a, report=report, **b: report)
            drill(DrillRequest(made.job, savepoint=bad, by=BY))
            assert made.resolve("latest") == meant

        # One from a replica counts in the repository, too, where that has the same savepoint.
        other = made.reject(43, 0.5, good)
        location = f"{made.job.repository}-replica"
        replicate_to(made.repository, open_store, location, [("flights", other)])
        replica = Repository.open(open_store(location))
        there = replace(passed_drill(made, other), repository=replica.store.uri)
        monkeypatch.setattr("streambank.drills.drill.rehearse", lambda *a, **b: there)
        drill(DrillRequest(made.job, savepoint=other, repository=replica.store.uri, by=BY))
        assert made.resolve("latest") == replica.resolve("latest", "flights").savepoint == other

    def test_a_location_that_refuses_does_not_keep_the_others_from_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = saved(tmp_path)
        good = made.save(41, 3)
        bad = made.reject(42, 1, good)
        location = f"{made.job.repository}-replica"
        replicate_to(made.repository, open_store, location, [("flights", good), ("flights", bad)])
        replica = Repository.open(open_store(location))
        read_only, mark = made.repository.store.uri, Repository.mark_rehearsal
        refused: list[str] = []

        def mark_where_allowed(self: Repository, *args: Any, **more: Any) -> Mark:
            if self.store.uri == read_only:
                refused.append(self.store.uri)
                raise StorageError("It can only be read.", code="storage", hint="")
            return mark(self, *args, **more)

        monkeypatch.setattr(Repository, "mark_rehearsal", mark_where_allowed)
        found = replace(passed_drill(made, bad), repository=replica.store.uri)
        monkeypatch.setattr("streambank.drills.drill.rehearse", lambda *a, **b: found)
        lines: list[str] = []
        report = drill(DrillRequest(made.job, savepoint=bad, repository=location, by=BY), say=lines.append)
        assert refused == [read_only], "the fault was injected"
        assert replica.resolve("latest", "flights").savepoint == bad, "the location after it was done"
        assert made.resolve("latest") == good
        said = [{"query": "main", "savepoint": bad, "location": read_only, "why": "It can only be read."}]
        assert report.to_dict()["still_rejected"] == said
        assert next(drills_of(made.job.records()))["passed"], "it is kept before a rejection ends"
        assert lines == [
            f"savepoint {bad} could not be marked as proven in {read_only}, so it is still rejected there: "
            "It can only be read."
        ]

    def test_of_what_was_never_rejected_nothing_is_said_where_a_location_is_down(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = saved(tmp_path)
        good = made.save(41, 3)
        proven = made.reject(42, 1, good)
        made.repository.mark_rehearsal("flights", proven, passed=True, by=BY)
        location = f"{made.job.repository}-replica"
        replicate_to(made.repository, open_store, location, [("flights", good), ("flights", proven)])
        found = replace(
            passed_drill(made, proven), repository=Repository.open(open_store(location)).store.uri
        )
        monkeypatch.setattr("streambank.drills.drill.rehearse", lambda *a, **b: found)
        opened: list[str] = []

        def down(store: Store) -> Repository:
            opened.append(store.uri)
            raise StorageError("It does not answer.", code="storage", hint="")

        monkeypatch.setattr("streambank.drills.accept.Repository.open", down)
        report = drill(DrillRequest(made.job, savepoint=proven, repository=location, by=BY))
        assert opened and report.still_rejected == ()

    def test_a_drill_of_it_does_not_fail_by_differences_from_the_live_query(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        started = SimpleNamespace(launch_id="launch")
        monkeypatch.setattr("streambank.drills.drill.start_job", lambda *args, **more: started)
        for name in ("_restore", "_stage", "_watch", "_end", "_check_proven", "_rto_s"):
            monkeypatch.setattr(f"streambank.drills.drill._Drill.{name}", lambda *args, **more: None)
        monkeypatch.setattr(QueryDrill, "differences", lambda *args, **more: ["it has another count"])
        made = saved(tmp_path)
        bad = made.reject(42, 1, made.save(41, 3))
        report = drill(DrillRequest(made.job, savepoint=bad, by=BY))
        assert report.passed, report.error
        assert "changed state need not" in report.queries[0].not_compared[-1]
        assert made.resolve("latest") == bad, "it is a savepoint like others now"
        assert drill(DrillRequest(made.job, savepoint=bad, by=BY)).code == "drill-differs"

    def test_a_status_does_not_call_it_the_newest_verified(self, tmp_path: Path) -> None:
        made = saved(tmp_path)
        good = made.save(41, 3)
        bad = made.reject(42, 1, good)
        for savepoint in (good, bad):
            verify(made.repository, "flights", savepoint)
        (place,) = status(open_store, made.job.repository, (), made.now).places
        newest = place.jobs[0].newest_verified
        assert newest is not None and newest.savepoint == good

    def test_a_batch_means_another_and_none_where_there_is_no_other(self, tmp_path: Path) -> None:
        made = saved(tmp_path)
        good = made.save(41, 3)
        bad = made.reject(41, 1, good)
        assert made.resolve("batch:41") == good
        assert made.resolve(bad) == bad
        made.mark(bad, True)
        with pytest.raises(InputError, match="could be any of 2"):
            made.resolve("batch:41")

    def test_where_only_such_are_left_each_reference_says_so(self, tmp_path: Path) -> None:
        made = saved(tmp_path)
        good = made.save(41, 3)
        bad = made.reject(41, 1, good)
        made.repository.store.delete(f"savepoints/flights/{good}.json")
        said = set()
        for reference in ("latest", "latest-good", "batch:41", to_json_time(made.now)):
            with pytest.raises(NotFoundError) as caught:
                made.resolve(reference)
            said.add((caught.value.code, caught.value.message))
            with pytest.raises(NotFoundError) as caught:
                choose(made.repository, reference, "flights", record=False)
            said.add((caught.value.code, caught.value.message))
        ((code, message),) = said
        assert code == "no-such-savepoint" and bad in message and "has not passed" in message

    def test_an_expire_does_not_count_it_among_the_verified(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = saved(tmp_path)
        oldest, good = made.save(1, 5), made.save(2, 4)
        bad = made.reject(2, 1, good)
        for savepoint in (oldest, good, bad):
            verify(made.repository, "flights", savepoint)
        one = _drops_beside_another(made, good, monkeypatch)
        assert sorted(one) == sorted([oldest, bad]), "the last verified one that can be chosen comes back"


def _drops_beside_another(made: Saved, other: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is listed after an expire beside which another one has dropped the newest good savepoint."""
    from streambank.retention import expire as module

    real = module._Expire.keep_promise

    def beside(self: module._Expire, *given: object) -> set[tuple[str, str]]:
        made.repository.store.delete(f"savepoints/flights/{other}.json")
        return real(self, *given)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(module._Expire, "keep_promise", beside)
    expire(made.repository, Policy(keep_last=1, min_verified=1), job="flights", dry_run=False)
    return [one.savepoint for one in made.repository.manifests("flights")]


class TestPlaces:
    """A repository and its replica."""

    @pytest.fixture
    def made(self, tmp_path: Path) -> Saved:
        return saved(tmp_path)

    def replica(self, made: Saved, savepoints: Sequence[str]) -> Repository:
        location = f"{made.job.repository}-replica"
        replicate_to(made.repository, open_store, location, [("flights", one) for one in savepoints])
        return Repository.open(open_store(location))

    def meant(self, *places: Repository, reference: str = "latest-good") -> str:
        named = {one.store.uri: one for one in places}
        found = Places([*named], "flights", places[0].store.uri, named.__getitem__)
        return found.meant_by(reference, "flights", QueryLines()).savepoint

    def test_the_newest_mark_of_all_decides(self, made: Saved) -> None:
        good = made.save(41, 3)
        made.repository.store.delete(f"savepoints/flights/{good}.json")  # only what was made is left of it
        bad = made.reject(41, 1, good)
        replica = self.replica(made, [bad])
        made.mark(bad, True)
        assert self.meant(made.repository, replica) == bad, "the replica has not heard of it yet"
        made.mark(bad, False)
        with pytest.raises(NotFoundError, match="has not passed"):
            self.meant(made.repository, replica)

    def test_a_replica_that_has_not_heard_of_a_failure_does_not_make_it_the_latest(self, made: Saved) -> None:
        good = made.save(41, 3)
        bad = made.save(42, 1, of=good)
        made.mark(bad, True)
        replica = self.replica(made, [good, bad])
        assert self.meant(made.repository, replica, reference="latest") == bad
        made.mark(bad, False)
        for reference in ("latest", to_json_time(made.now)):
            assert self.meant(made.repository, replica, reference=reference) == good
        with pytest.raises(NotFoundError, match="has not passed"):
            self.meant(made.repository, replica, reference="batch:42")
        assert self.meant(made.repository, replica, reference=bad) == bad

    def test_a_mark_is_carried_with_its_time_and_before_the_savepoint_is_listed(
        self, made: Saved, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bad = made.reject(42, 1, made.save(41, 3))
        seen = []
        adopt = Repository.adopt

        def watched(self: Repository, *given: object, **more: object) -> object:
            seen.append(self.newest_mark("flights", bad, REHEARSAL))
            return adopt(self, *given, **more)  # type: ignore[arg-type]  # passed on as they came

        monkeypatch.setattr(Repository, "adopt", watched)
        replica = self.replica(made, [bad])
        (mark,) = seen
        there = made.repository.newest_mark("flights", bad, REHEARSAL)
        assert mark is not None and there is not None and mark.at == there.at
        add_mark(replica.store, replica.digest_name, "flights", bad, REHEARSAL, fields={"passed": True})
        self.replica(made, [bad])
        (summary,) = replica.manifests("flights")
        assert not summary.rejected, "an older mark of the source does not undo a newer one"
