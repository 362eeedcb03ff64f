"""docs/reference/hook.md: each verb has an example that works, and the same options everywhere."""

from __future__ import annotations

import ast
import inspect
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
import typer

from streambank.cli.app import app
from streambank.core.options import as_duration_s
from streambank_airflow.connections.spark import SparkChoice
from streambank_airflow.get_provider_info import get_provider_info
from streambank_airflow.hooks.streambank import StreambankHook
from tests.support.jobs.declared import end_drivers, fake_installation
from tests.support.jobs.managed_job import Managed
from tests.support.jobs.two_sites import TwoSites
from tests.support.paths import ROOT

pytestmark = pytest.mark.airflow

PAGE = (ROOT / "docs/reference/hook.md").read_text(encoding="utf-8")
PARTS = [name for name, value in vars(StreambankHook).items() if isinstance(value, cached_property)]
FINDERS = {"access", "at_either_site", "open_repository", "repository_store", "settings", "jobs_file"}
NEED_FACTS = {"heal", "is_still_unhealthy"}
"""Verbs that take what a watcher has found; a sentence of the page shows how."""
NO_RESULTS = {"job", "asked", "subject", "watcher", "decision"}
JOBS_FILE = "/opt/airflow/dags/streaming_jobs.toml"
MORE = """
[jobs.flights.replicate]
to = ["replica"]
[jobs.flights.replicate.retention]
keep_last = 10
[jobs.flights.copies.staging]
checkpoint = "staging/flights"
"""
ROWS = re.findall(r"^\| `([^`]+)` \| `(\w+)\.(\w+)` \| (?:`(\w+)`|-) \|(.*)\|$", PAGE, re.MULTILINE)
WHERE = {"jobs", "job", "jobs_file", "declaration", "streambank_conn_id", "repository"}
"""Which job, declared where: said to the hook before its verbs."""
MACHINES = {"on", "master", "spark_conn_id", "spark_conf", "spark_properties", "executor", "spark"} | {
    "parallel",
    "max_rate",
    "lock_s",
    "lock_mode",
}
WHO = {"why", "note", "by", "say", "as_json", "debug"}
OF_TASKS = {"only_if", "deferrable", "poll_interval_s", "from_form", "shown"}


def examples(heading: str) -> list[str]:
    (section,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


def verbs() -> Iterator[tuple[str, str, Any]]:
    hook = StreambankHook(jobs_file="jobs.toml")
    for part in PARTS:
        for name, verb in vars(type(getattr(hook, part))).items():
            if inspect.isfunction(verb) and not name.startswith("_"):
                yield part, name, verb


def calls() -> Iterator[tuple[str, str, ast.Call]]:
    """The verbs that the page calls in its examples."""
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Call) and (
                found := re.match(r"hook\.(\w+)\.(\w+)$", ast.unparse(node.func))
            ):
                yield found[1], found[2], node


def test_each_verb_has_an_example_and_each_example_calls_a_verb_as_it_is() -> None:
    known = {(part, name): verb for part, name, verb in verbs()}
    shown = {(part, name) for part, name, _ in calls() if part != "declared"}
    assert shown | {("health", name) for name in NEED_FACTS} == set(known)
    for part, name, call in calls():
        if part != "declared":
            named = {one.arg: None for one in call.keywords if one.arg is not None}
            inspect.signature(known[part, name]).bind(None, *call.args, **named)


def test_help_names_each_verb_beside_its_part() -> None:
    for part, name, _ in verbs():
        assert f"`{name}`" in (vars(StreambankHook)[part].__doc__ or ""), (part, name)


def test_help_of_a_verb_says_what_each_option_means() -> None:
    for part, name, verb in verbs():
        for option in inspect.signature(verb).parameters.values():
            if option.kind is option.KEYWORD_ONLY and hasattr(verb.__wrapped__, "__wrapped__"):
                assert re.search(rf"^ +{option.name}: \S", verb.__doc__, re.MULTILINE), (part, name, option)


def compiled(block: str, **instead: str) -> CodeType:
    for said, real in instead.items():
        block = block.replace({"jobs": JOBS_FILE, "job": '"orders"', "copy": "/backup/orders"}[said], real)
    return compile(block, "docs/reference/hook.md", "exec")


@pytest.fixture
def declared(managed: Managed) -> Managed:
    managed.declare(MORE)
    return managed


def run(managed: Managed, tmp_path: Path, *headings: str) -> dict[str, Any]:
    """What the examples of some sections leave, one section after the other."""
    names: dict[str, Any] = {"hook": StreambankHook(jobs_file=str(managed.jobs_file))}
    for heading in headings:
        for block in examples(heading):
            if "standby" not in block:
                copy = str(tmp_path / "copy")
                exec(compiled(block, jobs=str(managed.jobs_file), job='"flights"', copy=copy), names)
    results: list[Any] = [one for name, one in names.items() if is_dataclass(one) and name not in NO_RESULTS]
    assert all(json.dumps(one.to_dict()) for one in results if not isinstance(one, type))
    return names


def test_the_examples_of_a_job_and_its_savepoints_work(declared: Managed, tmp_path: Path) -> None:
    declared.start(until=2)
    shutil.copytree(declared.checkpoint, tmp_path / "copy")
    declared.stop()
    left = run(declared, tmp_path, "hook.declared", "hook.jobs", "hook.savepoints")
    assert (left["started"].state, left["restarted"].state) == ("started", "restarted")
    assert left["stopped"].how == "boundary" and left["stopped"].savepoints
    assert left["manifest"].savepoint == left["taken"].savepoint
    assert left["report"].ok and left["imported"].taken.savepoint
    assert left["good"] == left["newest"]
    listed = [one.savepoint for one in left["hook"].savepoints.list("flights")]
    assert {left["taken"].savepoint, left["good"]} <= set(listed), (
        "undelete has brought back what was dropped"
    )


def test_the_examples_of_restores_work(declared: Managed, tmp_path: Path) -> None:
    declared.start(until=2)
    hook = StreambankHook(jobs_file=str(declared.jobs_file))
    hook.savepoints.take("flights")
    declared.stop()
    left = run(declared, tmp_path, "hook.recovery", "hook.slas, hook.watchers", "hook.health")
    assert left["restored"].queries["main"]["savepoint"]
    assert left["drill"].passed, left["drill"].error
    assert left["upgrade"].state and left["refreshed"].copy == "staging"
    assert declared.generation.again == left["shown"]["flights"]


def test_the_examples_of_repositories_and_checkpoints_work(declared: Managed, tmp_path: Path) -> None:
    declared.start(until=2)
    StreambankHook(jobs_file=str(declared.jobs_file)).savepoints.take("flights")
    declared.stop()
    left = run(declared, tmp_path, "hook.repository", "hook.checkpoints")
    assert left["replica"].ok and left["lacking"] == 0 and left["expired"].dry_run
    assert left["compacted"].quarantine


def test_the_examples_of_state_work(
    declared: Managed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Spark makes of the state is what `streambank_spark` tests; here it has made a savepoint."""
    declared.start(until=2)
    taken = StreambankHook(jobs_file=str(declared.jobs_file)).savepoints.take("flights")
    asked: list[Mapping[str, Any]] = []

    def rewrite(choice: SparkChoice, plan: Mapping[str, Any], **how: Any) -> dict[str, Any]:
        asked.append(plan)
        return {"savepoint": taken.savepoint}

    monkeypatch.setattr(SparkChoice, "rewrite", rewrite)
    left = run(declared, tmp_path, "hook.state")
    assert asked[0]["order"] == left["request"] and asked[0]["job"] == "flights"
    assert left["report"].passed, left["report"].error


def test_the_examples_of_two_sites_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installation = fake_installation(tmp_path)
    monkeypatch.setattr("streambank.driver.launchers.local.installation_of", lambda job: installation)
    sites = TwoSites(tmp_path)
    names: dict[str, Any] = {"hook": StreambankHook(jobs_file=str(sites.jobs))}
    try:
        sites.start()
        sites.save()
        for block in examples("hook.recovery"):
            if "standby" in block:
                exec(compiled(block), names)
        assert names["report"].site == "standby"
    finally:
        for site in ("primary", "standby"):
            end_drivers(sites.at(site).records())


def commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield before + name, command


COMMANDS = dict(commands(typer.main.get_command(app)))


def options_of_command(name: str) -> dict[str, Any]:
    """By the names of parameters; the job's name is none, and `called` is the option `--name`."""
    taken = {one.name: one.default for one in COMMANDS[name].params if one.opts != ["name"]}
    return {"name" if name == "called" else name: value for name, value in taken.items()}


def options_of_operator(name: str) -> dict[str, Any]:
    modules = [
        import_module(one) for each in get_provider_info()["operators"] for one in each["python-modules"]
    ]
    operator = next(getattr(module, name) for module in modules if hasattr(module, name))
    taken: dict[str, Any] = {}
    for each in reversed(operator.__mro__):
        if each.__module__.startswith("streambank_airflow") and "__init__" in vars(each):
            found = inspect.signature(vars(each)["__init__"]).parameters.values()
            taken |= {one.name: one.default for one in found if one.kind is one.KEYWORD_ONLY}
    return {name: value for name, value in taken.items() if name not in OF_TASKS}


def options_of_verb(part: str, name: str) -> dict[str, Any]:
    verb = getattr(type(getattr(StreambankHook(jobs_file="jobs.toml"), part)), name)
    return {one.name: one.default for one in list(inspect.signature(verb).parameters.values())[2:]}


def comparable(value: Any) -> Any:
    """A default: what is empty is as good as None, and `1d` as 86400."""
    if value is inspect.Parameter.empty or value in (None, (), {}, []):
        return None
    if isinstance(value, str) and re.fullmatch(r"[0-9]+[smhd]", value):
        return as_duration_s(value)
    return value


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_command_line_hook_and_operator_have_the_same_options(row: tuple[str, ...]) -> None:
    command, part, verb, operator, differs = row
    sides = [options_of_command(command), options_of_verb(part, verb)]
    sides += [options_of_operator(operator)] if operator else []
    apart = WHO | MACHINES | (WHERE if "repository" not in sides[1] else WHERE - {"repository"})
    named = [{name for name in side if name not in apart} for side in sides]
    common = named[0].intersection(*named)
    different = named[0].union(*named) - common
    said = {one for one in re.findall(r"`([a-z_]+)`", differs) if any(one in side for side in sides)}
    assert different == said - common, "the table names each difference, and no other"
    for name in set(sides[1]) - apart:
        given = {repr(comparable(side[name])) for side in sides if name in side}
        needed = sides[1][name] is inspect.Parameter.empty or comparable(sides[0].get(name)) is None
        assert len(given) == 1 or (needed and name == "savepoint"), (name, given)


def test_each_command_is_in_the_table_or_said_to_be_only_for_a_shell() -> None:
    _, _, rest = PAGE.rpartition("|\n\n")
    named = {row[0] for row in ROWS} | set(re.findall(r"`([a-z -]+)`", rest))
    cells = {"unpin", "job restore"}
    of_state = {name for name in COMMANDS if name.startswith(("state ", "rescale", "index"))}
    assert set(COMMANDS) - named - of_state == cells
