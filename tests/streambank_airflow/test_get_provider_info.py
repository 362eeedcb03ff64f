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
from airflow.sdk import BaseHook

from streambank_airflow.get_provider_info import get_provider_info

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

    assert found == set(_listed_modules())


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
    from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime

    manager = ProvidersManager()  # type: ignore[no-untyped-call]  # Airflow's has no types
    runtime = ProvidersManagerTaskRuntime()  # type: ignore[no-untyped-call]  # Airflow's has no types

    assert "airflow-provider-streambank" in manager.providers
    hook = runtime.hooks["streambank"]
    assert hook is not None
    assert hook.hook_class_name.endswith(".StreambankHook")
    assert "extra__streambank__repository" in manager.connection_form_widgets
    assert "streambank_airflow.operators.driver.DriverLogLink" in manager.extra_links_class_names
    assert "streambank" in runtime.asset_uri_handlers
