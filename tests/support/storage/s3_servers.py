"""S3 servers on this machine, each a process of the tests' own: SeaweedFS, moto's, and versitygw in storms.

All listen on the loopback device only, on free ports, with made-up credentials. `environment` is what boto3
and the store read; a test that uses a server sets it (`use`).
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streambank.storage.s3.client import forget_clients
from tests.support.paths import ROOT

BUCKET = "streambank"
VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
GO_TIMEOUT_S = 1200
ACCESS_KEY = "AKIDTESTOFSTREAMBANK"
SECRET_KEY = "secret-of-the-tests-0123456789"
READER_KEY = "AKIDREADERSTREAMBANK"
READER_SECRET = "secret-of-the-reader-0123456789"
STARTS = 4
START_TIMEOUT_S = 120
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running server with one bucket, `BUCKET`.

    Attributes:
        catalog: The address of its REST catalog of Iceberg tables; empty where it runs none.
    """

    endpoint: str
    catalog: str = ""
    pid: int = 0

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def use(self, patch: pytest.MonkeyPatch) -> S3Server:
        """Let this process's stores use it until the patch is undone."""
        for name, value in self.environment.items():
            patch.setenv(name, value)
        return self

    def location(self, scheme: str = "s3") -> str:
        """A place in the bucket that nobody has used."""
        return f"{scheme}://{BUCKET}/{uuid.uuid4().hex}"

    @contextmanager
    def client(self) -> Iterator[Any]:
        """A boto3 client of the tests' own, for what a store never does."""
        import boto3

        client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            region_name="us-east-1",
        )
        try:
            yield client
        finally:
            client.close()


def free_ports(count: int) -> Sequence[int]:
    """Ports that nobody listens on; all different."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """SeaweedFS, for the tests of a process."""
    with run_seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@contextmanager
def run_seaweedfs(folder: Path, *, tables: str | None = None) -> Iterator[S3Server]:
    """SeaweedFS: a real object store, with credentials that it checks; for benchmarks, too.

    Args:
        tables: A bucket of Iceberg tables, which then have a REST catalog.
    """
    users = folder / "s3.json"
    users.write_text(json.dumps(_users()))
    names = [f"{name}.port{end}" for name in ("master", "volume", "filer", "s3") for end in ("", ".grpc")]
    names += ["s3.port.iceberg"] if tables else []
    catalogs: list[str] = []

    def command() -> tuple[int, Sequence[str]]:
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        ports["admin.port"], ports["admin.port.grpc"] = _admin_ports()
        data = folder / f"data-{ports['s3.port']}"
        data.mkdir()
        catalogs[:] = [f"http://127.0.0.1:{ports['s3.port.iceberg']}"] if tables else [""]
        return ports["s3.port"], [
            str(Path(sys.executable).parent / "weed"),
            "mini",
            f"-dir={data}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-master.telemetry=false",
            "-admin.ui=false",
            "-webdav=false",
            f"-tableBucket={tables}" if tables else "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-s3.autoCreateBucket=false",
            "-volume.preStopSeconds=0",
            f"-s3.config={users}",
            *(f"-{name}={port}" for name, port in ports.items()),
        ]

    with _running(command, folder) as server:
        yield replace(server, catalog=catalogs[0])


@pytest.fixture(scope="session")
def moto_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """moto's server: S3 as its authors read Amazon's documentation; it believes every credential."""

    def command() -> tuple[int, Sequence[str]]:
        (port,) = free_ports(1)
        return port, [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]

    with _running(command, tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="session")
def versitygw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """versitygw: S3 over a directory; built once by Go, which is therefore needed."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("versitygw is not tested: it is built by Go 1.25 or newer, which is not installed")
    binary = ROOT / ".streambank" / "go" / "versitygw"
    if not binary.exists():
        environment = {**os.environ, "GOBIN": str(binary.parent)}
        subprocess.run([go, "install", VERSITYGW], check=True, timeout=GO_TIMEOUT_S, env=environment)
    folder = tmp_path_factory.mktemp("versitygw")
    for name in ("data", "versions", "iam"):
        (folder / name).mkdir()

    def command() -> tuple[int, Sequence[str]]:
        (port,) = free_ports(1)
        return port, [
            *(str(binary), "--port", f"127.0.0.1:{port}", "--iam-dir", str(folder / "iam"), "--quiet"),
            *("--keep-alive", "posix", "--versioning-dir", str(folder / "versions"), str(folder / "data")),
        ]

    root = {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
    with _running(command, folder, root) as server:
        yield server


def _admin_ports() -> tuple[int, int]:
    """Two free ports as far apart as the server's own workers take for granted."""
    while True:
        (port,) = free_ports(1)
        apart = port + 10_000 if port < 50_000 else port - 10_000
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", apart))
            return min(port, apart), max(port, apart)


def _users() -> Mapping[str, Any]:
    def user(name: str, key: str, secret: str, actions: Sequence[str]) -> Mapping[str, Any]:
        return {
            "name": name,
            "credentials": [{"accessKey": key, "secretKey": secret}],
            "actions": actions,
        }

    everything = ["Admin", "Read", "Write", "List", "Tagging"]
    return {
        "identities": [
            user("tests", ACCESS_KEY, SECRET_KEY, everything),
            user("reader", READER_KEY, READER_SECRET, ["Read", "List"]),
        ]
    }


@contextmanager
def _running(
    command: Callable[[], tuple[int, Sequence[str]]],
    folder: Path,
    environment: Mapping[str, str] | None = None,
) -> Iterator[S3Server]:
    """Run a server until the end of the `with`; it is ready, and has the bucket, at its beginning.

    A port that was free when it was looked for may be somebody's when the server comes to it: then others
    are looked for.

    Args:
        command: Chooses ports; the one of S3, and the command.
    """
    log = folder / "log"
    for tries_left in reversed(range(STARTS)):
        port, words = command()
        server = S3Server(f"http://127.0.0.1:{port}")
        with log.open("wb") as output:
            process = subprocess.Popen(
                words,
                cwd=folder,
                env={"PATH": os.environ["PATH"], "HOME": str(folder), **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            if not _wait_for(partial(_makes_bucket, server), process, log, may_end=tries_left > 0):
                continue
            yield replace(server, pid=process.pid)
        finally:
            forget_clients()
            _end(process)
        return


def _end(process: subprocess.Popen[bytes]) -> None:
    # Asked to end, SeaweedFS takes up to ten seconds, and nobody needs its data any more.
    process.kill()
    process.wait()


def _makes_bucket(server: S3Server) -> bool:
    from botocore.exceptions import BotoCoreError, ClientError

    host, _, port = server.endpoint.removeprefix("http://").partition(":")
    with (
        suppress(OSError, BotoCoreError, ClientError),
        socket.create_connection((host, int(port)), timeout=1),
        server.client() as client,
    ):
        client.create_bucket(Bucket=BUCKET)
        client.put_object(Bucket=BUCKET, Key="ready", Body=b"")
        client.delete_object(Bucket=BUCKET, Key="ready")
        return True
    return False


def _wait_for(
    ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path, *, may_end: bool
) -> bool:
    """Whether the server got ready; False where it ended instead and may."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not ready():
        tail = log.read_text(errors="replace")[-2000:]
        if process.poll() is not None:
            assert may_end, f"The server ended: {tail}"
            return False
        assert time.monotonic() < deadline, f"The server did not start: {tail}"
        time.sleep(POLL_S)
    return True
