"""The last error of a log, without what looks like a secret."""

from __future__ import annotations

import pytest

from streambank.driver.log import last_error, shown

TRACEBACK = """
26/11/22 05:00:00 ERROR MicroBatchExecution: Query main terminated with error
Traceback (most recent call last):
  File "app.py", line 3, in <module>
    raise ValueError("no")
ValueError: no such table
    at java.base/java.lang.Thread.run(Thread.java:840)
26/11/22 05:00:01 INFO SparkContext: SparkContext is stopping
"""


def test_it_is_the_last_line_that_names_an_error() -> None:
    assert last_error(TRACEBACK.splitlines()) == "ValueError: no such table"
    java = [*TRACEBACK.splitlines(), "Caused by: java.io.IOException: disk full", "\tat a.B.c(B.java:1)"]
    assert last_error(java) == "Caused by: java.io.IOException: disk full"
    through_python = [
        "py4j.Py4JJavaError: An error occurred",
        ": a.b.BadException: too little memory",
        "\tat a.B",
    ]
    assert last_error(through_python) == "a.b.BadException: too little memory"


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
    ],
)
def test_secrets_are_left_out(said: str) -> None:
    found = shown(said, {"MY_PASSWORD": "hunter2hunter2" if "variable" in said else ""})
    assert "hunter2" not in found
    assert "***" in found
    assert found.startswith("Error: ")


def test_what_is_no_secret_is_shown_but_not_at_any_length() -> None:
    plain = "AnalysisException: [TABLE_NOT_FOUND] `orders` in s3://bucket/key:1"
    assert shown(plain, {"HOME_TOKEN": "s3", "PATH": "orders"}) == plain
    assert shown("AKIAABCDEFGHIJKLMNOP said no", {}) == "*** said no"
    assert len(shown("x" * 2000, {})) == 504
