"""The dashboard that the provider ships, its queries as Grafana sends them, and who sends metrics."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

from streambank_airflow.get_provider_info import get_provider_info
from streambank_airflow.operators.base import StreambankOperator
from tests.support.paths import ROOT

METRICS_FOLDER = ROOT / "provider" / "streambank_airflow" / "metrics"
DASHBOARD: dict[str, Any] = json.loads((METRICS_FOLDER / "grafana.json").read_text(encoding="utf-8"))


def queries(job_name: str = ".*", lookback: str = "30m") -> list[str]:
    """Each query of each panel, with its variables filled in."""
    return [
        target["expr"].replace("$job_name", job_name).replace("$lookback", lookback)
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", ())
    ]


def operators() -> set[type[StreambankOperator]]:
    """All operators on a job that the provider lists."""
    modules = [name for entry in get_provider_info()["operators"] for name in entry["python-modules"]]
    found = [one for name in modules for one in vars(import_module(name)).values() if isinstance(one, type)]
    return {one for one in found if issubclass(one, StreambankOperator)}
