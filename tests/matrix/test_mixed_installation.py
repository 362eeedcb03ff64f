"""Every verb of `state` where pyspark-client has written over PySpark, on each Python that it runs on."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.json_examples import examples, mismatches
from tests.support.paths import ROOT
from tests.support.repository.state_verbs import state_verbs
from tests.support.spark.releases import python_of
from tests.support.venvs import LOCKS, filled_venv

pytestmark = [pytest.mark.spark, pytest.mark.matrix, pytest.mark.timeout(3000)]

# Environments in which pyspark-client has written over PySpark, as plain pip makes them beside Airflow.
#
# Each has the command line of this checkout, and is of one Python.

CLIENT = "4.2.0"
"""The version of pyspark-client in them: what a plain `import pyspark` says."""


def mixed_installation(version: str) -> Path:
    """The interpreter of one; made the first time, which takes minutes."""
    project = ("--no-build-isolation-package", "airflow-provider-streambank", "--editable", ROOT)
    # The project's own settings leave pyspark-client out.
    client = ("--no-config", "--no-deps", "--requirement", LOCKS / "mixed-client.lock")
    folder = ROOT / ".streambank" / "mixed" / version
    python = filled_venv(folder, LOCKS / "mixed.lock", python_of(version), *project, *client)
    command = [str(python), "-c", "import pyspark; print(pyspark.__version__)"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/").stdout.strip()
    assert said == CLIENT, f"{python} has the files of PySpark {said}"
    return python


INSTALLED = "4.3.0"
"""The PySpark that was written over; its jars are whole."""
CALL = """
import sys
from streambank.cli.run import run
code = run(sys.argv[2:])
used = sys.modules.get("pyspark")
open(sys.argv[1], "w").write("" if used is None else f"{used.__version__} {used.__file__}")
sys.exit(code)
"""
WITHOUT_SPARK = "state schema --against"
KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "JAVA_HOME", "SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME")
ENVIRONMENT = {name: os.environ[name] for name in KEPT if name in os.environ} | {"NO_COLOR": "1"}


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_every_verb_of_state_answers_as_its_example(version: str, tmp_path: Path) -> None:
    python = mixed_installation(version)
    verbs = state_verbs(tmp_path)
    deep = verbs["state digest"][2]
    verbs["verify"] = ["verify", *verbs["state digest"][2:], "--level", "deep"]
    note, wrong = tmp_path / "pyspark", {}
    for verb, arguments in verbs.items():
        done = subprocess.run(
            [python, "-c", CALL, note, *arguments],
            capture_output=True, text=True, check=False, cwd=tmp_path, env=ENVIRONMENT,
        )  # fmt: skip
        if not done.stdout:
            wrong[verb] = [done.stderr[-2000:]]
            continue
        answer = json.loads(done.stdout)
        if verb == "verify":
            assert answer["savepoint"] == deep and answer["ok"], answer
        else:
            wrong[verb] = list(mismatches(examples()[verb], answer, verb))
        used = note.read_text().split()
        if verb == WITHOUT_SPARK:
            assert not used
            continue
        assert used[0] == INSTALLED and "pyspark.zip" in used[1], f"{verb} took PySpark from {used}"
    assert not any(wrong.values()), json.dumps(wrong, indent=1)
