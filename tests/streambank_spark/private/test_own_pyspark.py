"""Which PySpark a plain process imports: never another one than that of its jars."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PROBE = """
from streambank_spark.commands.subject import require_pyspark
require_pyspark(None)
import pyspark
print(pyspark.__version__, pyspark.__file__)
"""


def spark(home: Path, *, version: str, python: str | None) -> Path:
    """What of a Spark counts: a jar, the zips, and the files beside them, which may be of another version."""
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "spark-submit").touch()
    (home / "jars").mkdir()
    (home / "jars" / f"spark-core_2.13-{version}.jar").touch()
    (home / "python" / "lib").mkdir(parents=True)
    for name, content in (("pyspark", f"__version__ = '{version}'"), ("py4j-0.10.9.9-src", "")):
        with zipfile.ZipFile(home / "python" / "lib" / f"{name}.zip", "w") as archive:
            archive.writestr(f"{name.partition('-')[0]}/__init__.py", content)
    if python is not None:
        for file in ("__init__.py", "version.py"):
            (home / file).write_text(f"__version__ = '{python}'\n")
    return home


def imported(
    packages: Path, code: str = PROBE, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """What a process imports that has these packages, and Streambank."""
    installed = [one for one in sys.path if "site-packages" in one]
    path = os.pathsep.join([str(packages), str(ROOT / "provider"), *installed])
    variables = {"PYTHONPATH": path, "PATH": os.environ["PATH"], **environment}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False, cwd="/")


@pytest.mark.parametrize("python", ["4.2.0", None])
def test_what_another_package_wrote_over_is_not_imported(tmp_path: Path, python: str | None) -> None:
    home = spark(tmp_path / "pyspark", version="4.3.0", python=python)
    (home / "__init__.py").touch()  # what is left of it where the client was removed
    done = imported(tmp_path)
    assert done.stdout.split() == ["4.3.0", f"{home}/python/lib/pyspark.zip/pyspark/__init__.py"], done.stderr


def test_a_pyspark_that_is_whole_is_imported_as_ever(tmp_path: Path) -> None:
    home = spark(tmp_path / "pyspark", version="4.3.0", python="4.3.0")
    done = imported(tmp_path)
    assert done.stdout.split() == ["4.3.0", f"{home}/__init__.py"], done.stderr


def test_the_jvm_is_of_the_pyspark_that_is_imported(tmp_path: Path) -> None:
    home = spark(tmp_path / "pyspark", version="4.3.0", python="4.3.0")
    other = spark(tmp_path / "opt" / "spark", version="4.2.1", python=None)
    code = f"{PROBE}\nimport os\nprint(os.environ.get('SPARK_HOME'))"
    done = imported(tmp_path, code, SPARK_HOME=str(other))
    assert done.stdout.split() == ["4.3.0", f"{home}/__init__.py", str(home)], done.stderr


def test_a_distribution_is_found_where_no_pyspark_is(tmp_path: Path) -> None:
    home = spark(tmp_path / "opt" / "spark", version="4.3.0", python=None)
    client = tmp_path / "packages" / "pyspark"
    client.mkdir(parents=True)
    (client / "__init__.py").write_text("__version__ = '4.2.0'\n")
    done = imported(tmp_path / "packages", SPARK_HOME=str(home))
    assert done.stdout.startswith("4.3.0 "), done.stderr
    alone = imported(tmp_path / "packages")
    assert alone.returncode != 0 and "no PySpark" in alone.stderr


@pytest.mark.storm
def test_an_installed_spark_that_cannot_read_state_leaves_it_to_the_one_of_the_environment(
    tmp_path: Path,
) -> None:
    """An environment with the PySpark of its jobs, 3.5 say, and a newer Spark beside it."""
    spark(tmp_path / "packages" / "pyspark", version="3.5.9", python="3.5.9")
    (tmp_path / "packages" / "pyspark" / "__init__.py").write_text("__version__ = '3.5.9'\n")
    home = spark(tmp_path / "opt" / "spark", version="4.3.0", python=None)
    done = imported(tmp_path / "packages", SPARK_HOME=str(home))
    assert done.stdout.startswith("4.3.0 "), done.stderr
    assert imported(tmp_path / "packages").stdout.startswith("3.5.9 "), "which says no by itself"


OF_JOB = """
import sys
from streambank.cli.options import declared_job
from streambank_spark.commands.subject import require_pyspark
require_pyspark(declared_job("orders/main", sys.argv[1]))
import pyspark
print(pyspark.__version__, pyspark.__file__)
"""


@pytest.mark.parametrize("field", ["spark_home", "state.spark_home"])
def test_the_spark_of_the_declared_job_reads_its_state_where_none_is_installed(
    tmp_path: Path, field: str
) -> None:
    home = spark(tmp_path / "opt" / "spark", version="4.3.0", python=None)
    client = tmp_path / "packages" / "pyspark"
    client.mkdir(parents=True)
    (client / "__init__.py").write_text("__version__ = '4.2.0'\n")
    jobs = tmp_path / "jobs.toml"
    text = f'repository = "r"\n[jobs.orders]\napplication = "a.py"\ncheckpoint = "c"\n{field} = "{home}"\n'
    jobs.write_text(text)
    done = imported(tmp_path / "packages", OF_JOB, str(jobs))
    assert done.stdout.split() == ["4.3.0", f"{home}/python/lib/pyspark.zip/pyspark/__init__.py"], done.stderr
    jobs.write_text(text.replace("orders", "others"))
    other = imported(tmp_path / "packages", OF_JOB, str(jobs))
    assert other.returncode != 0 and "no PySpark" in other.stderr


def test_what_is_asked_of_state_is_read_before_pyspark_is(tmp_path: Path) -> None:
    """Else the process has the PySpark that is installed, and not the one of its Spark."""
    code = """
import sys
from streambank_spark.commands.app import app
import streambank_spark.commands.exchanging
import streambank_spark.rewrite.rewrite_request
sys.exit("pyspark" in sys.modules)
"""
    done = imported(tmp_path, code)
    assert done.returncode == 0, done.stderr


LOADED = """
import sys
from streambank.driver.installed import installation_of
from streambank_spark.commands.exchanging import _loaded
job = _loaded(sys.argv[1], "orders")
import pyspark
print(pyspark.__version__, installation_of(job).spark_version)
"""


@pytest.mark.storm
@pytest.mark.parametrize("installed", [True, False])
def test_a_job_is_started_on_its_own_spark_after_work_on_its_state(tmp_path: Path, installed: bool) -> None:
    """Its exchange works on the state and starts the job in one process; those are two Sparks."""
    packages = tmp_path / "packages" / "pyspark"
    old = spark(packages if installed else tmp_path / "old", version="4.1.4", python="4.1.4")
    packages.mkdir(exist_ok=True, parents=True)
    (packages / "__init__.py").write_text("__version__ = '4.1.4'\n")
    new = spark(tmp_path / "new", version="4.3.0", python=None)
    jobs = tmp_path / "jobs.toml"
    jobs.write_text(
        'repository = "r"\n[jobs.orders]\napplication = "a.py"\ncheckpoint = "c"\n'
        f'state.spark_home = "{new}"\n'
    )
    environment = {} if installed else {"SPARK_HOME": str(old)}
    done = imported(tmp_path / "packages", LOADED, str(jobs), **environment)
    assert done.stdout.split() == ["4.3.0", "4.1.4"], done.stderr
