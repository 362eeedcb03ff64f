"""What encrypting a savepoint's bytes before they are stored would cost, against the take that stores them.

    python -m bench.encryption [ROUNDS] [SCALE]

Each of ROUNDS (5) rounds takes a full savepoint into an empty local repository, then encrypts all bytes that
the take stored in objects and packs with AES-256-GCM, and decrypts them again. A segment is what must be
readable alone: 1 MiB of a large object, each small object of a pack; it has a nonce and its own tag. The
bytes are in memory before and after, since a take has read them and writes them anyhow. SCALE (1) makes the
checkpoints smaller. One line of JSON comes out for each workload: medians of seconds, and of the ratios
within each round.
The decision that rests on it is docs/decisions/0005-encryption.md.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from bench.copies import room
from bench.limits import MIB
from bench.workloads import LargeFiles, SmallFiles
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store

T = TypeVar("T")
KEY_BITS = 256
NONCE_BYTES = 12
PORTION_BYTES = 64 * MIB
"""About so many bytes are in memory, and are timed, at once."""
PER_THREAD = 64
"""A thread gets so many segments at once: handing over each small one would be what is measured."""

Segments = list[bytes]
Sealed = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Round:
    """One round.

    Attributes:
        take_s: The take, until its manifest is stored.
        take_cpu_s: The processor time of all its threads.
        encrypt_s: Encryption of what it stored, one thread.
        encrypt_all_s: The same, a thread for each processor.
        decrypt_s: Decryption, one thread.
        stored_bytes: What was encrypted.
    """

    take_s: float
    take_cpu_s: float
    encrypt_s: float
    encrypt_all_s: float
    decrypt_s: float
    stored_bytes: int


def measure(workload: LargeFiles | SmallFiles, folder: Path, rounds: int) -> list[Round]:
    """Measure one workload.

    Args:
        workload: What to measure with.
        folder: Where to write; on the file system that is to be measured.
        rounds: How often.
    """
    source = folder / "checkpoint"
    workload.build(source)
    done = []
    for _ in range(rounds):
        with room(folder / "round") as place:
            done.append(_round(source, place / "repository", workload.file_bytes))
    return done


def summary(workload: str, rounds: Sequence[Round]) -> dict[str, object]:
    """What is printed of a workload."""

    def median(figure: Callable[[Round], float], digits: int = 3) -> float:
        return round(statistics.median(map(figure, rounds)), digits)

    return {
        "workload": workload,
        "rounds": len(rounds),
        "stored_mb": median(lambda one: one.stored_bytes / 1e6, 1),
        "take_s": median(lambda one: one.take_s),
        "take_cpu_s": median(lambda one: one.take_cpu_s),
        "encrypt_s": median(lambda one: one.encrypt_s),
        "encrypt_all_s": median(lambda one: one.encrypt_all_s),
        "decrypt_s": median(lambda one: one.decrypt_s),
        "encrypt_of_take": median(lambda one: one.encrypt_s / one.take_s),
        "encrypt_all_of_take": median(lambda one: one.encrypt_all_s / one.take_s),
        "encrypt_of_take_cpu": median(lambda one: one.encrypt_s / one.take_cpu_s),
        "highest_of_take": round(max(one.encrypt_s / one.take_s for one in rounds), 3),
    }


def _round(source: Path, location: Path, small_bytes: int) -> Round:
    checkpoint, repository = open_store(source), Repository.open(open_store(location), create=True)
    os.sync()
    cpu_s, began = time.process_time(), time.perf_counter()
    take(TakeRequest(checkpoint, repository, "bench"))
    take_s, take_cpu_s = time.perf_counter() - began, time.process_time() - cpu_s
    cipher = AESGCM(AESGCM.generate_key(KEY_BITS))
    threads = len(os.sched_getaffinity(0))
    encrypt_s = encrypt_all_s = decrypt_s = 0.0
    stored_bytes = 0
    with ThreadPoolExecutor(threads) as pool:
        for segments in _portions(location, small_bytes):
            stored_bytes += sum(map(len, segments))
            seconds, sealed = _timed(lambda: _encrypt(cipher, segments))  # noqa: B023
            encrypt_s += seconds
            shares = [segments[start : start + PER_THREAD] for start in range(0, len(segments), PER_THREAD)]
            if len(shares) < threads:
                shares = [segments[start::threads] for start in range(threads)]
            seconds, _ = _timed(lambda: list(pool.map(lambda share: _encrypt(cipher, share), shares)))  # noqa: B023
            encrypt_all_s += seconds
            seconds, plain = _timed(lambda: [cipher.decrypt(nonce, text, None) for nonce, text in sealed])  # noqa: B023
            decrypt_s += seconds
            if plain != segments:
                raise RuntimeError("what was decrypted is not what was encrypted: the figures mean nothing")
    return Round(take_s, take_cpu_s, encrypt_s, encrypt_all_s, decrypt_s, stored_bytes)


def _encrypt(cipher: AESGCM, segments: Segments) -> Sealed:
    sealed = []
    for segment in segments:
        nonce = os.urandom(NONCE_BYTES)
        sealed.append((nonce, cipher.encrypt(nonce, segment, None)))
    return sealed


def _portions(location: Path, small_bytes: int) -> Iterator[Segments]:
    """All bytes of objects and packs, in segments, some at a time."""
    segments: Segments = []
    for folder, size in (("objects", MIB), ("packs", min(small_bytes, MIB))):
        for path in sorted(path for path in (location / folder).rglob("*") if path.is_file()):
            data = path.read_bytes()
            for start in range(0, len(data), size):
                segments.append(data[start : start + size])
            if sum(map(len, segments)) >= PORTION_BYTES:
                yield segments
                segments = []
    if segments:
        yield segments


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    began = time.perf_counter()
    done = work()
    return time.perf_counter() - began, done


def main() -> None:
    """Measure both workloads."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    scale = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    workloads = (
        LargeFiles(partitions=max(1, round(10 * scale))),
        SmallFiles(partitions=max(1, round(500 * scale))),
    )
    for workload in workloads:
        with TemporaryDirectory() as folder:
            print(json.dumps(summary(workload.name, measure(workload, Path(folder), rounds))))


if __name__ == "__main__":
    main()
