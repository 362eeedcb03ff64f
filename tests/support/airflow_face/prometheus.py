"""A real Prometheus and a real statsd_exporter, on loopback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo.ports import HOST
from tests.support.paths import ROOT
from tests.support.waiting import wait_for

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
    """One that runs."""

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
