from __future__ import annotations

import json
import re
import tomllib
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # it ships no types
import pytest
from airflow.cli import cli_parser
from airflow.sdk import BaseHook, BaseNotifier

from streambank_airflow import configuration
from streambank_airflow.get_provider_info import get_provider_info
from tests.support.airflow_face.releases import BEFORE_3_2

DEFINES = re.compile(r"^class [A-Z]\w*(Operator|Sensor|Trigger|Hook)\b", re.MULTILINE)

INFO = get_provider_info()


def _schema(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(files("airflow").joinpath(name).read_text(encoding="utf-8"))
    return schema


def _import(dotted: str) -> Any:
    module, _, name = dotted.rpartition(".")
    return getattr(import_module(module), name)


def _listed_modules() -> list[str]:
    return [
        module
        for section in ("hooks", "operators", "sensors", "triggers")
        for entry in INFO[section]
        for module in entry["python-modules"]
    ]


def test_airflows_own_schema_accepts_it() -> None:
    jsonschema.validate(INFO, _schema("provider_info.schema.json"))


def test_it_names_the_distribution(project_root: Path) -> None:
    with (project_root / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]

    assert INFO["package-name"] == project["name"]
    entry_point = project["entry-points"]["apache_airflow_provider"]["provider_info"]
    assert _import(entry_point.replace(":", ".")) is get_provider_info


@pytest.mark.parametrize("module", _listed_modules())
def test_every_listed_module_imports(module: str) -> None:
    assert import_module(module).__doc__


def test_every_module_of_operators_sensors_triggers_and_hooks_is_listed(project_root: Path) -> None:
    source = project_root / "provider/streambank_airflow"
    found = {
        f"streambank_airflow.{folder}.{path.stem}"
        for folder in ("hooks", "operators", "sensors", "triggers")
        for path in (source / folder).glob("*.py")
        if path.stem not in ("base", "driver") and DEFINES.search(path.read_text())
    }
    # A package offers what its modules define, under its own name.
    found |= {
        f"streambank_airflow.{path.parent.parent.name}.{path.parent.name}"
        for folder in ("hooks", "operators", "sensors", "triggers")
        for path in (source / folder).glob("*/*.py")
        if DEFINES.search(path.read_text())
    }

    assert found == set(_listed_modules())


def test_every_notification_is_a_notifier() -> None:
    for dotted in INFO["notifications"]:
        assert issubclass(_import(dotted), BaseNotifier)


def test_every_option_says_what_airflow_lists_of_it() -> None:
    (options,) = (section["options"] for section in INFO["config"].values())
    for option in options.values():
        assert set(option) == {"description", "version_added", "type", "example", "default"}
    read = (Path(str(configuration.__file__))).read_text(encoding="utf-8")
    read_there = re.findall(r'_option\("(\w+)"\)|getboolean\(SECTION, "(\w+)"', read)
    assert set(options) == {text or flag for text, flag in read_there}
    assert set(INFO["config"]) == {configuration.SECTION}


def test_airflow_lists_the_section_as_it_is_set(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIRFLOW__STREAMBANK__JOBS", "/opt/streaming_jobs.toml")
    listing = ["config", "list", "--section", "streambank", "--include-descriptions", "--color", "off"]
    if not BEFORE_3_2:  # before, values are always shown
        listing.append("--show-values")

    arguments = cli_parser.get_parser().parse_args(listing)
    arguments.func(arguments)

    shown = capsys.readouterr().out
    assert "[streambank]" in shown and "airflow-provider-streambank" in shown
    assert "jobs = /opt/streaming_jobs.toml" in shown
    assert "# The file with the keys that sign savepoints" in shown
    assert "\nsigning_keys = \n" in shown


def test_links_and_handlers_import() -> None:
    for dotted in INFO["extra-links"]:
        assert _import(dotted)().name
    for entry in INFO["asset-uris"]:
        assert callable(_import(entry["handler"]))


def test_the_connection_type_belongs_to_its_hook() -> None:
    (connection,) = INFO["connection-types"]
    hook = _import(connection["hook-class-name"])

    assert issubclass(hook, BaseHook)
    assert hook.conn_type == connection["connection-type"] == "streambank"
    assert hook.hook_name == connection["hook-name"]
    assert set(connection["conn-fields"]) == set(hook.extra_fields)


def test_the_connection_form_passes_airflows_check_of_forms() -> None:
    (connection,) = INFO["connection-types"]
    behaviour = connection["ui-field-behaviour"]

    jsonschema.validate(
        {
            "hidden_fields": behaviour["hidden-fields"],
            "relabeling": behaviour["relabeling"],
        },
        _schema("customized_form_field_behaviours.schema.json"),
    )
    for field in connection["conn-fields"].values():
        jsonschema.Draft7Validator.check_schema(field["schema"])
        assert field["label"]


def test_airflow_finds_the_provider_by_its_entry_point() -> None:
    from airflow.providers_manager import ProvidersManager

    manager = ProvidersManager()  # type: ignore[no-untyped-call]  # Airflow's has no types
    runtime: Any = manager
    if not BEFORE_3_2:
        from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime

        runtime = ProvidersManagerTaskRuntime()  # type: ignore[no-untyped-call]  # Airflow's has no types

    assert "airflow-provider-streambank" in manager.providers
    assert ("airflow-provider-streambank", INFO["config"]) in manager.provider_configs
    hook = runtime.hooks["streambank"]
    assert hook is not None
    assert hook.hook_class_name.endswith(".StreambankHook")
    if not BEFORE_3_2:  # before, a form has only Airflow's own fields
        assert "extra__streambank__repository" in manager.connection_form_widgets
    assert "streambank_airflow.operators.driver.DriverLogLink" in manager.extra_links_class_names
    assert "streambank" in runtime.asset_uri_handlers
