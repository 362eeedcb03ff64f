"""Another user of the host reads `ps`: no setting of a job is there, and credentials are no settings."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from streambank.core.errors import InputError
from streambank.declaration.credentials import is_credential
from streambank.driver.installed import Installation
from streambank.driver.launchers.local import LocalLauncher
from streambank.driver.prepare import prepare_launch
from tests.support.jobs.declared import BY, declare
from tests.support.waiting import poll

PLANTED = "planted-secret-77"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.my.pwd", PLANTED),
        ("spark.executorEnv.DB_PWD", PLANTED),
        ("spark.driver.extraJavaOptions", f"-Xss4m -Djavax.net.ssl.keyStorePassword={PLANTED}"),
        ("spark.mongodb.read.connection.uri", f"mongodb://app:{PLANTED}@host/db"),
        ("spark.sql.catalog.pg.url", f"jdbc:postgresql://host/db?user=app&password={PLANTED}"),
        ("spark.app.dsn", f"https://{PLANTED}@sentry.example/1"),
        ("spark.redis.auth", PLANTED),
        ("spark.proxy.auth", PLANTED),
        ("spark.neo4j.authentication.basic.pass", PLANTED),
        ("spark.databricks.pat", PLANTED),
        ("spark.hadoop.hive.metastore.pw", PLANTED),
        ("spark.ssl.keyPassword", PLANTED),
        ("spark.x.options", f'{{"user"="a", "password"="{PLANTED}"}}'),
    ],
)
def test_a_credential_is_found_by_its_value_and_under_short_names(
    tmp_path: Path, name: str, value: str
) -> None:
    with pytest.raises(InputError) as caught:
        declare(tmp_path, more=f"[jobs.flights.spark]\n{name!r} = {value!r}")
    assert caught.value.code == "bad-declaration" and " a credential" in caught.value.message
    assert name in caught.value.message and PLANTED not in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.executorEnv.PWD", "/srv/jobs"),
        ("spark.hadoop.hadoop.http.auth", "kerberos"),
        (
            "spark.driver.extraJavaOptions",
            "-Djava.security.auth.login.config=/etc/jaas.conf -Dx=UTC",
        ),
        ("spark.executor.extraJavaOptions", "-Dapp.token.file=/run/token -Dapp.password=${env:PASSWORD}"),
        ("spark.sql.catalog.pg.url", "jdbc:postgresql://host:5432/db?ssl=true&user=app"),
        ("spark.hadoop.fs.defaultFS", "hdfs://name:8020"),
        ("spark.kubernetes.driver.secretKeyRef.DB", "db-secret:password"),
        ("spark.redaction.regex", "(?i)secret|password|token"),
    ],
)
def test_what_only_leads_to_a_credential_is_a_setting(name: str, value: str) -> None:
    assert not is_credential(name, value)


def test_a_jobs_settings_are_no_arguments(tmp_path: Path) -> None:
    """They come by a file that has no name and goes with the process."""
    submit = tmp_path / "spark" / "bin" / "spark-submit"
    submit.parent.mkdir(parents=True)
    submit.write_text('#!/bin/sh\ntr "\\0" " " < /proc/$$/cmdline\necho\ncat /dev/fd/9\n')
    submit.chmod(0o755)
    job = declare(tmp_path, more=f'[jobs.flights.spark]\n"spark.x.internal" = "{PLANTED}"')
    control = job.records()
    spec = prepare_launch(job, control, by=BY)
    launcher = LocalLauncher(Installation(sys.executable, tmp_path / "spark", Path("/entry.py"), ()))
    handle = launcher.submit(job, control, spec)
    poll(lambda: launcher.status(handle).state == "ended")
    arguments, *settings = launcher.log_lines(handle, 20)
    assert "--properties-file /dev/fd/9" in arguments and PLANTED not in arguments
    assert f"spark.x.internal={PLANTED}" in settings, "and the driver has it"
