"""Which of Spark's settings a driver on a worker is sent, and what it may import."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streambank.core.errors import InputError
from streambank.driver.launcher import Handle
from streambank.driver.launchers.choose import launcher_for
from streambank.driver.launchers.standalone import submission
from tests.streambank.driver.launchers.test_standalone import in_cluster, master
from tests.support.jobs.declared import launched
from tests.support.refuses import refuses
from tests.support.spark.fake_master import FakeMaster

__all__ = ["master"]


def sent(folder: Path, master: FakeMaster, spark: str = "") -> dict[str, Any]:
    job = in_cluster(folder, master, f"[jobs.flights.spark]\n{spark}")
    control, spec = launched(job)
    return submission(job, control, spec, "file:/p/streambank.zip", {"SPARK_CONF_DIR": str(folder / "conf")})


def defaults(folder: Path) -> Path:
    (folder / "conf").mkdir()
    return folder / "conf" / "spark-defaults.conf"


def test_the_jobs_python_files_can_be_imported_from_the_first_line_on(
    folder: Path, master: FakeMaster
) -> None:
    files = "/lib/mine.py, file:/lib/a.zip,local:/opt/b.zip,s3a://bucket/c.zip"
    body = sent(folder, master, f'spark.submit.pyFiles = "{files}"\nspark.files = "/lib/mine.py"')
    local = "/lib/mine.py,file:/lib/a.zip,local:/opt/b.zip"
    assert body["appArgs"][1] == f"{local},streambank.zip", "Spark's PythonRunner fails at a remote one"
    properties = body["sparkProperties"]
    everything = f"{local},s3a://bucket/c.zip,streambank.zip"
    assert properties["spark.submit.pyFiles"] == everything
    assert properties["spark.files"] == everything, "executors get what is here alone"


def test_credentials_of_the_site_stay_here(folder: Path, master: FakeMaster) -> None:
    defaults(folder).write_text(
        "spark.eventLog.enabled true\nspark.ssl.keyPassword hidden\nspark.cassandra.auth.password=hidden\n"
        "spark.hadoop.fs.azure.sas.c.a.blob.core.windows.net hidden\n"
        "spark.hadoop.fs.gs.auth.service.account.private.key hidden\n"
        "spark.hadoop.javax.jdo.option.ConnectionPassword hidden\n"
        "spark.hadoop.fs.s3a.server-side-encryption.key hidden\n"
        "spark.authenticate.secret.driver.file /run/secret\n"
    )
    properties = sent(folder, master)["sparkProperties"]
    assert "hidden" not in str(properties)
    assert properties["spark.eventLog.enabled"] == "true"
    assert properties["spark.authenticate.secret.driver.file"] == "/run/secret"


def test_what_is_no_text_is_read_as_spark_reads_it(folder: Path, master: FakeMaster) -> None:
    defaults(folder).write_bytes("# für alle\nspark.a 1\n".encode("latin-1"))
    assert sent(folder, master)["sparkProperties"]["spark.a"] == "1"


def test_settings_that_cannot_be_read_are_told(folder: Path, master: FakeMaster) -> None:
    defaults(folder).mkdir()
    with refuses(InputError, "no-spark-defaults") as caught:
        sent(folder, master)
    assert "spark-defaults.conf" in caught.value.message


def test_the_command_of_a_driver_is_shown_without_secrets(folder: Path, master: FakeMaster) -> None:
    driver = master.submit({"appArgs": ["-Dspark.x.password=hunter2", "org.X"]})
    lines = launcher_for(in_cluster(folder, master)).log_lines(Handle("launch-1", (), None, driver), 20)
    assert 'Launch Command: "java" -Dspark.x.password=*** org.X' in lines
