from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from streambank.core.errors import InputError
from streambank.savepoint.verify import verify
from streambank.work import pace
from streambank.work.executor import Pace
from streambank.work.pace import UNLIMITED, RateLimit, parse_rate
from tests.support.jobs.simulated_job import JOB, SimulatedJob
from tests.support.refuses import refuses


class Clock:
    """A clock that goes on only while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.slept_s: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += seconds

    def limit(self, bytes_per_s: int | None) -> RateLimit:
        return RateLimit(bytes_per_s, lambda: self.now_s, self.sleep)


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [
        ("50MB/s", 50_000_000),
        ("50 MB", 50_000_000),
        ("1.5GiB/s", 3 << 29),
        ("800kB/s", 800_000),
        ("800KB/s", 800_000),
        ("1TB/s", 10**12),
        ("12345", 12345),
        ("64KiB", 65536),
    ],
)
def test_rates_as_people_write_them(text: str, bytes_per_s: int) -> None:
    assert parse_rate(text) == bytes_per_s


BAD = ["", "fast", "-1MB/s", "0", "0.4B/s", "50mb/s", "50MB/min", "1e6", "5iB", "\u0665MB"]


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_rate_is_refused(text: str) -> None:
    with refuses(InputError, "bad-rate") as raised:
        parse_rate(text)
    assert repr(text) in raised.value.message


@pytest.mark.parametrize("bytes_per_s", [0, -5])
def test_a_limit_is_positive(bytes_per_s: int) -> None:
    with pytest.raises(InputError):
        RateLimit(bytes_per_s)


def test_no_limit_never_waits() -> None:
    clock = Clock()
    clock.limit(None).spend(10**15)
    assert clock.slept_s == []
    UNLIMITED.spend(10**15)


def test_many_small_reads_and_few_large_ones_take_the_same_time() -> None:
    for size_bytes in (1_000, 100_000, 1_000_000):
        clock = Clock()
        limit = clock.limit(1_000_000)
        for _ in range(10_000_000 // size_bytes):
            limit.spend(size_bytes)
        assert clock.now_s - 1000 == pytest.approx(10, abs=0.2)


def test_a_pause_is_not_caught_up_with() -> None:
    clock = Clock()
    limit = clock.limit(1_000_000)
    limit.spend(1_000_000)
    clock.now_s += 60
    before_s = clock.now_s
    for _ in range(5):
        limit.spend(1_000_000)
    assert clock.now_s - before_s == pytest.approx(5, abs=0.2)


class TestWhereItCounts:
    """Take, verify and restore spend every byte that they read."""

    @pytest.fixture
    def spent(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
        amounts: list[int] = []

        def spend(limit: RateLimit, size_bytes: int) -> None:
            if limit._bytes_per_s is not None:
                amounts.append(size_bytes)

        monkeypatch.setattr(pace.RateLimit, "spend", spend)

        def take_out() -> int:
            total = sum(amounts)
            amounts.clear()
            return total

        return take_out

    @pytest.mark.parametrize("state_bytes", [200, 700_000])
    def test_all_bytes_are_spent(self, tmp_path: Path, spent: Callable[[], int], state_bytes: int) -> None:
        shop = SimulatedJob(tmp_path, state_bytes=state_bytes).run(3)
        result = shop.take(pace=Pace(max_bytes_per_s=10**9))
        assert spent() == result.bytes

        manifest = shop.repository.load(JOB, result.savepoint)
        report = verify(shop.repository, JOB, result.savepoint, "full", pace=Pace(max_bytes_per_s=10**9))
        assert report.ok and spent() == sum(manifest.objects().values())

        shop.restore(result.savepoint, pace=Pace(max_bytes_per_s=10**9))
        files = [entry for entry in manifest.files if entry.path != "metadata"]
        assert 0 < spent() <= sum(entry.size_bytes for entry in files)

    def test_a_rate_that_is_none_is_refused_before_anything_is_done(self, tmp_path: Path) -> None:
        shop = SimulatedJob(tmp_path).run(2)
        with pytest.raises(InputError):
            shop.take(pace=Pace(max_bytes_per_s=0))
        saved = shop.take()
        for parallel, max_bytes_per_s in ((0, None), (1, 0)):
            with pytest.raises(InputError):
                verify(
                    shop.repository,
                    JOB,
                    saved.savepoint,
                    pace=Pace(parallel=parallel, max_bytes_per_s=max_bytes_per_s),
                )
            with pytest.raises(InputError):
                shop.restore(saved.savepoint, pace=Pace(parallel=parallel, max_bytes_per_s=max_bytes_per_s))
        assert not (tmp_path / "restored").exists()
