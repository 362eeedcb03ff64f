"""Take, verify and restore with the repository on S3, each against plain PUTs of the same files.

The service is SeaweedFS on this very machine: no network is measured, and its work is done by the same
processors.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from bench.copies import Round, Row, one_more_batch, room, rows_of
from bench.peers import Peer
from bench.workloads import Workload
from streambank.checkpoint.reader import CheckpointReader
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from streambank.storage import open_store
from streambank.storage.s3.client import forget_clients
from tests.support.storage.s3_servers import BUCKET, S3Server, run_seaweedfs

AT_ONCE = 8
PUTS = f"PUT of each file of the savepoint, {AT_ONCE} at once"
FULL, CHANGED, UNCHANGED = "take to S3, full", "take to S3, one more batch", "take to S3, unchanged"
VERIFY, RESTORE = "verify on S3, full", "restore from S3"
OURS = (FULL, CHANGED, UNCHANGED, VERIFY, RESTORE)
WRITING = ("PutObject", "UploadPart", "CreateMultipartUpload", "CompleteMultipartUpload", "CopyObject")
PEERS = (
    Peer("rclone sync to S3", "rclone", "rclone", ["-q", "sync", "{source}", "bench:{target}"]),
    Peer(
        "restic backup to S3",
        "restic",
        "restic",
        ["-q", "-r", "{target}", "backup", "{source}"],
        prepare=["-q", "-r", "{target}", "init"],
    ),
)


@dataclass(frozen=True, slots=True)
class BucketTable:
    """All figures of one workload.

    Attributes:
        workload: What was measured with.
        rows: One for each thing done.
        saved_bytes: Size of the savepoint.
        saved_files: How many files it has.
        writes: How many requests that write each of ours sent, in the last round.
    """

    workload: Workload
    rows: Sequence[Row]
    saved_bytes: int
    saved_files: int
    writes: Mapping[str, int]

    def row(self, what: str) -> Row:
        """The line about one thing."""
        return next(row for row in self.rows if row.what == what)


def measure(
    workload: Workload,
    folder: Path,
    rounds: int,
    peer_rounds: int,
    until: float,
    say: Callable[[str], None],
) -> BucketTable:
    """Measure one workload; the arguments are those of `copies.measure`."""
    source = folder / "checkpoint"
    say(f"{workload.name}, S3: building the checkpoint")
    workload.build(source)
    closure = [file.path for file in CheckpointReader(open_store(source)).closure().files]
    done: list[Round] = []
    for turn in range(rounds):
        began = time.monotonic()
        say(f"{workload.name}, S3: round {turn + 1} of {rounds}")
        peers = [peer for peer in PEERS if peer.there and turn < peer_rounds]
        done.append(_round(workload, source, closure, folder, turn, peers, until, say))
        if time.monotonic() + (time.monotonic() - began) > until:
            break
    size_bytes = sum((source / path).stat().st_size for path in closure)
    shutil.rmtree(source)
    writes = {what: done[-1].facts[what] for what in (PUTS, *OURS)}
    return BucketTable(workload, rows_of(done, PUTS, OURS), size_bytes, len(closure), writes)


def _round(
    workload: Workload,
    source: Path,
    closure: Sequence[str],
    folder: Path,
    turn: int,
    peers: Sequence[Peer],
    until: float,
    say: Callable[[str], None],
) -> Round:
    one = Round(turn)
    with _server(folder / "s3") as server:
        _plain_puts(one, source, closure, server)
        _streambank(one, workload, source, folder / "restored")
        for peer in peers:
            if time.monotonic() < until:
                try:
                    _peer(one, source, peer, server, folder / "peer")
                except RuntimeError as error:  # the figures of the rest are worth having
                    say(f"{error}; it is left out")
        _plain_puts(one, source, closure, server)
    return one


def _plain_puts(one: Round, source: Path, closure: Sequence[str], server: S3Server) -> None:
    prefix = f"plain-{len(one.done.get(PUTS, ()))}"

    def put(client: Any, path: str) -> None:
        with (source / path).open("rb") as body:
            client.put_object(Bucket=BUCKET, Key=f"{prefix}/{path}", Body=body)

    def put_all() -> None:
        with server.client() as client, ThreadPoolExecutor(AT_ONCE) as pool:
            for _ in pool.map(partial(put, client), closure):
                pass

    _counted(one, PUTS, put_all)


def _streambank(one: Round, workload: Workload, source: Path, restored: Path) -> None:
    def opened() -> Repository:
        forget_clients()
        return Repository.open(open_store(f"s3://{BUCKET}/repository"), create=True)

    checkpoint = open_store(source)
    repository = opened()
    _counted(one, FULL, lambda: take(TakeRequest(checkpoint, repository, "bench")))
    with one_more_batch(workload, source):
        repository = opened()
        changed = _counted(one, CHANGED, lambda: take(TakeRequest(checkpoint, repository, "bench")))
        repository = opened()
        again = _counted(one, UNCHANGED, lambda: take(TakeRequest(checkpoint, repository, "bench")))
    repository = opened()
    report = _counted(
        one, VERIFY, lambda: verify(repository, "bench", changed.savepoint, "full", record=False)
    )
    if not report.ok or not again.already_there:
        raise RuntimeError("the savepoint does not hold: the figures would mean nothing")
    repository = opened()
    with room(restored):
        target = open_store(restored / "checkpoint")
        _counted(
            one,
            RESTORE,
            lambda: restore(RestoreRequest(repository, changed.savepoint, job="bench", into=target)),
        )


def _peer(one: Round, source: Path, peer: Peer, server: S3Server, place: Path) -> None:
    target = f"{BUCKET}/{peer.program}"
    if peer.program == "restic":
        target = f"s3:{server.endpoint}/{target}"
    with room(place):
        if peer.prepare:
            peer.run(peer.prepare, source, target, 0, place, _settings(server))
        one.timed(peer.name, lambda: peer.run(peer.save, source, target, 1, place, _settings(server)))


def _settings(server: S3Server) -> dict[str, str]:
    remote = {
        "TYPE": "s3",
        "PROVIDER": "Other",
        "ENV_AUTH": "true",
        "ENDPOINT": server.endpoint,
        "REGION": "us-east-1",
        "FORCE_PATH_STYLE": "true",
    }
    # rclone does not start where a bundle is named; the server speaks plain HTTP.
    plain = {**server.environment, "AWS_CA_BUNDLE": ""}
    return plain | {f"RCLONE_CONFIG_BENCH_{name}": value for name, value in remote.items()}


def _counted(one: Round, what: str, work: Callable[[], Any]) -> Any:
    """Time it, and count the requests of this process that write."""
    from botocore.client import BaseClient

    asked: Counter[str] = Counter()
    lock, call = threading.Lock(), BaseClient._make_api_call

    def counting(client: BaseClient, operation: str, arguments: Any) -> Any:
        with lock:
            asked[operation] += 1
        return call(client, operation, arguments)

    with mock.patch.object(BaseClient, "_make_api_call", counting):
        result = one.timed(what, work)
    one.facts[what] = sum(asked[operation] for operation in WRITING)
    return result


@contextmanager
def _server(place: Path) -> Iterator[S3Server]:
    """A separate server for each round; this process's stores use it meanwhile."""
    with (
        room(place),
        run_seaweedfs(place) as server,
        mock.patch.dict(os.environ, server.environment),
    ):
        try:
            yield server
        finally:
            forget_clients()
