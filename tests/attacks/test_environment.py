"""Whoever owns the job's interpreter reads the secrets of the process that starts the job."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from streambank.core.errors import InputError
from streambank.driver.installed import find_installation

SECRETS = ("AIRFLOW__API_AUTH__JWT_SECRET", "AWS_SECRET_ACCESS_KEY", "MY_APP_PASSWORD", "PYTHONPATH")


@pytest.fixture
def spy(tmp_path: Path) -> Path:
    """An interpreter that writes down its environment and its working directory, then does as it is told."""
    program = tmp_path / "bin" / "python"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, os, subprocess, sys\n"
        f"open({str(tmp_path / 'seen.json')!r}, 'w').write(json.dumps([dict(os.environ), os.getcwd()]))\n"
        f"sys.exit(subprocess.call([{sys.executable!r}, *sys.argv[1:]]))\n"
    )
    program.chmod(0o755)
    return program


def test_the_jobs_interpreter_gets_no_secret_of_ours(
    spy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, f"planted-{name}")
    assert find_installation(str(spy)).python == str(spy)
    seen, folder = json.loads((tmp_path / "seen.json").read_text())
    assert not [name for name in SECRETS if name in seen]
    assert "planted" not in json.dumps(seen)
    assert "PATH" in seen
    assert folder == "/"


def test_a_module_in_the_working_directory_is_not_taken_for_pyspark(
    spy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text("")
    monkeypatch.chdir(tmp_path)
    try:
        found = find_installation("bin/python")
    except InputError as error:
        assert error.code == "no-pyspark"
    else:
        assert tmp_path not in found.spark_home.parents
