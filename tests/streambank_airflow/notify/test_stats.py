"""What is found of SLAs arrives as Airflow's metrics: over UDP, and over OTLP, both on loopback."""

from __future__ import annotations

import math
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from http.server import HTTPServer
from pathlib import Path
from typing import Any, get_args

import pytest
from airflow.providers.common.compat.sdk import Stats, conf

from streambank.declaration.objectives import Unit
from streambank.job.alive import Life
from streambank.sla.ages import Ages
from streambank.sla.assess import Assessment
from streambank_airflow.notify.stats import UNITS, Gauges
from tests.support.airflow_face.releases import BEFORE_3_2, BEFORE_3_3
from tests.support.airflow_face.statsd_client import have_statsd
from tests.support.serving import Quiet, serving
from tests.support.sla.fake_assessments import AT, MUTE, verdict

FOUND = Assessment(
    "flights.daily",
    AT,
    (
        verdict("history", "ok", job="flights.daily", value=None),
        verdict("state_bytes", "breach", job="flights.daily", value=12e9, unit="bytes", mute=MUTE),
        verdict("watermark_lag", "warn", job="flights.daily", query="left", value=61.5, unit="s", warn=60.0),
        verdict("growth", "unknown", job="flights.daily", value=None, unit="bytes/h", warn=1e6),
    ),
)
AGES = Ages({"main": 60.0, "left": 7200.0}, {"left": 7260.0}, 86400.0, drill_passed=False)


def begin_metrics() -> None:
    """As Airflow's task runner does, by the settings of this moment."""
    if BEFORE_3_2:  # where the class does so at its first use
        kind: Any = type(Stats)
        del kind.factory
        kind.__init__(Stats)
        Stats.instance = None  # type: ignore[attr-defined]  # 3.1's
        return
    from airflow.sdk.observability.metrics import stats_utils

    if BEFORE_3_3:
        Stats.initialize(factory=stats_utils.get_stats_factory(Stats))  # type: ignore[call-arg]  # 3.2's
        return
    legacy_names = conf.getboolean("metrics", "legacy_names_on")
    Stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=legacy_names)


@pytest.fixture
def begin_stats(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes Airflow's metrics begin as its task runner does, by these settings."""

    def begin(**settings: str) -> Gauges:
        for name, value in settings.items():
            monkeypatch.setenv(f"AIRFLOW__METRICS__{name.upper()}", value)
        begin_metrics()
        return Gauges.of_settings()

    yield begin
    monkeypatch.undo()
    begin_metrics()


@pytest.fixture
def udp() -> Iterator[socket.socket]:
    """Where statsd would listen."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(10)
        yield listener


def lines(udp: socket.socket, count: int) -> list[str]:
    """So many datagrams, and no more."""
    found = [udp.recv(4096).decode() for _ in range(count)]
    udp.setblocking(False)
    with pytest.raises(BlockingIOError):
        udp.recv(4096)
    return found


def test_plain_statsd_has_a_gauge_for_each_job_and_objective(
    begin_stats: Any, udp: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    have_statsd(monkeypatch)
    gauges = begin_stats(statsd_on="True", statsd_host="127.0.0.1", statsd_port=str(udp.getsockname()[1]))

    gauges.send("flights.daily", FOUND)

    assert lines(udp, 14) == [
        "airflow.streambank.sla.job_level.flights__daily:2|g",
        f"airflow.streambank.sla.checked_timestamp_seconds.flights__daily:{AT.timestamp()}|g",
        "airflow.streambank.sla.level.flights__daily.main.history:0|g",
        "airflow.streambank.sla.muted.flights__daily.main.history:0|g",
        "airflow.streambank.sla.level.flights__daily.main.state_bytes:3|g",
        "airflow.streambank.sla.muted.flights__daily.main.state_bytes:1|g",
        "airflow.streambank.sla.value_bytes.flights__daily.main.state_bytes:12000000000.0|g",
        "airflow.streambank.sla.level.flights__daily.left.watermark_lag:2|g",
        "airflow.streambank.sla.muted.flights__daily.left.watermark_lag:0|g",
        "airflow.streambank.sla.value_seconds.flights__daily.left.watermark_lag:61.5|g",
        "airflow.streambank.sla.limit_seconds.flights__daily.left.watermark_lag.warn:60.0|g",
        "airflow.streambank.sla.level.flights__daily.main.growth:1|g",
        "airflow.streambank.sla.muted.flights__daily.main.growth:0|g",
        "airflow.streambank.sla.limit_bytes_per_hour.flights__daily.main.growth.warn:1000000.0|g",
    ]


def test_ages_of_savepoints_and_drills_are_gauges(
    begin_stats: Any, udp: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    have_statsd(monkeypatch)
    gauges = begin_stats(statsd_on="True", statsd_host="127.0.0.1", statsd_port=str(udp.getsockname()[1]))

    gauges.send("flights", Assessment("flights", AT, ()), AGES)

    assert lines(udp, 7)[2:] == [
        "airflow.streambank.savepoint.age_seconds.flights.main:60.0|g",
        "airflow.streambank.savepoint.age_seconds.flights.left:7200.0|g",
        "airflow.streambank.replica.age_seconds.flights.left:7260.0|g",
        "airflow.streambank.drill.age_seconds.flights:86400.0|g",
        "airflow.streambank.drill.passed.flights:0|g",
    ]


def test_durations_are_in_seconds_and_what_is_no_number_is_not_sent(
    begin_stats: Any, udp: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    have_statsd(monkeypatch)
    gauges = begin_stats(statsd_on="True", statsd_host="127.0.0.1", statsd_port=str(udp.getsockname()[1]))

    slow = verdict("access_latency", "ok", value=250.0, unit="ms", breach=math.inf)
    gauges.send("flights", Assessment("flights", AT, (slow,)))

    (value,) = lines(udp, 5)[4:]
    assert value == "airflow.streambank.sla.value_seconds.flights.main.access_latency:0.25|g"


def test_each_unit_of_an_objective_ends_a_name() -> None:
    assert set(UNITS) == set(get_args(Unit))


def test_whether_a_job_runs_and_is_watched_is_a_gauge_each(
    begin_stats: Any, udp: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    have_statsd(monkeypatch)
    gauges = begin_stats(statsd_on="True", statsd_host="127.0.0.1", statsd_port=str(udp.getsockname()[1]))

    gauges.send("flights/left", Assessment("flights", AT, (), Life(True, up=True, watched=False)))
    assert lines(udp, 5)[2:] == [
        "airflow.streambank.job.wanted.flights:1|g",
        "airflow.streambank.job.up.flights:1|g",
        "airflow.streambank.job.watched.flights:0|g",
    ]
    udp.setblocking(True)
    gauges.send("flights", Assessment("flights", AT, (), Life(True, up=None)))
    assert lines(udp, 4)[2:] == [
        "airflow.streambank.job.wanted.flights:1|g",
        "airflow.streambank.job.watched.flights:0|g",
    ], "nothing is said where nothing is known"


def test_statsd_with_influx_tags_has_few_names(
    begin_stats: Any, udp: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    have_statsd(monkeypatch)
    port = str(udp.getsockname()[1])
    gauges = begin_stats(
        statsd_on="True", statsd_host="127.0.0.1", statsd_port=port, statsd_influxdb_enabled="True"
    )

    gauges.send("orders/left", Assessment("orders", AT, FOUND.verdicts[2:3]))

    of = "job_name=flights.daily,query=left,objective=watermark_lag"
    assert lines(udp, 6) == [
        "airflow.streambank.sla.job_level,job_name=orders/left:2|g",
        f"airflow.streambank.sla.checked_timestamp_seconds,job_name=orders/left:{AT.timestamp()}|g",
        f"airflow.streambank.sla.level,{of}:2|g",
        f"airflow.streambank.sla.muted,{of}:0|g",
        f"airflow.streambank.sla.value_seconds,{of}:61.5|g",
        f"airflow.streambank.sla.limit_seconds,{of},limit=warn:60.0|g",
    ]


class Collector(Quiet):
    """Takes what an OTLP exporter posts."""

    posted: list[bytes]

    def do_POST(self) -> None:
        self.posted.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()


SENDER = """
from streambank_airflow.notify.stats import Gauges
from tests.streambank_airflow.notify.test_stats import FOUND, begin_metrics
begin_metrics()
Gauges.of_settings().send("flights.daily", FOUND)
"""
"""A process that sends and ends, as a task does."""


def test_opentelemetry_gets_the_tags_as_attributes(project_root: Path) -> None:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    Collector.posted = []
    server = HTTPServer(("127.0.0.1", 0), Collector)
    settings = {
        "AIRFLOW__METRICS__OTEL_ON": "True",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "PYTHONPATH": f"{project_root / 'provider'}:{project_root}",
    }
    if BEFORE_3_2:  # which knows only its own settings of the endpoint
        settings["AIRFLOW__METRICS__OTEL_HOST"] = "127.0.0.1"
        settings["AIRFLOW__METRICS__OTEL_PORT"] = str(server.server_port)
    with serving(server):
        subprocess.run([sys.executable, "-c", SENDER], check=True, env={**os.environ, **settings})

    found = {}
    for data in Collector.posted:
        for resource in ExportMetricsServiceRequest.FromString(data).resource_metrics:
            for metric in (one for scope in resource.scope_metrics for one in scope.metrics):
                for point in metric.gauge.data_points:
                    tags = sorted((one.key, one.value.string_value) for one in point.attributes)
                    value = point.as_double or point.as_int
                    found[metric.name, tuple(one for _, one in tags)] = value
    assert found["airflow.streambank.sla.job_level", ("flights.daily",)] == 2
    assert found["airflow.streambank.sla.value_seconds", ("flights.daily", "watermark_lag", "left")] == 61.5
    assert found["airflow.streambank.sla.level", ("flights.daily", "state_bytes", "main")] == 3


def test_what_is_off_costs_nothing(begin_stats: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gauges = begin_stats(statsd_on="False", otel_on="False")

    def never(*args: Any, **how: Any) -> None:
        raise AssertionError("Airflow reads its registry of names for this")

    monkeypatch.setattr("airflow.providers.common.compat.sdk.Stats.gauge", never)
    gauges.send("flights", FOUND)
    gauges.send_level("flights", "breach")
    gauges.send_operation("flights", "main", "take", outcome="success", seconds=1.0, ended_s=2.0)

    assert not gauges.on
