from __future__ import annotations

import pytest

from streambank.core.errors import FormatError
from streambank_spark.failures import first_line, hint_of_failure, refuse_wrong_schema, with_cause
from tests.support.refuses import refuses

WORKER = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "app.py", line 3, in double
    return table[key]
           ~~~~~^^^^^
KeyError: 'b'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "app.py", line 9, in score
    raise ValueError("no score of b")
ValueError: no score of b

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
"""
QUERY = """[PYTHON_EXCEPTION] An exception was thrown from the worker: Traceback (most recent call last):
  File "app.py", line 9, in score
    raise ValueError("no score of b")
ValueError: no score of b
 SQLSTATE: 38000"""
CALL = """An error occurred while calling o42.load.
: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2856)"""


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (WORKER, "Python code failed: ValueError: no score of b"),
        (QUERY, "Python code failed: ValueError: no score of b"),
        (CALL, "org.apache.spark.SparkException: Job aborted due to stage failure"),
        ("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== SQL ==\n1/0", "[DIVIDE_BY_ZERO] Division by "
         "zero. SQLSTATE: 22012"),
        ("\n \n", "RuntimeError"),
    ],
)  # fmt: skip
def test_a_failure_is_one_line(said: str, line: str) -> None:
    assert first_line(RuntimeError(said)) == line


def test_the_innermost_cause_has_a_line_of_its_own_where_it_says_more() -> None:
    full = "java.io.IOException: No space left on device"
    assert (
        with_cause("Job aborted", ["a.b.SparkException: wrapped", full]) == f"Job aborted\nCaused by: {full}"
    )
    assert with_cause("Lost task: No space left on device", [full]) == "Lost task: No space left on device"
    assert with_cause("Job aborted", []) == "Job aborted"


def test_more_memory_is_the_way_out_only_where_memory_was_missing() -> None:
    lack = RuntimeError(f"{CALL}\nCaused by: java.lang.OutOfMemoryError: Java heap space")
    assert hint_of_failure(lack, "/tmp/x.log") == (
        "Give it more memory: --spark-conf spark.driver.memory=4g. The full message is in /tmp/x.log."
    )
    assert hint_of_failure(RuntimeError(CALL), "/tmp/x.log") == "The full message is in /tmp/x.log."


def test_state_that_only_sparks_reader_cannot_read_is_named_without_advice_on_memory() -> None:
    said = "[STATE_STORE_VALUE_ROW_FORMAT_VALIDATION_FAILURE] The streaming query failed"
    with refuses(FormatError, "wrong-state-schema", match="wrote a wrong one") as refused:
        refuse_wrong_schema(RuntimeError(said))
    assert refused.value.hint.startswith("If it is that of dropDuplicates, savepoints and restores work")
    refuse_wrong_schema(RuntimeError(said.replace("VALUE", "KEY")))  # of keys it is damage
    refuse_wrong_schema(RuntimeError(CALL))
