"""A new option is one line, a field of a request: command line, form, operator and pages then have it."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import Annotated, Any

import pytest
import typer
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG, Context
from typer.testing import CliRunner

from streambank.cli.verb_options import with_options
from streambank.core.options import Option
from streambank.core.verb_options import UpgradeOptions
from streambank_airflow.dags.forms.fields import answers_of, form_of
from streambank_airflow.operators.base import StreambankOperator
from tests.support.reference_pages import arguments, form_fields, option_rows


@dataclass(kw_only=True)
class Options(UpgradeOptions):
    patience_s: Annotated[float, Option("How long it waits.", title="Patience", least=1)] = 90.0


class Operator(StreambankOperator, Options):
    def execute(self, context: Context) -> Any:
        return self.values_of(Options)


def ask(options: Options) -> None:
    print(options.patience_s, options.watch_s, options.conf)


def test_the_command_line_has_it() -> None:
    app = typer.Typer()
    app.command()(with_options(ask))
    said = CliRunner().invoke(app, ["--help"], terminal_width=200).output
    assert "--patience" in said and "How long it waits." in said and "1m30s" not in said
    assert CliRunner().invoke(app, []).output == "90.0 120.0 {}\n"
    given = ["--patience", "2m", "--conf", "a=1", "--conf", "b=2"]
    assert CliRunner().invoke(app, given).output == "120.0 120.0 {'a': '1', 'b': '2'}\n"


def test_the_form_has_it() -> None:
    field = form_of(Options, {"patience_s": 600.0})["patience"]
    assert (field.value, field.schema["title"], field.schema["type"]) == ("10m", "Patience", "string")
    assert field.schema["description_md"] == "How long it waits. A duration such as `10m`."
    assert answers_of(Options)["patience_s"] == "{{ params.get('patience') }}"


@pytest.mark.parametrize("said", ["2m", 120, "120"])
def test_the_operator_has_it_as_a_template_that_is_read_by_its_type(said: Any) -> None:
    assert signature(Operator.__init__).parameters["patience_s"].default == 90.0
    assert "patience_s" in Operator.template_fields
    with DAG("own", schedule=None):
        task = Operator(task_id="ask", job="orders", patience_s=said, no_way_back="True", args="['a', 1]")  # type: ignore[arg-type]  # as templates leave them
    values = task.execute({})
    assert (values["patience_s"], values["no_way_back"], values["args"]) == (120.0, True, ("a", "1"))
    assert values.keys() >= {"watch_s", "conf", "cold"}


@pytest.mark.parametrize("said", ["0s", "soon", "-1"])
def test_the_operator_refuses_what_it_cannot_be(said: str) -> None:
    task = Operator(task_id="ask", job="orders", patience_s=said)  # type: ignore[arg-type]  # as a template leaves it
    with pytest.raises(AirflowFailException):
        task.execute({})


def test_the_pages_have_it() -> None:
    assert "| `--patience DURATION` | how long it waits. Default: `90s` |" in option_rows(Options)
    assert "`patience_s`" in arguments("upgrade", Options) and "`patience`" in form_fields(Options)
