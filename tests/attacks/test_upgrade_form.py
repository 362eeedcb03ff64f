"""Who may trigger an upgrade and nothing else has code of their own run, or what savepoints need deleted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streambank.core.errors import InputError
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank_airflow.choices import FORM_SETTINGS, check_form_upgrade
from streambank_airflow.dags.forms.recovery import upgrade_form
from tests.support.jobs.declared import declare, write_jobs
from tests.support.paths import ROOT
from tests.support.refuses import refuses


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """The folder of the declared application, as such folders are."""
    folder = tmp_path / "app"
    for name in (
        "app.py",
        "v2.py",
        "releases/v3.py",
        "releases/old/v0.py",
        "tests/conftest.py",
        ".venv/pyvenv.cfg",
        ".venv/lib/python3.11/site-packages/pip/__main__.py",
        "vendor/site-packages/compileall.py",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    (folder / "linked.py").symlink_to(folder / ".venv/lib/python3.11/site-packages/pip/__main__.py")
    (folder / "folder.py").mkdir()
    return folder


@pytest.fixture
def job(tmp_path: Path, app: Path) -> Job:
    return replace(declare(tmp_path), application=str(app / "app.py"))


def takes(job: Job, application: str | Path) -> bool:
    try:
        check_form_upgrade(job, str(application), [])
    except InputError as error:
        assert error.code == "place-not-allowed" and "applications" in error.hint
        return False
    return True


def declared(job: Job, *applications: str) -> Job:
    """The job, which declares what its form takes."""
    return replace(job, upgrade=replace(job.upgrade, applications=applications))


@pytest.mark.parametrize(
    "name",
    [
        ".venv/lib/python3.11/site-packages/pip/__main__.py",
        "vendor/site-packages/compileall.py",
        "tests/conftest.py",
        "releases/v3.py",
        "linked.py",
        "folder.py",
        "not-there.py",
        "releases/../v2.py",
        "releases/../.venv/lib/python3.11/site-packages/pip/__main__.py",
        "v2.py\0",
        "/".join(["x" * 300, "v2.py"]),
    ],
)
def test_nothing_below_the_folder_is_a_program_of_the_form(job: Job, app: Path, name: str) -> None:
    assert not takes(job, f"{app}/{name}")


def test_a_program_beside_the_declared_one_is_taken(
    job: Job, app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(app)
    assert takes(job, app / "v2.py") and takes(job, app / "app.py")
    assert not takes(job, "v2.py"), "a relative path means nothing to a worker"
    assert not takes(job, "/etc/hostname")
    for elsewhere in (
        f"file://{app}/v2.py",
        "https://evil/v2.py",
        "s3a://bucket/v2.py",
        f"local://{app}/v2.py",
    ):
        assert not takes(job, elsewhere)


@pytest.mark.parametrize("environment", ["pyvenv.cfg", "site-packages"])
def test_an_environment_is_full_of_programs(job: Job, app: Path, environment: str) -> None:
    """Where the application itself is installed, everything beside it and above it is."""
    folder = app / "of-env" / ("site-packages" if environment == "site-packages" else "jobs") / "acme"
    folder.mkdir(parents=True)
    for name in ("app.py", "v2.py"):
        (folder / name).write_text("")
    installed = replace(job, application=str(folder / "app.py"))
    if environment == "pyvenv.cfg":
        assert takes(installed, folder / "v2.py"), "the negative control"
        (app / "of-env" / "pyvenv.cfg").touch()
    assert not takes(installed, folder / "v2.py") and takes(installed, folder / "app.py")
    assert takes(declared(installed, "v2.py"), folder / "v2.py"), "who declares it means it"


def test_what_is_declared_is_taken_and_nothing_else(job: Job, app: Path) -> None:
    listed = declared(job, "releases/*.py", f"{app}/tests/conftest.py")
    assert takes(listed, app / "releases/v3.py") and takes(listed, app / "tests/conftest.py")
    for other in ("releases/old/v0.py", "v2.py", "releases/not-there.py", "releases/../v2.py"):
        assert not takes(listed, f"{app}/{other}")
    assert takes(listed, app / "app.py"), "the declared one is always meant"
    assert not takes(declared(job), app / "v2.py")
    shown = upgrade_form(3, listed.upgrade.applications)["application"].schema["description_md"]
    assert "releases/\\*.py" in shown or "`releases/*.py`" in shown


def test_the_folder_may_be_a_link(job: Job, app: Path) -> None:
    """As where each deployment is a folder, and `current` leads to the newest."""
    current = app.parent / "current"
    current.symlink_to(app)
    deployed = replace(job, application=f"{app.parent}/jobs/../current/app.py")
    (app.parent / "jobs").mkdir()
    for folder in (app, current):
        assert takes(deployed, folder / "v2.py") and takes(declared(deployed, "v2.py"), folder / "v2.py")
        assert not takes(deployed, folder / "releases/v3.py")


def test_a_program_in_an_image_is_known_by_its_name_alone(job: Job) -> None:
    image = replace(job, application="/opt/of-image/app.py")
    assert takes(image, "/opt/of-image/v2.py") and not takes(image, "/opt/of-image/lib/v2.py")


@pytest.mark.parametrize(
    "name",
    [
        "spark.sql.streaming.fileSink.log.deletion",
        "spark.sql.streaming.fileSink.log.cleanupDelay",
        "spark.sql.streaming.fileSource.log.cleanupDelay",
        "spark.sql.streaming.fileSource.log.deletion",
        "spark.sql.streaming.stateStore.maintenanceInterval",
        "spark.sql.streaming.stateStore.encodingFormat",
        "spark.sql.streaming.stateStore.rocksdb.formatVersion",
        "spark.sql.streaming.minBatchesToRetain",
        "spark.sql.adaptive.customCostEvaluatorClass",
        "spark.sql.streaming.unsupportedOperationCheck",
        "spark.sql.streaming.stateStore.stateSchemaCheck",
        "spark.sql.streaming.checkpointLocation",
        "spark.sql.streaming.stateStore.providerClass",
        "spark.sql.streaming.streamingQueryListeners",
        "spark.sql.extensions",
        "spark.jars",
        "spark.submit.pyFiles",
        "spark.pyspark.python",
        "spark.executorEnv.PYTHONPATH",
        "spark.driver.memory ",
        "SPARK.DRIVER.MEMORY",
        "spark.driver.extraJavaOptions",
    ],
)
def test_a_setting_that_is_not_listed_is_refused_by_name(job: Job, name: str) -> None:
    with pytest.raises(InputError) as refused:
        check_form_upgrade(job, None, ["spark.sql.shuffle.partitions", name])
    assert refused.value.code == "bad-option" and refused.value.message.startswith(name)
    assert f"[jobs.{job.name}.spark]" in refused.value.hint


def test_the_page_lists_every_setting_that_the_form_takes(job: Job) -> None:
    check_form_upgrade(job, None, FORM_SETTINGS)
    page = (ROOT / "docs/howto/upgrades.md").read_text()
    table = page.partition("| settings of Spark that the form takes")[2].partition("\n\n")[0]
    assert {one for one in table.split("`") if one.startswith("spark.")} == FORM_SETTINGS


@pytest.mark.parametrize("wrong", ['[""]', '["../v2.py"]', '"v2.py"', "[1]"])
def test_a_declaration_that_can_mean_nothing_is_a_mistake(tmp_path: Path, wrong: str) -> None:
    more = "[jobs.flights.upgrade]\napplications = "
    good = load_jobs(write_jobs(tmp_path, more=f'{more}["v2.py"]\n')).job("flights")
    assert good.upgrade.applications == ("v2.py",)
    with refuses(InputError, "bad-declaration"):
        load_jobs(write_jobs(tmp_path, more=f"{more}{wrong}\n")).job("flights")
