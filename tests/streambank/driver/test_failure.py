"""Why a driver died, by its log and its records, without what looks like a secret."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from streambank.control.control import JobControl
from streambank.control.processes import this_process
from streambank.driver.failure import (
    LINES,
    driver_failure,
    failure_in,
    is_secret,
    redacted,
    root_cause,
    secret_values,
    shown,
    since_failure,
    warned,
)
from streambank.storage import open_store
from tests.support.paths import ROOT

LOGS = ROOT / "tests" / "data" / "driver-logs"
"""The ends of real logs: PySpark 4.3 ran an application of a few lines by spark-submit."""
TRACEBACK = """
26/11/22 05:00:00 ERROR MicroBatchExecution: Query main terminated with error
Traceback (most recent call last):
  File "app.py", line 3, in <module>
    raise ValueError("no")
ValueError: no such table
    at java.base/java.lang.Thread.run(Thread.java:840)
26/11/22 05:00:01 INFO SparkContext: SparkContext is stopping
"""


def last_error(lines: Sequence[str]) -> str | None:
    failure = failure_in(lines)
    return None if failure is None else failure.cause


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("python-worker", "ValueError: poison row 0"),
        ("foreach-batch", "FileNotFoundError: [Errno 2] No such file or directory: '/no/such/file'"),
        ("expression", "[USER_RAISED_EXCEPTION] boom"),
        (
            "before-the-query",
            "AnalysisException: [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function "
            "parameter with name `nope` cannot be resolved. Did you mean one of "
            "the following? [`value`, `timestamp`].",
        ),
    ],
)
def test_the_innermost_error_of_a_real_log_is_the_cause(log: str, cause: str) -> None:
    found = failure_in((LOGS / f"{log}.log").read_text().splitlines())
    assert found is not None and found.cause == cause
    assert found.lines[0] == "Traceback (most recent call last):"
    assert len(found.lines) <= LINES + 1
    assert any(cause.split(":")[0] in line for line in found.lines)
    assert not any("SparkContext is stopping" in line or "Logical Plan" in line for line in found.lines)


def test_long_runs_of_frames_are_counted() -> None:
    frames = [f"\tat a.b.C.m{n}(C.java:{n})" for n in range(30)]
    said = ["26/11/24 02:00:00 ERROR Q: bad", "a.b.BadException: one", *frames, "Caused by: a.b.Worse: two"]
    found = failure_in(
        [*said, "Caused by: a.b.WorseException: three", *frames, "26/11/24 02:00:01 INFO Q: bye"]
    )
    assert found is not None and found.cause == "a.b.WorseException: three"
    assert found.lines[0] == "a.b.BadException: one"
    assert found.lines.count("\t... 27 more") == 2
    assert len(found.lines) == 11


def test_what_follows_the_exception_is_shown_with_it() -> None:
    lines = TRACEBACK.splitlines()
    assert list(since_failure(lines)) == lines[2:]
    assert list(since_failure(["26/11/22 05:00:00 ERROR Q: bad", "26/11/22 05:00:01 INFO Q: bye"])) == []
    real = (LOGS / "python-worker.log").read_text().splitlines()
    assert since_failure(real)[0] == "Traceback (most recent call last):"


def test_a_secret_is_told_by_its_name() -> None:
    variables = {
        "DB_PASSWORD": "swordfish",
        "fs.s3a.secret.key": "abcdefgh",
        "TOKEN_FILE": "/run/token",
        "PWD": "/home/ann",
        "A_TOKEN": "short",
    }
    assert {name for name, value in variables.items() if is_secret(name, value)} == {
        "DB_PASSWORD",
        "fs.s3a.secret.key",
    }


def test_an_exception_while_spark_ends_does_not_hide_the_one_that_ended_it() -> None:
    shutdown = ["26/11/24 02:00:01 ERROR ShutdownHookManager: Exception", "java.io.IOException: not deleted"]
    found = failure_in([*TRACEBACK.splitlines(), *shutdown])
    assert found is not None and found.cause == "ValueError: no such table"


def test_it_is_the_last_line_that_names_an_error() -> None:
    assert last_error(TRACEBACK.splitlines()) == "ValueError: no such table"
    java = [
        "java.io.IOException: not written",
        "\tat a.B.c(B.java:2)",
        "Caused by: a.b.FullException: disk full",
    ]
    assert last_error([*java, "\tat a.B.c(B.java:1)"]) == "a.b.FullException: disk full"
    through_python = [
        "py4j.Py4JJavaError: An error occurred",
        ": a.b.BadException: too little memory",
        "\tat a.B",
    ]
    assert last_error(through_python) == "a.b.BadException: too little memory"


FULL = "[CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT] Error writing state store files."
WRAPPED = f"[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: {FULL} SQLSTATE: 58030"
DISK_FULL = f"""
26/11/28 18:11:52 ERROR MicroBatchExecution: Query main [id = 1, runId = 2] terminated with error
org.apache.spark.SparkException: {FULL} SQLSTATE: 58030
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.cannotCommit(QueryExecutionErrors.scala:1)
Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device
\tat x
Caused by: java.io.IOException: No space left on device
\tat y
26/11/28 18:11:53 INFO SparkContext: bye
Traceback (most recent call last):
  File "app.py", line 3, in <module>
    query.awaitTermination()
pyspark.errors.exceptions.captured.StreamingQueryException: {WRAPPED}
=== Streaming Query ===
Identifier: main
""".splitlines()


def test_the_log_of_the_jvm_has_the_cause_of_an_exception_that_python_shows(
    tmp_path: Path,
) -> None:
    assert last_error(DISK_FULL) == "java.io.IOException: No space left on device"
    control = JobControl(open_store(tmp_path), "flights")
    control.record_event("query-ended", query="main", launch_id="l1", failure=WRAPPED)
    found = driver_failure(control, "l1", DISK_FULL)
    assert found is not None and found.sentence == "java.io.IOException: No space left on device"
    alone = driver_failure(control, "l1", [])
    assert alone is not None
    assert alone.cause == FULL
    other = driver_failure(
        control, "l1", [*DISK_FULL[:3], "a.b.OtherException: two", "Caused by: a.b.E: three"]
    )
    assert other is not None and other.cause == alone.cause, "the log is of something else"
    inner = f"{WRAPPED}\nCaused by: java.io.EOFException"
    assert root_cause(inner, "flights") == "java.io.EOFException"


def test_another_driver_of_the_launch_that_was_refused_does_not_hide_why_the_first_one_failed(
    tmp_path: Path,
) -> None:
    """A cluster tries again while the first driver still lives."""
    control = JobControl(open_store(tmp_path), "flights")
    refused = {"launch_id": "l1", "code": "lease-held", "exit_code": 8, "why": "It is held by process 1."}
    control.record_event("driver-refused", **refused)
    before = driver_failure(control, "l1", [])
    control.lease.acquire([this_process("python")], purpose="run", details={"launch_id": "l1"})
    control.record_event("query-ended", query="main", launch_id="l1", failure="KeyError: 'prize-2'")

    found = driver_failure(control, "l1", [])

    assert before is not None and before.cause == refused["why"], "no driver of the launch ever ran"
    assert found is not None and found.cause == "KeyError: 'prize-2'"


@pytest.mark.parametrize(
    ("said", "way"),
    [
        (
            "[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema does not match existing state key "
            f"schema. Existing key_schema={'x' * 600}. If you want to force running the query without "
            "schema validation, please set spark.sql.streaming.stateStore.stateSchemaCheck to false.",
            "<job>.upgrade",
        ),
        ("[STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION] Schema evolution is not possible", "<job>.upgrade"),
        (
            "java.lang.IllegalStateException: Partition t-0's offset was changed from 9 to 3. Some data may "
            'have been missed. To go on all the same, set the source option "failOnDataLoss" to "false".',
            "<job>.restore",
        ),
        ("[DELTA_SOURCE_TABLE_IGNORE_CHANGES] set the option 'skipChangeCommits' to 'true'", "<job>.restore"),
        ("Cannot process overwrite snapshot: 1, set streaming-skip-overwrite-snapshots", "<job>.restore"),
        (
            "To bypass this check, set spark.sql.streaming.realTimeMode.allowlistCheck to false.",
            "<job>.upgrade",
        ),
        (
            "set spark.databricks.delta.streaming.unsafeReadOnIncompatibleSchemaChanges.enabled to true",
            "<job>.upgrade",
        ),
    ],
)
def test_advice_to_switch_a_check_off_is_never_without_our_way_out(
    tmp_path: Path, said: str, way: str
) -> None:
    text = shown(said)
    assert "leave that check on" in text and way in text
    assert shown(text) == text == shown(warned(said))
    logged = last_error(["26/11/24 02:00:00 ERROR Q: bad", f"a.b.BadException: {said}"])
    assert logged is not None and logged.count(way) == 1
    control = JobControl(open_store(tmp_path), "trains.eu")
    control.record_event("query-ended", query="main", launch_id="l1", failure=said)
    found = driver_failure(control, "l1", [f"a.b.BadException: {said}"])
    assert found is not None
    named = way.replace("<job>", "trains.eu")
    for words in (found.cause, *found.lines, root_cause(said, "trains.eu")):
        assert named in words and "<job>" not in words
        assert shown(words).count("leave that check on") == 1


def test_no_advice_needs_no_way_out() -> None:
    assert shown("java.io.IOException: No space left on device").endswith("device")
    assert shown("Set spark.sql.streaming.checkpointLocation.").endswith("checkpointLocation.")


@pytest.mark.parametrize("error", ["socket.gaierror: [Errno -2] Name or service not known", "StopIteration"])
def test_a_traceback_ends_in_the_error_whatever_its_class_is_called(error: str) -> None:
    ended = 'streambank: driver-ended {"exit_code": 1, "failed": {}, "forced": false, "batches": {}}'
    failure = failure_in(
        [
            "Traceback (most recent call last):",
            '  File "app.py", line 9, in <module>',
            "    main()",
            error,
            ended,
        ]
    )
    assert failure is not None and failure.cause == error and failure.known
    assert ended not in failure.lines


def test_what_the_runner_says_is_not_how_a_log_ends() -> None:
    failure = failure_in(["loading", 'streambank: driver-ended {"exit_code": 1}'])
    assert failure is not None and failure.cause == "loading"


def test_else_what_is_of_that_level_else_how_the_log_ends() -> None:
    lines = ["26/11/22 05:00:00 ERROR Executor: lost", "26/11/22 05:00:01 INFO Executor: bye", ""]
    assert last_error(lines) == lines[0]
    assert last_error(["it does not feel well", ""]) == "it does not feel well"
    assert last_error([]) is None


@pytest.mark.parametrize(
    "said",
    [
        "Error: password=hunter2hunter2 is wrong",
        'Error: {"secret_key": "hunter2hunter2", "a": 1}',
        "Error: fs.s3a.secret.key -> spark.hadoop.fs.s3a.access.key: hunter2hunter2",
        "Error: jdbc:postgresql://me:hunter2hunter2@db/x refused",
        "Error: Authorization: Bearer hunter2hunter2",
        "Error: header Bearer hunter2hunter2",
        "Error: url?sig=1&X-Amz-Signature=hunter2hunter2&x=1",
        "Error: it said hunter2hunter2, which a variable holds",
        "Error: s3a://key:ab/hunter2+hunter2@bucket/path",
        "Error: amqp://guest:1x/hunter2hunter2@h/",
        "Error: amqp://guest:12345/hunter2hunter2@rabbit/vhost",
        "Error: amqp://guest:1/hunter2@hunter2@rabbit:5672 and hdfs://nn:8020/x",
        "Error: jdbc:postgresql://u:12/hunter2?hunter2@h/db",
        "Error: mongodb://u:12/a#hunter2&x=1@h,h2:27017/db?user=ann@corp.com",
        "Error: https://u:80/x?user=hunter2@h/db",
        "Error: amqp://u:ab/hunter2@hunter2@h",
        "Error: s3a://key:12/hunter2?hunter2@bucket/path",
        "Error: jdbc:oracle:thin:scott/hunter2hunter2@//db:1521/x",
        "Error: 404 of https://hooks.slack.com/services/T0hunter2/B0hunter2/hunter2hunter2",
        "Error: POST hooks.slack.com/workflows/T0/A0/1/hunter2hunter2?x=1",
        "Error: https://discord.com/api/webhooks/123/hunter2hunter2",
        "Error: https://corp.webhook.office.com/webhookb2/hunter2@hunter2/IncomingWebhook/hunter2/x",
        'Error: jdbc:oracle:thin:scott/"hunter2@hunter2"@db:1521:x',
        "Error: sv=2020&sig=hunter2hunter2&se=1",
        "Error: fs.azure.sas.c.acc=hunter2hunter2",
        "Error: ssl.key.passphrase=hunter2hunter2",
        "Error: DB_PASS=hunter2hunter2",
        "Error: app.py --password hunter2hunter2 --x",
        "Error: ['app.py', '--db-password', 'hunter2hunter2']",
    ],
)
def test_secrets_are_left_out(said: str) -> None:
    found = shown(said, {"MY_PASSWORD": "hunter2hunter2" if "variable" in said else ""})
    assert "hunter2" not in found
    assert "***" in found
    assert found.startswith("Error: ")


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("amqp://guest:12345/@rabbit.example/x", "amqp://guest:***@rabbit.example/x"),
        ("x://u:123/45@h, x://v:6/7@10.0.0.1:80", "x://u:***@h, x://v:***@10.0.0.1:80"),
        ("https://hooks.slack.com/services/T0/B0/x is gone", "https://hooks.slack.com/services/*** is gone"),
    ],
)
def test_only_the_secret_of_an_address_is_left_out(said: str, kept: str) -> None:
    assert shown(said, {}) == kept


def test_secrets_that_begin_alike_or_have_several_lines_are_left_out() -> None:
    values = secret_values(
        [("A_TOKEN", "abcdef"), ("B_TOKEN", "abcdefghij"), ("KEY_SECRET", "first-line\nsecond")]
    )
    assert values == ["first-line\nsecond", "abcdefghij", "first-line", "abcdef", "second"]
    assert shown("abcdefghij", {"A_TOKEN": "abcdef", "B_TOKEN": "abcdefghij"}) == "***"


@pytest.mark.parametrize(
    "plain",
    [
        "hdfs://nn:8020/tables/x@v12 and http://h:80/@scope/x",
        "hdfs://nn:8020/x/date@2024-01-01, webhdfs://nn:50070/a/b@c?user.name=ann@REALM",
        "hdfs://n1:8020,n2:8020/a@b s3a://lake/a:80/x@y.z gs://bucket/x:1@y file:///a:80/b@c",
        "abfss://container@account.dfs.core.windows.net/x:80/y@z and abfss://c@a.net:443/x@y",
        "http://history:18080/x/date@2024-01-01",
        "jdbc:postgresql://host:5432/db?sslmode=off&user=ann@corp.com",
        "jdbc:postgresql://host:5432/db and kafka://host:9092/topic, ann@corp.com wrote it",
        "jdbc:postgresql://host:5432/db?user=ann@corp.com",
        "s3://host:9000/lake/x@20261128, s3://host:9000/lake/x@3",
        "https://hooks.slack.com/docs and https://slack.com/services/help",
        "sigma=0.1234567 passed=12345678 signals: 12345678",
        "jdbc:oracle:thin:@//db:1521/service",
        "--token-file /run/secrets/one --passed 12345678 --password --other",
    ],
)
def test_what_only_resembles_a_secret_is_shown(plain: str) -> None:
    assert shown(plain, {}) == plain


PARTS = "ab1/=&#?;,+%!:-._"


@given(
    scheme=st.sampled_from(
        ["jdbc:postgresql", "jdbc:mysql", "http", "https", "amqp", "mongodb", "kafka", "x"]
    ),
    number=st.from_regex(r"\A(?:[0-9]{1,6}/)?\Z"),
    before=st.text(PARTS + "@", max_size=12),
    after=st.text(PARTS, max_size=12),
    host=st.from_regex(r"\A[a-z]{1,8}(?:\.[a-z]{2,3})?(?::[0-9]{2,5})?(?:/[a-z]{0,5})?\Z"),
)
def test_a_password_before_a_host_is_left_out(
    scheme: str, number: str, before: str, after: str, host: str
) -> None:
    password = f"{number}{before}hunter2{after.rstrip('/')}"
    assume("://" not in password)
    assert "hunter2" not in redacted(f"to {scheme}://user:{password}@{host} it said", {})


@given(
    place=st.sampled_from(
        (
            *("hdfs://nn:8020", "hdfs://n1:8020,n2:8020", "webhdfs://nn:50070", "s3://bucket"),
            *("s3a://bucket", "gs://bucket", "abfss://container@account.dfs.core.windows.net"),
            *("file://", "file://host:80"),
        )
    ),
    path=st.text("ab12/@=&#?;,+%!:-._", max_size=24),
)
def test_a_path_of_a_file_system_is_shown(place: str, path: str) -> None:
    assert redacted(f"in {place}/{path}", {}) == f"in {place}/{path}"


def test_the_working_directory_is_no_secret() -> None:
    variables = {
        "PWD": "/srv/jobs",
        "OLDPWD": "/srv/old",
        "MY_TOKEN_FILE": "/run/secrets/one",
        "DB_PWD": "hunter2hunter2",
    }
    said = "FileNotFoundError: /srv/jobs/in, /srv/old/in, /run/secrets/one: hunter2hunter2"
    assert shown(said, variables) == "FileNotFoundError: /srv/jobs/in, /srv/old/in, /run/secrets/one: ***"


def test_what_is_no_secret_is_shown_but_not_at_any_length() -> None:
    plain = "AnalysisException: [TABLE_NOT_FOUND] `orders` in s3://bucket/key:1"
    assert shown(plain, {"HOME_TOKEN": "s3", "PATH": "orders"}) == plain
    assert shown("AKIAABCDEFGHIJKLMNOP said no", {}) == "*** said no"
    assert len(shown("x" * 2000, {})) == 504
