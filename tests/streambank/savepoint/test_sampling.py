"""Sampled verification: whatever happens in between, consecutive runs hash everything."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streambank.core.errors import InputError, StorageError
from streambank.repository.coverage import POSITIONS, Coverage, Window, parse_share, position
from streambank.repository.digest import digest_of
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank.savepoint.sampling import cursor_key, verify_sample
from streambank.savepoint.verify import verify
from streambank.storage.memory import MemoryStore
from streambank.work.executor import Pace
from tests.support.refuses import refuses
from tests.support.repository.repositories import FILES, flip, manifest_of, save
from tests.support.storage.contents import keys
from tests.support.storage.faulty_store import Fault, FaultyStore, Kind, SimulatedCrash

START = datetime(2026, 11, 21, tzinfo=UTC)
positions = st.integers(0, POSITIONS - 1)
shares = st.integers(20, 1000).map(lambda share: Fraction(share, 1000))


class TestWindows:
    @settings(max_examples=150, deadline=None)
    @given(start=positions, place=positions, parts=st.lists(shares, min_size=1, max_size=50), data=st.data())
    def test_runs_whose_shares_add_up_to_all_look_at_every_position(
        self, start: int, place: int, parts: list[Fraction], data: st.DataObject
    ) -> None:
        """From any run on: so an object is hashed in time wherever its arrival finds the cursor."""
        first = data.draw(st.integers(0, len(parts) - 1))
        covered, total = False, Fraction(0)
        for number, share in enumerate(parts):
            window = Window.of(start, share)
            if number >= first:
                covered = covered or window.holds(place)
                total += share
            start = window.end
        assert covered or total < 1

    @given(start=positions, share=shares)
    def test_as_many_runs_as_are_promised_are_enough(self, start: int, share: Fraction) -> None:
        runs = -(-POSITIONS // Window.of(start, share).width)
        assert runs <= -(-share.denominator // share.numerator)

    @given(start=positions, share=shares, place=positions)
    def test_arcs_are_the_window(self, start: int, share: Fraction, place: int) -> None:
        window = Window.of(start, share)
        assert window.holds(place) == any(first <= place < end for first, end in window.arcs())
        assert sum(end - first for first, end in window.arcs()) == window.width

    def test_without_the_next_window_something_is_missed(self) -> None:
        """The property above is none of any windows: these stand still."""
        windows = [Window.of(0, Fraction(1, 10)) for _ in range(10)]
        assert not any(window.holds(POSITIONS - 1) for window in windows)


class TestCoverage:
    @settings(max_examples=100, deadline=None)
    @given(
        st.lists(st.tuples(positions, shares, st.booleans()), max_size=12), st.lists(positions, max_size=20)
    )
    def test_it_knows_of_each_position_the_newest_run(
        self, runs: list[tuple[int, Fraction, bool]], places: list[int]
    ) -> None:
        coverage = Coverage()
        windows = []
        for number, (start, share, ok) in enumerate(runs):
            windows.append((Window.of(start, share), START + timedelta(hours=number), ok))
            coverage = coverage.after(*windows[-1])
        edge = 0
        for span in coverage.spans:
            assert edge <= span.start < span.end <= POSITIONS
            edge = span.end
        for place in places:
            newest = next(((at, ok) for window, at, ok in reversed(windows) if window.holds(place)), None)
            found = next(((it.at, it.ok) for it in coverage.spans if it.start <= place < it.end), None)
            assert found == newest
        assert Coverage.from_list(coverage.to_list()) == coverage

    def test_since_is_the_oldest_run_once_all_was_looked_at(self) -> None:
        coverage, start = Coverage(), POSITIONS - 5
        for number in range(10):
            assert coverage.since is None
            window = Window.of(start, Fraction(1, 10))
            coverage = coverage.after(window, START + timedelta(days=number), True)
            start = window.end
        assert coverage.since == START
        window = Window.of(start, Fraction(1, 10))
        later = coverage.after(window, START + timedelta(days=10), False)
        assert later.since == START + timedelta(days=1)
        assert coverage.ok and not later.ok

    @pytest.mark.parametrize(
        "spans",
        [[[0, 1]], [[0, 1, "x", True]], [[5, 3, "2026-11-21T00:00:00Z", True]], 7, [["0", 1, 2, 3]]],
    )
    def test_what_cannot_be_understood_counts_as_nothing(self, spans: object) -> None:
        assert Coverage.from_list(spans) == Coverage()  # type: ignore[arg-type]  # whatever a file holds


@pytest.mark.parametrize("text", ["10%", " 2.5% ", "100%"])
def test_shares(text: str) -> None:
    assert parse_share(text) == Fraction(text.strip()[:-1]) / 100


@pytest.mark.parametrize("text", ["10", "0%", "101%", "-1%", "x%", "", "%", "1/0%", "nan%", "1e999999999%"])
def test_what_is_no_share(text: str) -> None:
    with refuses(InputError, "bad-share"):
        parse_share(text)


@pytest.fixture
def repository() -> Repository:
    found = Repository.open(MemoryStore(), create=True)
    save(found, many(40))
    return found


def many(count: int, seed: int = 0) -> dict[str, bytes]:
    source = random.Random(seed)
    return {
        **FILES,
        **{f"state/0/0/{number}.delta": source.randbytes(50) for number in range(10, 10 + count)},
    }


def spoil(repository: Repository, manifest: Manifest, path: str) -> None:
    entry = next(entry for entry in manifest.files if entry.path == path)
    place = repository.objects.locate(entry.digest)
    flip(repository.store, place.key, place.offset)


def damaged_files(repository: Repository, share: str = "10%") -> set[str]:
    found = verify_sample(Repository.open(repository.store), parse_share(share), pace=Pace(parallel=1))
    return {finding.file for report in found.savepoints for finding in report.findings}


def test_any_damaged_byte_is_found_within_the_promised_runs(repository: Repository) -> None:
    """One byte of every object at once: each is found by exactly one of ten runs, wherever they begin."""
    (which,) = [(each.job, each.savepoint) for each in repository.manifests()]
    manifest = repository.load(*which)
    for _ in range(3):
        assert damaged_files(repository) == set()
    for entry in manifest.files:
        if entry.size_bytes:
            spoil(repository, manifest, entry.path)
    runs = [damaged_files(repository) for _ in range(10)]
    assert set().union(*runs) == {entry.path for entry in manifest.files if entry.size_bytes}
    assert sum(map(len, runs)) == len(set().union(*runs))
    assert len([run for run in runs if run]) > 5


def test_savepoints_that_come_in_between_are_covered_too(repository: Repository) -> None:
    found: set[str] = set()
    expected: set[str] = set()
    for number in range(10):
        if number < 3:
            manifest = save(repository, many(3, seed=number + 1), batch=10 + number)
            spoil(repository, manifest, "state/0/0/11.delta")
            expected.add(manifest.savepoint)
    for _ in range(10):
        report = verify_sample(Repository.open(repository.store), parse_share("10%"))
        found |= {each.savepoint for each in report.savepoints if not each.restorable}
    assert found == expected


def test_what_is_known_of_a_savepoint(repository: Repository) -> None:
    (which,) = [(each.job, each.savepoint) for each in repository.manifests()]
    reports = [verify_sample(repository, parse_share("25%")) for _ in range(4)]
    assert [report.runs for report in reports] == [4] * 4
    assert sum(report.objects for report in reports) == reports[0].all_objects
    assert sum(report.bytes for report in reports) == reports[0].all_bytes
    (summary,) = repository.manifests()
    assert (summary.verified_level, summary.verified_ok) == ("sampled", True)
    since = summary.hashed_since
    assert since is not None
    first = reports[0].savepoints[0].at
    assert abs(since - first) < timedelta(seconds=1)
    verify(repository, *which, "quick")
    (summary,) = repository.manifests()
    assert (summary.verified_level, summary.hashed_since) == ("quick", since)
    verify(repository, *which, "full")
    (summary,) = repository.manifests()
    assert summary.hashed_since is not None and summary.hashed_since > since


def test_damage_stands_until_the_bytes_are_hashed_again(repository: Repository) -> None:
    (which,) = [(each.job, each.savepoint) for each in repository.manifests()]
    manifest = repository.load(*which)
    spoil(repository, manifest, "state/0/0/12.delta")
    while not damaged_files(repository, "30%"):
        pass
    assert damaged_files(repository, "1%") == set()  # another window
    (summary,) = repository.manifests()
    assert summary.verified_ok is False
    assert verify(repository, *which, "quick").ok
    (summary,) = repository.manifests()
    assert summary.verified_ok is False
    spoil(repository, manifest, "state/0/0/12.delta")  # back
    for _ in range(4):
        damaged_files(repository, "30%")
    (summary,) = repository.manifests()
    assert summary.verified_ok is True


def test_what_is_gone_is_found_at_once(repository: Repository) -> None:
    save(repository, {**FILES, "offsets/9": b"alone in its pack"}, batch=9)
    place = repository.objects.locate(digest_of("blake3", b"alone in its pack"))
    repository.store.delete(place.key)
    assert damaged_files(repository, "1%") == {"offsets/9"}


def test_a_damaged_manifest_is_a_finding_and_the_run_goes_on(repository: Repository) -> None:
    save(repository, batch=9)
    flip(repository.store, f"savepoints/flights/{manifest_of(batch=9).savepoint}.json", 50)
    report = verify_sample(repository, parse_share("100%"))
    assert sorted(each.ok for each in report.savepoints) == [False, True]


def test_jobs_go_round_by_themselves(repository: Repository) -> None:
    save(repository, job="orders/late", batch=1)
    for _ in range(3):
        verify_sample(repository, parse_share("10%"))
    report = verify_sample(repository, parse_share("10%"), job="orders/late")
    assert report.window.start == 0
    assert [each.job for each in report.savepoints] == ["orders/late"]
    assert set(keys(repository.store, "sampling")) == {cursor_key(None), cursor_key("orders/late")}


@pytest.mark.parametrize("data", [b"", b"{}", b"junk"])
def test_a_damaged_record_begins_anew_and_says_so(repository: Repository, data: bytes) -> None:
    verify_sample(repository, parse_share("10%"))
    repository.store.write(cursor_key(None), data)
    report = verify_sample(repository, parse_share("10%"))
    assert report.window.start == 0
    assert [finding.code for finding in report.findings] == ["sampling-restarted"]
    assert verify_sample(repository, parse_share("10%")).findings == ()


@pytest.mark.parametrize("kind", ["crash-before", "crash-after", "error"])
def test_a_run_that_fails_anywhere_is_done_again(kind: Kind) -> None:
    """The cursor never goes past what was not looked at and recorded."""

    def runs() -> Iterator[tuple[int, MemoryStore]]:
        number = 1
        while True:
            store = MemoryStore()
            save(Repository.open(store, create=True))
            yield number, store
            number += 1

    for number, store in runs():
        faulty = FaultyStore(store, Fault(kind, call=number))
        try:
            verify_sample(Repository.open(faulty), parse_share("50%"), pace=Pace(parallel=1))
        except (SimulatedCrash, StorageError):
            pass
        else:
            if not faulty.fired:
                assert number > 15
                return
        written = store.exists(cursor_key(None))
        recorded = bool(Repository.open(store).verifications("flights", manifest_of().savepoint))
        assert recorded or not written
        again = verify_sample(Repository.open(store), parse_share("50%"), pace=Pace(parallel=1))
        assert again.window.start == (POSITIONS // 2 if written else 0)


def test_positions_are_spread_by_the_digest() -> None:
    assert position("blake3:" + "80000000" + "0" * 56) == POSITIONS // 2


def test_a_bad_place_of_the_disk_is_a_finding_and_holds_up_no_other_run(repository: Repository) -> None:
    faulty = FaultyStore(
        repository.store, Fault("error", operations=frozenset({"held.open"}), key="objects/")
    )
    report = verify_sample(Repository.open(faulty), parse_share("100%"), pace=Pace(parallel=1))
    faulty.assert_fired()
    (finding,) = [finding for one in report.savepoints for finding in one.findings]
    assert (finding.code, finding.severity, finding.file) == ("io-error", "error", "state/0/1/4.zip")
    assert repository.store.exists(cursor_key(None))
