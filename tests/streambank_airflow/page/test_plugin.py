"""What every process of Airflow pays for the plugin, and what the plugin says to Airflow."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib

import pytest

from streambank_airflow.page.plugin import StreambankPlugin, base_path
from tests.support.paths import ROOT

COUNT = """
import json, sys
import airflow.sdk
from airflow.providers.common.compat.sdk import AirflowPlugin, conf
before = set(sys.modules)
from streambank_airflow.page.plugin import StreambankPlugin
plugin = StreambankPlugin()
apps = plugin.react_apps
print(json.dumps({"new": sorted(set(sys.modules) - before), "apps": len(apps)}))
"""


def test_the_plugin_costs_a_process_next_to_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    ours = {name for name in found["new"] if name.partition(".")[0].startswith("streambank")}

    assert not {name.partition(".")[0] for name in found["new"]} & {"fastapi", "sqlalchemy", "boto3"}
    assert not {name for name in ours if name.startswith("streambank.") and ".core" not in name}
    assert len(ours) <= 12, sorted(ours)
    assert found["apps"] in (0, 3)


def test_airflow_finds_the_plugin_by_its_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    (entry,) = project["entry-points"]["airflow.plugins"].values()
    assert entry == f"{StreambankPlugin.__module__}:{StreambankPlugin.__name__}"


@pytest.mark.parametrize(
    ("url", "path"),
    [("", ""), ("http://host:8080", ""), ("https://host/", ""), ("https://host/air/flow/", "/air/flow")],
)
def test_files_are_below_the_path_of_airflow(url: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", url)
    monkeypatch.setenv("AIRFLOW__STREAMBANK__PAGE", "True")

    assert base_path() == path
    assert {one["bundle_url"] for one in StreambankPlugin().react_apps} == {
        f"{path}/streambank/static/main.js"
    }


@pytest.mark.parametrize("setting", ["False", "perhaps"])
def test_a_page_that_is_off_or_wrongly_set_is_not_there_and_breaks_nothing(
    setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__STREAMBANK__PAGE", setting)

    assert StreambankPlugin().react_apps == []
    assert StreambankPlugin().fastapi_apps == []


def test_routes_that_cannot_be_built_break_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from streambank_airflow.page import routes

    def broken() -> None:
        raise RuntimeError("a FastAPI that is too new")

    monkeypatch.setenv("AIRFLOW__STREAMBANK__PAGE", "True")
    assert len(StreambankPlugin().fastapi_apps) == 1
    monkeypatch.setattr(routes, "page_app", broken)

    assert StreambankPlugin().fastapi_apps == []
