"""Take, verify and restore, and what other tools do, each against a plain copy of the same files."""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from bench.limits import waiting_s
from bench.peers import CP, PEERS, Peer
from bench.tree import environment
from bench.workloads import Workload
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from streambank.storage import open_store

T = TypeVar("T")
COPY = CP.name
FULL, CHANGED, UNCHANGED = "take, full", "take, one more batch", "take, unchanged"
COMMAND = "take, unchanged, as a command"
VERIFY, RESTORE, LINK = "verify, full", "restore", "restore --link"
OURS = (FULL, CHANGED, UNCHANGED, COMMAND, VERIFY, RESTORE, LINK)


@dataclass(frozen=True, slots=True)
class Once:
    """One thing done once.

    Attributes:
        seconds: How long it took.
        cpu_seconds: How much processor time it used, kernel and child processes included.
        waited_seconds: For how long somebody on the machine waited for a processor meanwhile.
        ratio: Against `cp -r` of the same round.
    """

    seconds: float
    cpu_seconds: float
    waited_seconds: float = 0.0
    ratio: float = 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table: the medians of all rounds.

    Attributes:
        what: What was done.
        rounds: Each time it was done.
    """

    what: str
    rounds: Sequence[Once]

    @property
    def seconds(self) -> float:
        """The median time."""
        return statistics.median(one.seconds for one in self.rounds)

    @property
    def ratio(self) -> float:
        """The median of time against `cp -r` of the same round."""
        return statistics.median(one.ratio for one in self.rounds)

    @property
    def spread(self) -> tuple[float, float]:
        """The lowest and the highest ratio."""
        ratios = [one.ratio for one in self.rounds]
        return min(ratios), max(ratios)

    @property
    def cores(self) -> float:
        """How many processors it kept busy, in the median."""
        return statistics.median(one.cpu_seconds / one.seconds for one in self.rounds)

    @property
    def others(self) -> float:
        """For which share of the time somebody on the machine waited for a processor, in the median."""
        return statistics.median(one.waited_seconds / one.seconds for one in self.rounds)


@dataclass(frozen=True, slots=True)
class Table:
    """All figures of one workload.

    Attributes:
        workload: What was measured with.
        rows: One for each thing done.
        source_bytes: Size of the checkpoint.
        saved_bytes: Size of the savepoint.
        saved_files: How many files it has.
        changed_bytes: Bytes that one more batch added to the checkpoint.
        moved_bytes: Bytes that the take of that batch added to the repository, its manifest included.
        read_files: Files that this take read.
        changed_files: Files that the batch added.
        linked_files: Files that `--link` shared.
    """

    workload: Workload
    rows: Sequence[Row]
    source_bytes: int
    saved_bytes: int
    saved_files: int
    changed_bytes: int
    moved_bytes: int
    read_files: int
    changed_files: int
    linked_files: int

    def row(self, what: str) -> Row:
        """The line about one thing."""
        return next(row for row in self.rows if row.what == what)


@dataclass(slots=True)
class Round:
    """What one round gave so far."""

    turn: int
    done: dict[str, list[Once]] = field(default_factory=dict)
    facts: dict[str, int] = field(default_factory=dict)

    def timed(self, what: str, work: Callable[[], T]) -> T:
        """Do it once what came before is written back, and note what it took."""
        os.sync()
        cpu_s, waited_s, started = _cpu_s(), waiting_s(), time.perf_counter()
        result = work()
        seconds = time.perf_counter() - started
        once = Once(seconds, _cpu_s() - cpu_s, waiting_s() - waited_s)
        self.done.setdefault(what, []).append(once)
        return result


def measure(
    workload: Workload,
    folder: Path,
    rounds: int,
    peer_rounds: int,
    until: float,
    say: Callable[[str], None],
) -> Table:
    """Measure one workload.

    Args:
        workload: What to measure with.
        folder: Where to write; on the file system that is to be measured.
        rounds: How often; medians are reported.
        peer_rounds: In how many of them the other tools take part, where the time suffices.
        until: No round begins that would probably end after this time of `time.monotonic`; the first always.
        say: Called at each round.
    """
    source = folder / "checkpoint"
    say(f"{workload.name}: building the checkpoint")
    workload.build(source)
    done: list[Round] = []
    for turn in range(rounds):
        began = time.monotonic()
        say(f"{workload.name}: round {turn + 1} of {rounds}")
        with_peers = [peer for peer in PEERS if peer.there and turn < peer_rounds]
        done.append(_round(workload, source, folder, turn, with_peers, until))
        if time.monotonic() + (time.monotonic() - began) > until:
            break
    source_bytes = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
    shutil.rmtree(source)
    return Table(workload, rows_of(done, COPY, OURS), source_bytes, **done[-1].facts)


def _round(
    workload: Workload, source: Path, folder: Path, turn: int, peers: Sequence[Peer], until: float
) -> Round:
    one = Round(turn)

    def in_time(peer: Peer) -> None:
        if time.monotonic() < until:
            _peer(one, workload, source, folder, peer)

    contenders: list[Callable[[], None]] = [
        partial(_streambank, one, workload, source, folder),
        *(partial(in_time, peer) for peer in peers),
    ]
    first = turn % len(contenders)  # another one comes first in each round
    _plain_copy(one, source, folder)
    for contender in (*contenders[first:], *contenders[:first]):
        contender()
    _plain_copy(one, source, folder)
    return one


def _plain_copy(one: Round, source: Path, folder: Path) -> None:
    with room(folder / "copy") as copy:
        one.timed(COPY, lambda: CP.run(CP.save, source, copy / "copy", one.turn, copy))


def _peer(one: Round, workload: Workload, source: Path, folder: Path, peer: Peer) -> None:
    with room(folder / "peer") as place:
        target = place / "target"
        if peer.prepare:
            peer.run(peer.prepare, source, target, 0, place)
        one.timed(peer.name, lambda: peer.run(peer.save, source, target, 1, place))
        if not peer.again:
            return
        with one_more_batch(workload, source):
            one.timed(f"{peer.name}, one more batch", lambda: peer.run(peer.save, source, target, 2, place))
            one.timed(f"{peer.name}, unchanged", lambda: peer.run(peer.save, source, target, 3, place))


def _streambank(one: Round, workload: Workload, source: Path, folder: Path) -> None:
    with room(folder / "streambank") as place:
        location = place / "repository"

        def opened() -> Repository:
            return Repository.open(open_store(location), create=True)

        checkpoint = open_store(source)
        repository = opened()
        full = one.timed(FULL, lambda: take(TakeRequest(checkpoint, repository, "bench")))
        with one_more_batch(workload, source) as added:
            before = _size(location)
            repository = opened()
            changed = one.timed(CHANGED, lambda: take(TakeRequest(checkpoint, repository, "bench")))
            moved = _size(location) - before
            repository = opened()
            unchanged = one.timed(UNCHANGED, lambda: take(TakeRequest(checkpoint, repository, "bench")))
            command = [sys.executable, "-m", "streambank", "take", str(source), "-r", str(location)]
            one.timed(
                COMMAND,
                lambda: subprocess.run(
                    [*command, "--job", "bench"], check=True, stdout=subprocess.DEVNULL, env=environment()
                ),
            )
            one.facts["changed_bytes"] = sum(path.stat().st_size for path in added)
            one.facts["changed_files"] = len(added)
        repository = opened()
        report = one.timed(
            VERIFY, lambda: verify(repository, "bench", changed.savepoint, "full", record=False)
        )
        if not report.ok or not unchanged.already_there:
            raise RuntimeError("the savepoint does not hold: the figures would mean nothing")
        for what, link in ((RESTORE, False), (LINK, True)):
            repository = opened()
            target = open_store(place / f"restored-{link}")
            request = RestoreRequest(repository, changed.savepoint, job="bench", into=target, link=link)
            restored = one.timed(what, partial(restore, request))
        one.facts |= {
            "saved_bytes": full.bytes,
            "saved_files": full.files,
            "moved_bytes": moved,
            "read_files": changed.new_files,
            "linked_files": restored.layout.linked_files,
        }


@contextmanager
def room(place: Path) -> Iterator[Path]:
    """A folder that is there within it."""
    place.mkdir()
    try:
        yield place
    finally:
        shutil.rmtree(place)


@contextmanager
def one_more_batch(workload: Workload, source: Path) -> Iterator[list[Path]]:
    """Let the checkpoint have one more batch; gives the files that are new."""
    added = workload.add_batch(source)
    try:
        yield added
    finally:
        for path in added:
            path.unlink()


def rows_of(rounds: Sequence[Round], plain: str, ours: Sequence[str]) -> list[Row]:
    """The lines of a table: the plain way first, then ours, then those of other tools.

    Args:
        rounds: What was measured.
        plain: The one that the others are compared with, by the mean of its times in each round.
        ours: The names of ours.
    """
    rows: dict[str, list[Once]] = {}
    for one in rounds:
        plain_s = statistics.mean(each.seconds for each in one.done[plain])
        for what, times in one.done.items():
            rows.setdefault(what, []).extend(replace(each, ratio=each.seconds / plain_s) for each in times)
    names = [plain, *ours, *sorted(rows.keys() - {plain, *ours}, key=list(rows).index)]
    return [Row(what, rows[what]) for what in names]


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _cpu_s() -> float:
    """Processor time of this process and of the children it has waited for."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
