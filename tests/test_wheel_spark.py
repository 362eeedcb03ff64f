"""The wheel and a Spark that is not installed beside it: a job's, whose driver gets the engine as a zip."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pyspark
import pytest

from streambank.declaration.load import load_jobs
from tests.support.cli import Answer
from tests.support.jobs.declared import end_drivers
from tests.support.jobs.release_story import APPLICATION, NAME, ReleaseStory
from tests.support.json_examples import examples, mismatches
from tests.support.repository.state_verbs import state_verbs
from tests.support.spark.releases import other_spark
from tests.support.wheels import (
    bare_environment,
    built_wheel,
    clean_environment,
    run,
    whole_environment,
)

pytestmark = [pytest.mark.spark, pytest.mark.storm, pytest.mark.timeout(1200)]

WHERE = """
import json, os, sys
import pyspark, streambank, streambank_spark
with open(os.path.join(os.path.dirname(sys.argv[3]), "driver.json"), "w") as file:
    json.dump([streambank.__file__, streambank_spark.__file__, sys.executable, pyspark.__version__], file)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_wheel(tmp_path_factory.mktemp("dist"))


def test_a_driver_gets_the_engine_as_a_zip_where_it_is_not_installed(wheel: Path, tmp_path: Path) -> None:
    """Start, savepoint, boundary stop on a Spark 3.5 whose Python has no Streambank."""
    spark = other_spark("3.5")
    run([spark.python, "-c", "import streambank"], tmp_path, expect=1)
    here = whole_environment(wheel, tmp_path / "venv")

    def call(*arguments: str | int | Path) -> Answer:
        command = [str(here / "bin" / "streambank"), *map(str, arguments)]
        done = subprocess.run(
            command, env=clean_environment(), capture_output=True, text=True, check=False, cwd=tmp_path
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    story = ReleaseStory(
        tmp_path / "job", f'python = "{spark.python}"\n', application=WHERE + APPLICATION, call=call
    )
    story.feed(2)
    try:
        story.do("start")
        story.until_written()
        story.nap(0.05)
        story.feed()
        story.until_busy()
        taken = story.document("savepoint")
        story.until_written()
        story.feed()
        story.until_busy()
        stopped = story.document("stop")
    finally:
        end_drivers(load_jobs(story.jobs).job(NAME).records())
    assert stopped["how"] == "boundary" and taken["batch"] >= 1
    engine, face, python, version = json.loads((tmp_path / "job" / "driver.json").read_text())
    assert (Path(python), version) == (spark.python, spark.version)
    (bundle,) = (tmp_path / "job").rglob("streambank-*.zip")
    assert engine == f"{bundle}/streambank/__init__.py"
    assert face == f"{bundle}/streambank_spark/__init__.py"
    assert set(story.rows().values()) == {1}, "each row came out once"


def test_a_command_line_without_pyspark_works_by_the_spark_of_the_job(wheel: Path, tmp_path: Path) -> None:
    here = bare_environment(wheel, tmp_path / "venv")
    run([here / "bin" / "python", "-c", "import pyspark"], tmp_path, expect=1)
    jobs = tmp_path / "streaming_jobs.toml"
    jobs.write_text(
        'repository = "savepoints"\n[jobs.orders]\napplication = "a.py"\ncheckpoint = "c"\n'
        f'spark_home = "{Path(pyspark.__file__).parent}"\n'
    )
    digest = state_verbs(tmp_path)["state digest"]
    command = [str(here / "bin" / "streambank"), *map(str, digest)]
    alone = json.loads(run(command, tmp_path, expect=2))
    assert alone["error"] == "no-pyspark"
    found = json.loads(run([*command, "--jobs", str(jobs)], tmp_path))
    assert not list(mismatches(examples()["state digest"], found, "state digest"))

    on = ["--level", "full", "--on", "spark", "--master", "local[1]"]
    verify = [command[0], "verify", str(digest[2]), "-r", str(tmp_path / "savepoints"), "--json", *on]
    assert json.loads(run(verify, tmp_path, expect=2))["error"] == "no-pyspark"
    assert json.loads(run([*verify, "--jobs", str(jobs)], tmp_path))["ok"]
