"""The form of an upgrade names an application and settings: it must bring no other code by either."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streambank.core.errors import InputError
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank_airflow.choices import check_form_upgrade
from tests.support.jobs.declared import write_jobs


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job whose application lies in a folder of a local disk, beside another version of it."""
    folder = tmp_path / "jobs"
    folder.mkdir()
    (folder / "v2.py").write_text("", encoding="utf-8")
    (tmp_path / "evil.py").write_text("", encoding="utf-8")
    (tmp_path / "jobs-of-others").mkdir()
    return load_jobs(write_jobs(folder)).job("flights")


def code_of(job: Job, application: str | None, *settings: str) -> str:
    """What becomes of it: the code of the refusal, or `taken`."""
    try:
        check_form_upgrade(job, application, settings)
    except InputError as error:
        return error.code
    return "taken"


@pytest.mark.parametrize(
    "spelling",
    [
        "{folder}/../evil.py",
        "{folder}/./../evil.py",
        "{folder}//../evil.py",
        "{folder}/x/../../evil.py",
        "{folder}-of-others/evil.py",
        "file://{folder}/v2.py",
        "file://{folder}/%2e%2e/evil.py",
        "file://user@{folder}/v2.py",
        "file://elsewhere{folder}/v2.py",
        "FILE:{folder}/../evil.py",
        "~/evil.py",
        "jobs/v2.py",
        "{folder}/linked.py",
        "{folder}/linked-folder/evil.py",
        "{folder}/..",
        " {folder}/v2.py",
        "",
    ],
)
def test_no_spelling_leads_out_of_the_folder_of_a_local_application(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    folder = tmp_path / "jobs"
    (folder / "linked.py").symlink_to(tmp_path / "evil.py")
    (folder / "linked-folder").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert code_of(job, str(folder / "v2.py")) == "taken"
    assert code_of(job, spelling.format(folder=folder)) == "place-not-allowed"


@pytest.mark.parametrize(
    "address",
    [
        "s3a://code/jobs/v2.py",
        "s3a://code/jobs/../evil.py",
        "s3a://code/jobs/%2e%2e/evil.py",
        "s3a://code/jobs/%2E%2E/evil.py",
        "s3a://code/jobs/v2/..%2f../evil.py",
        "s3a://user@code/jobs/v2.py",
        "s3a://user:pass@code/jobs/v2.py",
        "s3a://code:80/jobs/v2.py",
        "s3a://code@evil/jobs/v2.py",
        "s3a://evil/jobs/v2.py",
        "s3a://evil#code/jobs/v2.py",
        "s3a://evil?code/jobs/v2.py",
        "s3a:/jobs/v2.py",
        "s3a:///jobs/v2.py",
        "//code/jobs/v2.py",
        "https://code/jobs/v2.py",
        "/jobs/v2.py",
    ],
)
def test_beside_a_remote_application_no_address_is_taken(job: Job, address: str) -> None:
    remote = replace(job, application="s3a://code/jobs/app.py")
    assert code_of(remote, remote.application) == "taken"
    assert code_of(remote, address) == "place-not-allowed"


@pytest.mark.parametrize(
    "setting",
    [
        # Code that comes by its name.
        "spark.sql.streaming.streamingQueryListeners",
        "spark.extraListeners",
        "spark.sql.queryExecutionListeners",
        "spark.sql.streaming.stateStore.providerClass",
        "spark.sql.streaming.checkpointFileManagerClass",
        "spark.sql.streaming.commitProtocolClass",
        "spark.sql.sources.commitProtocolClass",
        "spark.sql.extensions",
        "spark.plugins",
        "spark.sql.catalog.lake",
        "spark.sql.warehouse.dir",
        "spark.serializer",
        # Code that comes by its place.
        "spark.jars",
        "spark.jars.packages",
        "spark.files",
        "spark.archives",
        "spark.submit.pyFiles",
        "spark.pyspark.python",
        "spark.pyspark.driver.python",
        "spark.driver.extraJavaOptions",
        "spark.driver.extraClassPath",
        "spark.driver.defaultJavaOptions",
        "spark.executor.extraJavaOptions",
        "spark.executorEnv.PYTHONPATH",
        "spark.hadoop.fs.s3a.impl",
        "spark.master",
        # Where state lies, how much of it stays, and what Spark makes sure of.
        "spark.sql.streaming.checkpointLocation",
        "spark.sql.streaming.minBatchesToRetain",
        "spark.sql.streaming.unsupportedOperationCheck",
        "spark.sql.streaming.stateStore.stateSchemaCheck",
        # The same by another spelling, and what only begins or ends like a harmless one.
        "SPARK.SQL.STREAMING.STATESTORE.PROVIDERCLASS",
        "spark.sql.streaming.stateStore.ProviderCLASS",
        "spark.sql.shuffle.partitions\nspark.jars",
        "spark.sql.shuffle.partitions spark.jars",
        "spark.sql.shuffle.partitions=1",
        "spark.sql.shuffle.partitionsX",
        "xspark.sql.shuffle.partitions",
        "spark.executor.memory\n",
        "",
    ],
)
def test_no_setting_brings_other_code_or_moves_state(job: Job, setting: str) -> None:
    assert code_of(job, None, "spark.sql.shuffle.partitions", "spark.executor.memory") == "taken"
    assert code_of(job, None, setting) == "bad-option"
    assert code_of(job, None, "spark.sql.shuffle.partitions", setting) == "bad-option"
