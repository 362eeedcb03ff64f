"""Which of Spark's settings are credentials."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.core.errors import StorageError
from streambank.declaration.credentials import is_credential
from streambank.job.start import start_job
from tests.support.jobs.declared import BY, declare, fake_launcher


@pytest.mark.parametrize(
    "name",
    [
        "spark.ssl.keyPassword",
        "spark.ssl.historyServer.keyStorePassword",
        "spark.ssl.rpc.privateKeyPassword",
        "spark.cassandra.auth.password",
        "spark.es.net.http.auth.pass",
        "spark.authenticate.secret",
        "spark.executorEnv.DB_PASSWORD",
        "spark.yarn.appMasterEnv.SLACK_TOKEN",
        "spark.kubernetes.authenticate.submission.oauthToken",
        "spark.hadoop.javax.jdo.option.ConnectionPassword",
        "spark.hadoop.dfs.client.https.keystore.password",
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.s3a.bucket.b.session.token",
        "spark.hadoop.fs.s3a.server-side-encryption.key",
        "spark.hadoop.fs.s3a.encryption.key",
        "spark.hadoop.fs.s3n.awsAccessKeyId",
        "spark.hadoop.fs.azure.account.key.mine.dfs.core.windows.net",
        "spark.hadoop.fs.azure.account.oauth2.client.secret.mine.dfs.core.windows.net",
        "spark.hadoop.fs.azure.account.oauth2.refresh.token",
        "spark.hadoop.fs.azure.sas.profile.mine.blob.core.windows.net",
        "spark.hadoop.fs.azure.sas.some-file.mine.blob.core.windows.net",
        "spark.hadoop.fs.azure.sas.fixed.token.mine.dfs.core.windows.net",
        "spark.hadoop.fs.gs.auth.service.account.private.key",
        "spark.hadoop.fs.gs.encryption.key",
        "spark.sql.catalog.lake.credential",
        "spark.sql.catalog.lake.token",
        "spark.sql.catalog.lake.s3.secret-access-key",
        "spark.kafka.sasl.jaas.config",
    ],
)
def test_a_credential(name: str) -> None:
    assert is_credential(name)


@pytest.mark.parametrize(
    "name",
    [
        "spark.sql.shuffle.partitions",
        "spark.authenticate",
        "spark.authenticate.secretBitLength",
        "spark.authenticate.secret.driver.file",
        "spark.io.encryption.keySizeBits",
        "spark.kafka.clusters.a.sasl.token.mechanism",
        "spark.kerberos.keytab",
        "spark.kubernetes.authenticate.driver.oauthTokenFile",
        "spark.kubernetes.authenticate.submission.clientKeyFile",
        "spark.kubernetes.container.image.pullSecrets",
        "spark.kubernetes.driver.secretKeyRef.DB_PASSWORD",
        "spark.kubernetes.executor.secrets.db-password",
        "spark.kubernetes.kerberos.tokenSecret.itemKey",
        "spark.redaction.regex",
        "spark.security.credentials.kafka.enabled",
        "spark.ssl.rpc.privateKey",
        "spark.yarn.am.tokenConfRegex",
        "spark.executorEnv.DB_PASSWORD_FILE",
        "spark.hadoop.fs.azure.account.keyprovider.mine.dfs.core.windows.net",
        "spark.hadoop.fs.azure.account.oauth2.token.file.mine.dfs.core.windows.net",
        "spark.hadoop.fs.azure.account.oauth2.client.endpoint",
        "spark.hadoop.fs.azure.sas.token.provider.type.mine.dfs.core.windows.net",
        "spark.hadoop.fs.s3a.aws.credentials.provider",
        "spark.hadoop.fs.s3a.delegation.token.binding",
        "spark.hadoop.hadoop.security.credential.provider.path",
        "spark.hadoop.mapreduce.job.complete.cancel.delegation.tokens",
        "spark.sql.catalog.lake.token-refresh-enabled",
        "spark.sql.catalog.lake.token-expires-in-ms",
    ],
)
def test_what_only_leads_to_one_is_none(name: str) -> None:
    assert not is_credential(name)


def test_a_start_that_fails_shows_none(folder: Path) -> None:
    words = "Launch Command: java -Dspark.x.password=hunter2 org.X|Error: no"
    job = declare(folder, "--die-before-lease", "3", "--last-words", words)
    with pytest.raises(StorageError) as caught:
        start_job(job, by=BY, launcher=fake_launcher(folder))
    assert "-Dspark.x.password=*** org.X" in caught.value.hint
