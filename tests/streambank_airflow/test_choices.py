from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import InputError
from streambank_airflow.choices import new_sink_choices
from streambank_airflow.hooks.streambank import StreambankHook
from streambank_airflow.operators.job import StopStreamingJobOperator
from streambank_airflow.operators.restore import RestoreSavepointOperator
from streambank_airflow.operators.savepoint import CreateSavepointOperator, VerifySavepointOperator
from tests.support.refuses import refuses


@pytest.mark.parametrize(
    "given",
    [
        {"/out": "/new"},
        ["/out=/new"],
        "/out=/new",
        "  /out=/new\n\n",
        ("/out=/new", " "),
    ],
)
def test_new_sinks_may_be_said_in_several_ways(given: Any) -> None:
    assert new_sink_choices(given) == {"/out": "/new"}


@pytest.mark.parametrize("given", [None, "", "None", [], {}])
def test_none_may_be_said_too(given: Any) -> None:
    assert new_sink_choices(given) == {}


def test_uris_are_left_as_they_are() -> None:
    assert new_sink_choices("s3a://a/out=s3a://b/out\nfile:/x=file:///y") == {
        "s3a://a/out": "s3a://b/out",
        "file:/x": "file:///y",
    }


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (["/out=new"], "bad-option"),
        (["out=/new"], "bad-option"),
        ({"/out": "~/new"}, "bad-option"),
        (5, "bad-option"),
        (["/out"], "bad-new-sink"),
        ("/out=/a\n/out=/b", "bad-new-sink"),
    ],
)
def test_what_would_mean_nothing_to_another_process_is_refused(given: Any, code: str) -> None:
    with refuses(InputError, code):
        new_sink_choices(given)


@pytest.mark.parametrize(
    ("operator", "option"),
    [
        (CreateSavepointOperator, "closure"),
        (VerifySavepointOperator, "level"),
        (RestoreSavepointOperator, "sink"),
        (RestoreSavepointOperator, "source"),
        (RestoreSavepointOperator, "mode"),
        (RestoreSavepointOperator, "if_running"),
        (StopStreamingJobOperator, "if_running"),
    ],
)
def test_an_operator_refuses_what_it_does_not_know_when_its_dag_is_read(operator: Any, option: str) -> None:
    operator(task_id="task", job="flights", **{option: "{{ params.chosen }}"})
    with refuses(InputError, "bad-choice", match=f"{option} must be one of .*, not 'saef'"):
        operator(task_id="task", job="flights", **{option: "saef"})


def test_the_hook_takes_nothing_unknown_for_the_default(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.toml"
    jobs.write_text(
        'repository = "r"\n[jobs.flights]\napplication = "a.py"\ncheckpoint = "ck"\n', encoding="utf-8"
    )
    hook = StreambankHook(jobs_file=str(jobs))
    wrong: Any = "saef"
    for checkpoint in (None, str(tmp_path / "ck")):
        with refuses(InputError, "bad-choice"):
            hook.savepoints.take("flights", closure=wrong, checkpoint=checkpoint)
