"""One Airflow for all nights."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from demo.places import ROOT
from tests.support.airflow_face.live_airflow import QUICK, LiveAirflow, live_airflow
from tests.support.storage.s3_network import network
from tests.support.storage.s3_servers import S3Server, run_seaweedfs

WAIT_S = 300.0


def wait(look: Callable[[], bool], what: str, timeout_s: float = WAIT_S, every_s: float = 0.5) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + timeout_s
    while not look():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:.0f} s"
        time.sleep(every_s)


@dataclass(frozen=True, slots=True)
class Site:
    """The Airflow, and where the nights' jobs are.

    Attributes:
        serve: Starts a separate S3 server for a bucket, which all see from then on until it is killed.
    """

    airflow: LiveAirflow
    folder: Path
    serve: Callable[[str], S3Server]

    @property
    def dags(self) -> Path:
        """Airflow's DAGs folder: a file for each night."""
        return self.folder / "dags"


@contextmanager
def open_site(folder: Path) -> Iterator[Site]:
    """An Airflow without jobs in a folder that does not exist yet."""
    (folder / "dags").mkdir(parents=True)
    bundle = {
        "name": "nights",
        "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
        "kwargs": {"path": str(folder / "dags"), "refresh_interval": 3},
    }
    settings = {
        **QUICK,
        "AIRFLOW__DAG_PROCESSOR__BUNDLE_REFRESH_CHECK_INTERVAL": "3",
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps([bundle]),
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "300",
        # Where notifiers are found.
        "PYTHONPATH": str(ROOT),
        # Logs of drivers whose records are on S3.
        "XDG_STATE_HOME": str(folder / "state"),
    }
    servers: dict[str, S3Server] = {}
    with ExitStack() as stack:

        def serve(bucket: str) -> S3Server:
            place = folder / f"server-{bucket}"
            place.mkdir()
            server = stack.enter_context(run_seaweedfs(place))
            with server.client() as client:
                client.create_bucket(Bucket=bucket)
            servers[bucket] = server
            return server

        seen = stack.enter_context(network(servers)).seen
        seen.use(stack.enter_context(pytest.MonkeyPatch.context()))
        settings |= seen.environment
        yield Site(stack.enter_context(live_airflow(folder / "airflow", settings, jobs=())), folder, serve)
