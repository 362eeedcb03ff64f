"""A jobs file that is as it was is parsed once in a process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import InputError
from streambank.declaration.load import load_jobs
from streambank_airflow.hooks import declared
from streambank_airflow.hooks.streambank import StreambankHook
from tests.support.jobs.declared import write_jobs


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were parsed, in order."""
    found: list[str] = []

    def load(path: Any) -> Any:
        found.append(str(path))
        return load_jobs(path)

    monkeypatch.setattr(declared, "load_jobs", load)
    return found


def test_it_is_parsed_once_for_all_hooks(tmp_path: Path, parsed: list[str]) -> None:
    file = str(write_jobs(tmp_path))
    jobs = [StreambankHook(jobs_file=file).declared.job("flights") for _ in range(3)]
    assert parsed == [file]
    assert jobs[0] is jobs[2]


def test_a_change_of_the_same_size_counts_at_once(tmp_path: Path, parsed: list[str]) -> None:
    file = write_jobs(tmp_path, "one")
    assert declared.remembered_jobs(str(file)).job("flights").args == ("one",)
    write_jobs(tmp_path, "two")
    assert declared.remembered_jobs(str(file)).job("flights").args == ("two",)
    assert len(parsed) == 2


def test_a_variable_and_the_place_behind_a_link_count(
    tmp_path: Path, parsed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for one in ("a", "b"):
        write_jobs(tmp_path / one, "${WHICH}")
    link = tmp_path / "jobs.toml"
    link.symlink_to(tmp_path / "a" / "streaming_jobs.toml")
    monkeypatch.setenv("WHICH", "first")
    found = declared.remembered_jobs(str(link)).job("flights")
    assert (found.args, found.checkpoint) == (("first",), f"file://{tmp_path}/a/checkpoints/flights")
    monkeypatch.setenv("WHICH", "second")
    assert declared.remembered_jobs(str(link)).job("flights").args == ("second",)
    link.unlink()
    link.symlink_to(tmp_path / "b" / "streaming_jobs.toml")
    assert declared.remembered_jobs(str(link)).job("flights").checkpoint.endswith("/b/checkpoints/flights")


def test_a_file_that_is_wrong_is_an_error_each_time(tmp_path: Path, parsed: list[str]) -> None:
    file = write_jobs(tmp_path)
    declared.remembered_jobs(str(file))
    file.write_text("[jobs", encoding="utf-8")
    for _ in range(2):
        with pytest.raises(InputError, match="not valid TOML"):
            declared.remembered_jobs(str(file))
    file.unlink()
    with pytest.raises(InputError, match="cannot be read"):
        declared.remembered_jobs(str(file))
