"""What our code sends through Airflow's metrics, as a real Prometheus has it: the dashboard, and the alerts.

docs/howto/metrics.md is followed: its settings, its commands, its configuration.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from demo.ports import HOST
from tests.support.airflow_face.dashboard import METRICS_FOLDER, queries
from tests.support.paths import ROOT
from tests.support.storage.s3_servers import free_ports
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.storm, pytest.mark.airflow]

# A real Prometheus and a real statsd_exporter, on loopback.

EXPORTER = "github.com/prometheus/statsd_exporter@v0.31.0"
GO_TIMEOUT_S = 900


def tool(name: str) -> str:
    """Prometheus, or its tool."""
    found = shutil.which(name)
    assert found is not None, f"This storm needs {name}: install it (Debian: apt-get install prometheus)."
    return found


def statsd_exporter() -> str:
    """statsd_exporter: the installed one, or one that Go builds once."""
    found = shutil.which("statsd_exporter") or shutil.which("prometheus-statsd-exporter")
    if found is not None:
        return found
    binary = ROOT / ".streambank" / "go" / "statsd_exporter"
    if not binary.exists():
        go = shutil.which("go")
        assert go is not None, "This storm needs statsd_exporter, or Go to build it: install either."
        environment = {**os.environ, "GOBIN": str(binary.parent)}
        subprocess.run([go, "install", EXPORTER], check=True, timeout=GO_TIMEOUT_S, env=environment)
    return str(binary)


@contextmanager
def running(command: Sequence[str], folder: Path, ready: str) -> Iterator[None]:
    """Run a server until the end of the `with`; at its beginning this URL answers."""
    with (folder / f"{Path(command[0]).name}.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_for(ready, lambda: server.poll() is not None or _answers(ready), within_s=60)
        assert server.poll() is None, Path(log.name).read_text(encoding="utf-8")
        yield
    finally:
        server.terminate()
        try:
            server.wait(timeout=20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class Prometheus:
    port: int

    def ask(self, path: str, **parameters: str) -> Any:
        url = f"http://{HOST}:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                document = json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error
        assert document["status"] == "success", document
        return document["data"]

    def query(self, expression: str) -> dict[tuple[tuple[str, str], ...], float]:
        """What an expression is now: by the labels of each series, without those of the target."""
        found = self.ask("query", query=expression)
        return {_labels(one["metric"]): float(one["value"][1]) for one in found["result"]}


def _labels(metric: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, value) for name, value in metric.items() if name not in ("job", "instance")))


PAGE = (ROOT / "docs/howto/metrics.md").read_text(encoding="utf-8")

SENDER = """
import sys, time
import pytest
from datetime import timedelta
from streambank.core.units import utc_now
from streambank.job.alive import Life
from streambank.sla.ages import Ages
from streambank.sla.assess import Assessment
from streambank_airflow.notify.stats import UNITS, Gauges
from tests.streambank_airflow.notify.test_stats import begin_metrics
from tests.support.airflow_face.statsd_client import have_statsd
from tests.support.sla.fake_assessments import MUTE, verdict

if sys.argv[1] == "statsd":
    have_statsd(pytest.MonkeyPatch())
begin_metrics()
gauges, now = Gauges.of_settings(), utc_now()
units = [
    verdict(f"of_{number}", "ok", job="good.daily", unit=unit, value=1.0, warn=2.0, breach=3.0)
    for number, unit in enumerate(UNITS)
]
gauges.send(
    "good.daily",
    Assessment("good.daily", now, tuple(units), Life(True, up=True, watched=True)),
    Ages({"main": 60.0}, {"main": 70.0}, 80.0, True),
)
muted = verdict("state_bytes", "breach", job="muted", mute=MUTE, unit="bytes", value=2.0, breach=1.0)
gauges.send("muted", Assessment("muted", now, (muted,), Life(True, up=True, watched=True)))
down = verdict("alive", "breach", job="down", unit="s", value=900.0, breach=300.0)
gauges.send("down", Assessment("down", now, (down,), Life(True, up=False, watched=True)))
alone = verdict("alive", "breach", job="alone", unit="s", value=900.0, breach=300.0)
gauges.send("alone", Assessment("alone", now, (alone,), Life(True, up=True, watched=False)))
by_hand = verdict("alive", "ok", job="by-hand", unit="s", value=0.0, breach=300.0)
gauges.send("by-hand", Assessment("by-hand", now, (by_hand,), Life(True, up=True, watched=False)))
broken = verdict("watermark_lag", "breach", job="broken", query="left", unit="s", value=99.0, breach=60.0)
gauges.send("broken", Assessment("broken", now, (broken,), Life(True, up=True, watched=True)))
old = verdict("savepoint_age", "breach", job="old", unit="s", value=9000.0, breach=60.0)
gauges.send("old", Assessment("old", now, (old,), Life(True, up=True, watched=True)), Ages({"main": 9000.0}))
ages = Ages({"main": 90000.0}, {}, 9e6, False)
gauges.send("older", Assessment("older", now, (), Life(True, up=True, watched=True)), ages)
gauges.send("stopped", Assessment("stopped", now, (), Life(False, up=False)), Ages({"main": 90000.0}))
gauges.send("late", Assessment("late", now - timedelta(hours=2), (), Life(True, up=True, watched=True)))
gauges.send_level("unjudged", "breach")
ended_s = time.time()
gauges.send_operation("good.daily", "main", "take", outcome="success", seconds=3.0, ended_s=ended_s)
gauges.send_operation("old", "main", "drill", outcome="failed", seconds=4.0, ended_s=ended_s)
"""
"""A process that sends and ends, as tasks do: a job for each alert, and one for which none is."""

FIRES = {
    "StreambankJobDown": {"down"},
    "StreambankJobUnwatched": {"alone"},
    "StreambankObjectiveBroken": {"broken"},
    "StreambankSavepointTooOld": {"old", "older"},
    "StreambankNoSavepoint": {"muted", "down", "alone", "by-hand", "broken", "late"},
    "StreambankNotJudged": {"unjudged"},
    "StreambankDrillFailed": {"older"},
    "StreambankNotChecked": {"late"},
}


def block(language: str, number: int = 0) -> str:
    found: list[str] = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return found[number]


def commands() -> list[str]:
    return re.findall(r"^\$ (.*)$", PAGE, re.MULTILINE)


def settings(text: str, **other: str) -> dict[str, str]:
    """Environment variables with what the page sets in airflow.cfg."""
    found = configparser.ConfigParser()
    found.read_string(text)
    return {
        f"AIRFLOW__METRICS__{name.upper()}": value for name, value in {**found["metrics"], **other}.items()
    }


def send(kind: str, variables: dict[str, str]) -> None:
    environment = {**os.environ, **variables, "PYTHONPATH": f"{ROOT / 'provider'}:{ROOT}"}
    subprocess.run([sys.executable, "-c", SENDER, kind], check=True, env=environment, cwd=ROOT)


@pytest.fixture(scope="module", params=["True", "False"], ids=["influx", "plain"])
def prometheus(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """One that has what was sent by statsd, with tags or with names of parts."""
    folder = tmp_path_factory.mktemp("prometheus")
    udp, web, port = free_ports(3)
    copy = next(one for one in commands() if one.startswith("cp "))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(["bash", "-c", copy], check=True, cwd=folder, env={**os.environ, "PATH": path})
    text = block("yaml").replace("127.0.0.1:9102", f"{HOST}:{web}").replace("15s", "1s")
    (folder / "prometheus.yml").write_text(text, encoding="utf-8")
    said = {words[0]: words for words in map(shlex.split, commands())}
    exporter = [statsd_exporter(), *said["statsd_exporter"][1:], f"--web.listen-address={HOST}:{web}"]
    exporter += [f"--statsd.listen-udp={HOST}:{udp}", "--statsd.listen-tcp="]
    server = [tool("prometheus"), *said["prometheus"][1:], f"--web.listen-address={HOST}:{port}"]
    with ExitStack() as stack:
        stack.enter_context(running(exporter, folder, f"http://{HOST}:{web}/metrics"))
        stack.enter_context(running(server, folder, f"http://{HOST}:{port}/-/ready"))
        other = {"statsd_port": str(udp), "statsd_influxdb_enabled": request.param}
        send("statsd", settings(block("ini"), **other))
        found = Prometheus(port)
        wait_for("what was sent", lambda: found.query("airflow_streambank_operation_seconds"), within_s=60)
        time.sleep(3)  # another scrape, of all of it
        yield found


def test_each_query_of_the_dashboard_has_an_answer(prometheus: Prometheus) -> None:
    for query in queries():
        assert prometheus.query(query), query
    good = "good" if prometheus.query('airflow_streambank_job_up{job_name="good__daily"}') else "good.daily"
    for query in queries(job_name=f"{good}.*"):
        prometheus.query(query)


def test_labels_are_those_of_the_page(prometheus: Prometheus) -> None:
    (operation,) = prometheus.query('airflow_streambank_operation_seconds{operation="take"}')
    named = dict(operation)
    assert named.pop("job_name").replace("__", ".") == "good.daily"
    name = {"__name__": "airflow_streambank_operation_seconds"}
    assert named == {**name, "query": "main", "operation": "take", "outcome": "success"}
    limits = prometheus.query('airflow_streambank_sla_limit_seconds{job_name="down"}')
    assert [dict(one)["limit"] for one in limits] == ["breach"]
    assert prometheus.query("airflow_streambank_job_wanted").keys() == {
        (("__name__", "airflow_streambank_job_wanted"), ("job_name", job))
        for job in {dict(one)["job_name"] for one in prometheus.query("airflow_streambank_job_wanted")}
    }


def test_each_panel_counts_what_is_wrong(prometheus: Prometheus) -> None:
    counted = [prometheus.query(query)[()] for query in queries() if query.startswith("count(")]
    assert counted == [1, 1, 4, 1], "down; unwatched; broken, of those two and of two more; late"


def test_each_alert_is_for_the_job_that_it_is_for(prometheus: Prometheus) -> None:
    (group,) = prometheus.ask("rules")["groups"]
    found = {
        rule["name"]: {dict(one)["job_name"] for one in prometheus.query(rule["query"])}
        for rule in group["rules"]
    }
    assert found == FIRES
    wait_for(
        "the rules are evaluated",
        lambda: all(one["health"] == "ok" for one in _rules(prometheus)),
        within_s=90,
    )


def _rules(prometheus: Prometheus) -> list[dict[str, object]]:
    (group,) = prometheus.ask("rules")["groups"]
    rules: list[dict[str, object]] = group["rules"]
    return rules


def test_promtool_finds_nothing_wrong_with_the_files_of_the_page(tmp_path: Path) -> None:
    for file in METRICS_FOLDER.glob("*.yml"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "prometheus.yml").write_text(block("yaml"), encoding="utf-8")
    checks = [words for words in map(shlex.split, commands()) if words[0] == "promtool"]
    assert len(checks) == 2
    for words in checks:
        subprocess.run([tool("promtool"), *words[1:]], check=True, cwd=tmp_path)
    tests = ROOT / "tests/data/prometheus/alerts_test.yml"
    (tmp_path / tests.name).write_bytes(tests.read_bytes())
    subprocess.run([tool("promtool"), "test", "rules", tests.name], check=True, cwd=tmp_path)
    tested = {
        one["alertname"]
        for each in yaml.safe_load(tests.read_text())["tests"]
        for one in each["alert_rule_test"]
    }
    assert tested == FIRES.keys()


def test_the_page_names_the_exporter_that_is_tested() -> None:
    assert f"go install {EXPORTER}" in commands()


def _takes_otlp() -> list[str] | None:
    """How this Prometheus takes OpenTelemetry's protocol; None for one that is too old."""
    said = subprocess.run([tool("prometheus"), "--version"], capture_output=True, text=True, check=True)
    version = re.search(r"version (\d+)\.(\d+)", said.stdout + said.stderr)
    assert version is not None
    number = int(version[1]), int(version[2])
    if number < (2, 47):
        return None
    return ["--web.enable-otlp-receiver"] if number >= (3, 0) else ["--enable-feature=otlp-write-receiver"]


def test_the_same_arrives_by_opentelemetry_where_prometheus_takes_it(tmp_path: Path) -> None:
    flags = _takes_otlp()
    if flags is None:
        return  # what Debian 12 has
    (port,) = free_ports(1)
    (tmp_path / "prometheus.yml").write_text(
        "storage: {tsdb: {out_of_order_time_window: 30m}}\n", encoding="utf-8"
    )
    server = [tool("prometheus"), *flags, f"--web.listen-address={HOST}:{port}"]
    server += ["--config.file=prometheus.yml", "--storage.tsdb.path=data"]
    lines = block("properties").replace("9090", str(port)).splitlines()
    variables = dict(line.split("=", 1) for line in lines)
    with running(server, tmp_path, f"http://{HOST}:{port}/-/ready"):
        send("otlp", {**settings(block("ini", 1)), **variables})
        found = Prometheus(port)
        wait_for("what was sent", lambda: found.query("airflow_streambank_operation_seconds"), within_s=60)
        for query in queries():
            assert found.query(query), query
        rules = yaml.safe_load((METRICS_FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]
        fires = {one["alert"]: {dict(each)["job_name"] for each in found.query(one["expr"])} for one in rules}
        assert fires == FIRES
        assert json.dumps(found.ask("label/instance/values")) == '["airflow"]'
