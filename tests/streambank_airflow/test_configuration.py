"""The section [streambank] stands in for variables that are not set, and only for them."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from streambank.core.errors import InputError
from streambank.core.signing import VARIABLE, new_key, signing_keys
from streambank_airflow.configuration import JOBS_VARIABLE, installed_jobs_file
from streambank_airflow.dags.groups import savepoint_group
from streambank_airflow.hints import HINTS
from streambank_airflow.hooks.streambank import StreambankHook

JOBS, KEYS = "AIRFLOW__STREAMBANK__JOBS", "AIRFLOW__STREAMBANK__SIGNING_KEYS"


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (JOBS_VARIABLE, VARIABLE, JOBS, KEYS):
        monkeypatch.setenv(name, "")


def test_the_order_is_task_connection_variable_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    assert installed_jobs_file() is None
    monkeypatch.setenv(JOBS, "configured.toml")
    assert StreambankHook().declared.jobs_file == "configured.toml"
    monkeypatch.setenv(JOBS_VARIABLE, "variable.toml")
    assert StreambankHook().declared.jobs_file == "variable.toml"
    extra = json.dumps({"conn_type": "streambank", "extra": {"jobs_file": "connection.toml"}})
    monkeypatch.setenv("AIRFLOW_CONN_STREAMBANK_DEFAULT", extra)
    assert StreambankHook().declared.jobs_file == "connection.toml"
    assert StreambankHook(jobs_file="task.toml").declared.jobs_file == "task.toml"


def test_task_groups_find_it_where_dags_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(JOBS, str(tmp_path / "gone.toml"))
    with pytest.raises(InputError, match=r"gone\.toml cannot be read"):
        savepoint_group("flights")


def test_where_no_file_is_named_both_are_said() -> None:
    for look in (lambda: StreambankHook().declared.jobs_file, lambda: savepoint_group("flights")):
        with pytest.raises(InputError, match="No jobs file is named") as caught:
            look()
        assert JOBS_VARIABLE in caught.value.hint and "[streambank] jobs" in caught.value.hint
    assert "[streambank] jobs" in HINTS["no-declaration"]
    assert "[streambank] signing_keys" in HINTS["bad-signing-key"]


def test_signing_keys_are_those_of_the_configuration_unless_the_variable_names_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    configured, named = new_key(tmp_path / "configured"), new_key(tmp_path / "named")
    StreambankHook()
    assert not signing_keys()

    monkeypatch.setenv(KEYS, str(tmp_path / "configured"))
    StreambankHook()
    assert list(signing_keys()) == [configured]

    monkeypatch.setenv(VARIABLE, str(tmp_path / "named"))
    StreambankHook()
    assert list(signing_keys()) == [named]
    for key in (configured, named):
        assert key.secret.hex() not in caplog.text + "".join(os.environ.values())
