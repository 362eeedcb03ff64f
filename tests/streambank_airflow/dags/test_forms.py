from __future__ import annotations

from dataclasses import replace

import pytest
from airflow.providers.common.compat.sdk import ParamValidationError
from airflow.sdk import Param

from streambank.core.choices import EXISTING_ROWS, RESTORE_MODES, SINK_CHOICES, SOURCE_CHOICES, VERIFICATIONS
from streambank.declaration.drill import DrillPolicy
from streambank.declaration.savepoints import RestorePolicy
from streambank.declaration.state import BootstrapPolicy, CompactPolicy, TransformPolicy
from streambank_airflow.dags.forms import daily, recovery, rewrite
from streambank_airflow.operators.rewrite.change import REFUSE

SET = TransformPolicy(sets=("value.n = 0",), where="key.k = 'a|b'", delete_where="key.k = 'c'")
TABLE = BootstrapPolicy(("s3://bucket/totals",), sql="SELECT k FROM source", existing="keep", rehearse=True)
FORMS = {
    "run": daily.run_form(),
    "stop": daily.stop_form(60.0),
    "savepoint": daily.savepoint_form("full"),
    "savepoint with all that may follow": daily.savepoint_form("sampled", later=tuple(daily.LATER)),
    "savepoint of several queries": daily.savepoint_form("full", ("hourly", "sessions")),
    "sla": daily.sla_form(),
    "drill": recovery.drill_form((), DrillPolicy(), ("/repository", "s3://replica")),
    "drill of several queries": recovery.drill_form(("hourly", "sessions"), DrillPolicy(), ("/repository",)),
    "refresh": recovery.refresh_form(("/repository", "s3://replica", "nearest"), "refuse"),
    "upgrade": recovery.upgrade_form(3),
    "failover": recovery.failover_form("refuse", "refuse"),
    "restore": recovery.restore_form((), RestorePolicy()),
    "compact": rewrite.compact_form((), CompactPolicy()),
    "compact as declared": rewrite.compact_form((), CompactPolicy(where="value.n < 3")),
    "compact by any condition": rewrite.compact_form((), CompactPolicy(expressions="any")),
    "transform as declared": rewrite.transform_form((), SET),
    "transform by any expression": rewrite.transform_form((), TransformPolicy(expressions="any")),
    "transform of several queries": rewrite.transform_form(("hourly", "sessions"), SET),
    "bootstrap as declared": rewrite.bootstrap_form((), TABLE),
    "bootstrap by any expression": rewrite.bootstrap_form((), replace(TABLE, expressions="any")),
    "restore of one of several queries": recovery.restore_form(("hourly", "sessions"), RestorePolicy()),
}
FIELDS = [(form, name, param) for form, params in FORMS.items() for name, param in params.items()]


@pytest.mark.parametrize(
    ("form", "name", "param"), FIELDS, ids=[f"{form}: {name}" for form, name, _ in FIELDS]
)
def test_every_field_is_answered_by_its_default(form: str, name: str, param: Param) -> None:
    assert param.resolve() == param.value


@pytest.mark.parametrize(
    ("form", "name", "param"), FIELDS, ids=[f"{form}: {name}" for form, name, _ in FIELDS]
)
def test_no_field_that_may_stay_empty_looks_required(form: str, name: str, param: Param) -> None:
    # Airflow's form marks a text as required, and disables its button, where the schema allows no null.
    if param.value in (None, ""):
        assert "null" in param.schema["type"]


@pytest.mark.parametrize(
    ("form", "name", "param"), FIELDS, ids=[f"{form}: {name}" for form, name, _ in FIELDS]
)
def test_every_field_has_a_title_and_every_choice_is_explained(form: str, name: str, param: Param) -> None:
    assert param.schema["title"]
    if "enum" in param.schema and name != "query":
        assert set(param.schema["values_display"]) == set(param.schema["enum"])


@pytest.mark.parametrize(
    ("form", "name", "param"), FIELDS, ids=[f"{form}: {name}" for form, name, _ in FIELDS]
)
def test_what_a_field_means_is_shown_as_markdown(form: str, name: str, param: Param) -> None:
    # Airflow's form shows `description_md` only where there is no `description`.
    assert param.schema.get("description_md") or "enum" in param.schema or name == "note"
    assert param.description is None


def test_a_compaction_that_nobody_has_declared_only_shows_what_it_would_remove() -> None:
    assert rewrite.compact_form((), CompactPolicy())["dry_run"].value is True
    assert rewrite.compact_form((), CompactPolicy(idle_for="30d"))["dry_run"].value is False


def test_a_condition_is_typed_only_where_the_job_allows_it() -> None:
    assert "where" not in rewrite.compact_form((), CompactPolicy())
    declared = rewrite.compact_form((), CompactPolicy(where="value.n < 3"))["where"]
    assert (declared.value, declared.schema["type"]) == (True, "boolean")
    assert "`value.n < 3`" in declared.schema["description_md"]
    with pytest.raises(ParamValidationError):
        Param("true", **declared.schema).resolve()
    free = rewrite.compact_form((), CompactPolicy(where="value.n < 3", expressions="any"))["where"]
    assert (free.value, free.schema["type"]) == ("value.n < 3", ["null", "string"])


def test_expressions_that_change_state_are_typed_only_where_the_job_allows_it() -> None:
    declared = rewrite.transform_form((), SET)
    assert set(declared) == {"dry_run", "rehearse", "start", "note"}
    shown = declared["dry_run"].schema["description_md"]
    assert "`value.n = 0`" in shown and r"key.k = 'a\|b'" in shown and "`key.k = 'c'`" in shown
    free = rewrite.transform_form((), replace(SET, expressions="any"))
    assert free["sets"].value == ["value.n = 0"] and free["delete_where"].value == "key.k = 'c'"
    made = rewrite.bootstrap_form((), TABLE)
    assert set(made) == {"table", "existing", "dry_run", "rehearse", "start", "note"}
    assert made["table"].value == "s3://bucket/totals" and "`SELECT k FROM source`" in str(
        made["table"].schema
    )
    assert (made["existing"].value, made["rehearse"].value, made["dry_run"].value) == ("keep", True, True)
    assert not [
        name for name in rewrite.bootstrap_form((), replace(TABLE, expressions="any")) if name == "sql"
    ]


def test_a_rescale_cannot_be_asked_for_without_partitions() -> None:
    with pytest.raises(ParamValidationError):
        rewrite.rescale_form(())["partitions"].resolve()


def test_the_forms_offer_what_the_engine_knows() -> None:
    assert tuple(rewrite.EXISTING_CHOICES) == (REFUSE, *EXISTING_ROWS)
    assert tuple(recovery.SINK_CHOICES) == SINK_CHOICES
    assert tuple(recovery.SOURCE_CHOICES) == SOURCE_CHOICES
    assert tuple(daily.LEVEL_CHOICES) == VERIFICATIONS
    assert set(recovery.MODE_CHOICES) == set(RESTORE_MODES)


def test_a_restore_refuses_to_lose_rows_and_stops_nothing_unless_told() -> None:
    form = recovery.restore_form((), RestorePolicy())

    assert {name: form[name].value for name in ("savepoint", "sink", "mode", "stop_running", "start")} == {
        "savepoint": "latest-good",
        "sink": "refuse",
        "mode": "no-claim",
        "stop_running": False,
        "start": True,
    }


def test_what_a_job_declares_is_done_unless_the_form_says_no() -> None:
    assert not set(daily.LATER) & set(daily.savepoint_form("quick"))
    form = daily.savepoint_form("quick", later=("replicate", "expire"))
    assert {name: form[name].value for name in form if name in daily.LATER} == {
        "replicate": True,
        "expire": True,
    }


def test_a_query_is_asked_for_only_where_there_are_several() -> None:
    assert "query" not in recovery.restore_form((), RestorePolicy())
    assert recovery.restore_form(("a", "b"), RestorePolicy())["query"].schema["enum"] == ["*", "a", "b"]


@pytest.mark.parametrize("given", [None, [], ["/out=/new", ""], ["s3a://a/x=s3a://b/y", "/day=1=/new"]])
def test_new_outputs_are_lines_of_text(given: list[str] | None) -> None:
    param = recovery.restore_form((), RestorePolicy())["new_sinks"]
    # A text of several lines in Airflow's form, an array of them in its API.
    assert param.schema["items"]["type"] == "string"
    assert Param(given, **param.schema).resolve() == given


@pytest.mark.parametrize("given", [["/o"], ["/o=new"], "/o=/n", [1], ["/o=/n\n"], ["/o\n=/n"], ["x\n/o=/n"]])
def test_what_names_no_new_output_is_said_by_the_form(given: object) -> None:
    with pytest.raises(ParamValidationError):
        Param(given, **recovery.restore_form((), RestorePolicy())["new_sinks"].schema).resolve()


@pytest.mark.parametrize("given", ["data/new", "/data/new\n", "/data/\nnew", "\n/data/new", "/a\x1b[2J"])
def test_a_directory_is_an_absolute_path_in_one_line(given: str) -> None:
    schema = recovery.restore_form((), RestorePolicy())["into"].schema
    for fine in (None, "", "/data/new", "s3a://bucket/new", "/data/mit Leerzeichen/\u00e4"):
        assert Param(fine, **schema).resolve() == fine
    with pytest.raises(ParamValidationError):
        Param(given, **schema).resolve()


def test_the_form_says_where_a_directory_may_be() -> None:
    form = recovery.restore_form((), RestorePolicy(into=("file:///scratch",)))
    assert "below `file:///scratch`" in form["into"].schema["description_md"]
    assert "beside OLD" in form["new_sinks"].schema["description_md"]
