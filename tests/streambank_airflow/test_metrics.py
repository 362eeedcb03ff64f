"""The files for Prometheus and Grafana, and the page about metrics, name what is sent and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # it ships no types
import pytest
import yaml

from streambank_airflow.notify.stats import METRICS, UNITS
from tests.support.airflow_face.dashboard import DASHBOARD, METRICS_FOLDER, operators, queries
from tests.support.paths import ROOT

PAGE = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
SCHEMA: dict[str, Any] = json.loads((ROOT / "tests/data/grafana/dashboard.schema.json").read_text())


def expanded() -> dict[str, tuple[str, ...]]:
    """Each gauge as Prometheus calls it, with its labels."""
    ends = sorted({end for end, _ in UNITS.values()})
    return {
        f"airflow_{name}".replace(".", "_").replace("UNIT", end): labels
        for name, labels in METRICS.items()
        for end in (ends if "UNIT" in name else [""])
    }


def rules() -> Iterator[dict[str, Any]]:
    document = yaml.safe_load((METRICS_FOLDER / "alerts.yml").read_text(encoding="utf-8"))
    for group in document["groups"]:
        yield from group["rules"]


def named(expression: str) -> Iterator[tuple[str, set[str]]]:
    """The metrics of an expression, each with the labels that it is selected by."""
    for name, selector in re.findall(r"(airflow_\w+)(\{[^}]*\})?", expression):
        yield name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector))


def test_the_page_has_each_gauge_with_its_tags_and_each_unit() -> None:
    rows = re.findall(r"^\| `(streambank\.[\w.]+)` \| ([^|]*) \|", PAGE, re.MULTILINE)
    shown = {name: tuple(re.findall(r"`(\w+)`", cell)) for name, cell in rows}
    assert shown == METRICS
    units = re.findall(r"^\| ([^|`]+) \| `(\w+)` \|", PAGE, re.MULTILINE)
    assert sorted({end for _, end in units}) == sorted({end for end, _ in UNITS.values()})


def test_the_page_has_each_operation() -> None:
    said = re.search(r"^`operation` is one of (.*?)\.$", PAGE, re.DOTALL | re.MULTILINE)
    assert said is not None
    assert set(re.findall(r"`(\w+)`", said[1])) == {one.operation for one in operators()} - {""}


def test_the_dashboard_has_the_structure_of_one() -> None:
    jsonschema.Draft7Validator(SCHEMA).validate(DASHBOARD)
    ids = [one["id"] for one in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    variables = {one["name"] for one in DASHBOARD["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD))) - {"__all"} == variables


def test_no_panel_of_the_dashboard_lies_on_another() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert x < 24 and taken.setdefault((x, y), panel["title"]) == panel["title"], panel["title"]


def test_each_query_names_metrics_that_are_sent_by_labels_that_they_have() -> None:
    known = expanded()
    found = [(name, labels) for query in queries() for name, labels in named(query)]
    found += [(name, labels) for rule in rules() for name, labels in named(rule["expr"])]
    for name, labels in found:
        assert name in known, name
        assert labels <= set(known[name]), name
    shown = {name for query in queries() for name, _ in named(query)}
    assert shown == known.keys(), f"not on the dashboard: {sorted(known.keys() - shown)}"


@pytest.mark.parametrize("rule", list(rules()), ids=lambda rule: rule["alert"])
def test_each_alert_says_what_is_wrong_and_what_to_do(rule: Mapping[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert "{{ $labels.job_name }}" in rule["annotations"]["summary"]
    assert rule["annotations"]["description"].endswith(".")
    assert f"`{rule['alert']}`" in PAGE


def test_each_name_with_parts_has_a_line_in_the_mapping_and_gets_its_labels_there() -> None:
    document = yaml.safe_load((METRICS_FOLDER / "statsd_mapping.yml").read_text(encoding="utf-8"))
    for name, labels in METRICS.items():
        for parts in ((), tuple(f"part{number}" for number in range(len(labels)))):
            sent = ".".join(("airflow", name.replace("UNIT", "seconds"), *parts))
            (as_prometheus, got) = _mapped(document["mappings"], sent)
            assert as_prometheus == f"airflow_{name.replace('UNIT', 'seconds')}".replace(".", "_"), sent
            assert got == dict(zip(labels, parts, strict=False)), sent


def _mapped(mappings: list[dict[str, Any]], sent: str) -> tuple[str, dict[str, str]]:
    """What statsd_exporter makes of a name: by the first line that matches."""
    for one in mappings:
        found = re.search(one["match"], sent)
        if found is not None:

            def fill(text: str, parts: re.Match[str] = found) -> str:
                return re.sub(r"\$\{(\d+)\}", lambda number: parts[int(number[1])], text)

            return fill(one["name"]), {name: fill(text) for name, text in one.get("labels", {}).items()}
    raise AssertionError(f"no line of the mapping is for {sent}")


def test_the_files_are_where_the_page_says() -> None:
    text = (ROOT / "docs/howto/metrics.md").read_text(encoding="utf-8")
    for file in METRICS_FOLDER.iterdir():
        if file.suffix in (".json", ".yml"):
            assert file.name in text
