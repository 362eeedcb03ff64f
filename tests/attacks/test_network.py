"""A driver listens on the network, a redirect or a log sends a request anywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import ThreadingHTTPServer

import pytest

from streambank.core.errors import StorageError
from streambank.doctor.checks.sources import check_replay
from streambank.doctor.subject import SkippedCheck
from streambank.driver.launchers.http import get_json, send_json
from streambank.driver.spark_properties import loopback_settings
from tests.support.checkpoint.doctor_inputs import planned
from tests.support.checkpoint.recorded import checkpoint
from tests.support.refuses import refuses
from tests.support.serving import Quiet, serving


class Redirecting(ThreadingHTTPServer):
    """Sends whoever asks for /go to `target`, answers others with `status`; remembers what it was asked."""

    target = ""
    status = 200

    def __init__(self) -> None:
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(Quiet):
    server: Redirecting

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append(f"{self.command} {self.path}")
        going = self.path == "/go"
        self.send_response(302 if going else self.server.status)
        if going:
            self.send_header("Location", self.server.target)
        data = b"" if going else b"{}"
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = _answer


@pytest.fixture
def cluster() -> Iterator[Redirecting]:
    server = Redirecting()
    with serving(server):
        yield server


@pytest.mark.parametrize("host", ["localhost", "127.0.0.2"])
def test_a_redirect_to_another_host_is_not_followed(cluster: Redirecting, host: str) -> None:
    cluster.target = f"http://{host}:{cluster.server_port}/elsewhere"
    with refuses(StorageError, "cluster-refused"):
        get_json(f"http://127.0.0.1:{cluster.server_port}/go")
    assert cluster.asked == ["GET /go"]


def test_what_is_sent_goes_nowhere_else(cluster: Redirecting) -> None:
    cluster.target = f"http://127.0.0.1:{cluster.server_port}/elsewhere"
    with pytest.raises(StorageError):
        send_json(f"http://127.0.0.1:{cluster.server_port}/go", {"password": "planted"})
    assert cluster.asked == ["POST /go"]


def test_a_page_may_move_on_its_own_host(cluster: Redirecting) -> None:
    cluster.target = f"http://127.0.0.1:{cluster.server_port}/there"
    assert get_json(f"http://127.0.0.1:{cluster.server_port}/go") == {}
    assert cluster.asked == ["GET /go", "GET /there"]


@pytest.mark.parametrize(
    ("path", "named", "asked"),
    [
        ("webhdfs://127.0.0.1:1/x", (), False),
        ("WEBHDFS://127.0.0.1:1/x", ("s3a://bucket/in",), False),
        ("http://169.254.169.254/latest", ("file:///checkpoint", "hdfs://in"), False),
        ("s3a://bucket/in/1.json", ("--input=s3://bucket/in",), True),
        ("hdfs://namenode/in/1.json", ("hdfs://namenode/in",), True),
        ("file:///in/1.json", (), True),
        ("/in/1.json", (), True),
    ],
)
def test_a_log_chooses_no_scheme_that_the_job_does_not_name(
    path: str, named: tuple[str, ...], asked: bool
) -> None:
    entry = json.dumps({"path": path, "timestamp": 1, "batchId": 2})
    files = checkpoint("4.3.0/hdfs-window")
    (log, *_) = planned(files)[0].sources[0].files
    closure, planner = planned(files.having({log: f"v1\n{entry}".encode()}))
    named = (*named, "file:///in")
    seen: list[str] = []

    def exists(uri: str) -> bool:
        seen.append(uri)
        return True

    results = [*check_replay(closure, planner, None, exists, named)]
    assert bool(seen) is asked
    assert any(isinstance(one, SkippedCheck) for one in results) is not asked


def test_a_driver_on_this_machine_is_for_this_machine() -> None:
    for master in ("local", "local[*]", "local[2, 4]"):
        assert loopback_settings(master, {}) == {
            "spark.authenticate": "true",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
        }
    assert loopback_settings("local[1]", {"spark.driver.host": "here", "spark.authenticate": "false"}) == {}
    for master in ("spark://m:7077", "yarn", "k8s://https://m", "local-cluster[1,1,512]"):
        assert loopback_settings(master, {}) == {}


@pytest.mark.parametrize("status", [401, 403])
def test_a_guarded_cluster_is_said_to_get_no_login(cluster: Redirecting, status: int) -> None:
    """A master behind `spark.master.rest.filters` refuses, and it is said that no other address helps."""
    cluster.status = status
    with refuses(StorageError, "cluster-refused") as raised:
        send_json(f"http://127.0.0.1:{cluster.server_port}/v1/submissions/create", {"password": "planted"})
    assert f"it answered {status}" in raised.value.message and "planted" not in str(raised.value.to_dict())
    assert raised.value.hint is not None
    assert "no login" in raised.value.hint and "client mode" in raised.value.hint


def test_a_cluster_that_refuses_for_another_reason_is_not_said_to_want_a_login(cluster: Redirecting) -> None:
    cluster.status = 404
    with refuses(StorageError, "cluster-refused") as raised:
        get_json(f"http://127.0.0.1:{cluster.server_port}/v1/submissions/status/x")
    assert "login" not in (raised.value.hint or "")
