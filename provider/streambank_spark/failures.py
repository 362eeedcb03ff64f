"""How a program of ours that Spark runs says what went wrong: a sentence and a hint, no traceback."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from streambank.core.errors import FormatError, StreambankError
from streambank.core.text import visible
from streambank.driver.failure import warned

_TRACEBACK = "Traceback (most recent call last):"
_OUT_OF_MEMORY = re.compile(r"OutOfMemoryError|MemoryError|exceeding memory limits|OOM\b|oom-kill")


_ROWS = re.compile(r"STATE_STORE_VALUE_ROW_FORMAT_VALIDATION_FAILURE")
WRONG_SCHEMA = (
    "Spark's state reader cannot read this state: its rows do not fit the schema in the checkpoint. For "
    "dropDuplicates, Spark before 3.3.1 wrote a wrong one."
)


def say_error(error: StreambankError) -> int:
    """Say it."""
    say(error.message)
    for line in error.hint.splitlines():
        say(line)
    return error.exit_code


def say(text: str) -> None:
    """Say something beside the program's answer; no name of a file in it steers a terminal."""
    print(f"streambank: {visible(text)}", file=sys.stderr, flush=True)


def first_line(error: BaseException) -> str:
    """What Spark says of a failure, in one line: without plan, traceback or stack of the JVM.

    Of an error in Python code that a worker ran it is that error: the last one, where one led to another.
    """
    if (raised := python_error(error)) is not None:
        return f"Python code failed: {raised}"
    lines = _lines(error)
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        return warned(lines[1].removeprefix(": ").strip())
    return warned(lines[0].strip()) if lines else type(error).__name__


def with_cause(said: str, causes: Sequence[str]) -> str:
    """A failure with the innermost of its causes in a line of its own, where that says more."""
    inner = next(iter(causes[-1].strip().splitlines()), "") if causes else ""
    _, _, message = inner.partition(": ")
    return said if not inner or (message or inner) in said else f"{said}\nCaused by: {inner}"


def not_supported(message: str, hint: str = "Report it, with the Spark version.") -> FormatError:
    """That a Spark is another one than those that something was tried with (code `spark-not-supported`)."""
    return FormatError(message, code="spark-not-supported", hint=hint)


def condition_of(error: BaseException) -> str:
    """Spark's name for a failure alone: its sentence may quote rows of state."""
    condition = getattr(error, "getCondition", lambda: None)()
    return str(condition or type(error).__name__)


_WORDS = (
    ("PARSE", "it is not one SQL expression"),
    ("UNRESOLVED_COLUMN", "it names a column that is not there"),
    ("FIELD_NOT_FOUND", "it names a column that is not there"),
    ("AMBIGUOUS", "a name in it means several columns"),
    ("UNRESOLVED_ROUTINE", "it calls a function that is not there"),
    ("WRONG_NUM_ARGS", "a function in it has too many or too few arguments"),
    ("DATATYPE_MISMATCH", "types in it do not fit each other"),
)


def in_words(error: BaseException) -> str:
    """Why Spark cannot use an expression, without its sentence, which quotes the expression."""
    condition = condition_of(error)
    words = next((text for start, text in _WORDS if condition.upper().startswith(start)), "Spark refuses it")
    return f"{words} ({condition})"


def python_error(error: BaseException) -> str | None:
    """The error in Python code that a worker ran, in one line; None where Spark tells of none."""
    lines = _lines(error)
    tracebacks = [number for number, line in enumerate(lines) if line.rstrip().endswith(_TRACEBACK)]
    below = lines[tracebacks[-1] + 1 :] if tracebacks else []
    return next((line.strip() for line in below if not line.startswith((" ", "\t"))), None)


def _lines(error: BaseException) -> list[str]:
    return [line for line in str(error).splitlines() if line.strip()]


def has_wrong_schema(error: BaseException) -> bool:
    """Whether Spark found rows of state that do not fit the schema beside them."""
    return _ROWS.search(str(error)) is not None


def refuse_wrong_schema(error: BaseException) -> None:
    """Say so where a failure of Spark means only that its state reader cannot read this state.

    Raises:
        FormatError: It does (code `wrong-state-schema`).
    """
    if has_wrong_schema(error):
        raise FormatError(
            WRONG_SCHEMA,
            code="wrong-state-schema",
            hint="If it is that of dropDuplicates, savepoints and restores work: the query needs no schema. "
            "If not, the state or its schema is damaged: restore an earlier savepoint.",
        ) from error


def hint_of_failure(error: BaseException, log: str) -> str:
    """What to do about a failure of Spark: more memory where that was missing, else read the log.

    Args:
        log: Where the whole message is, as the end of a sentence.
    """
    whole = f"The full message is in {log}."
    if _OUT_OF_MEMORY.search(str(error)):
        return f"Give it more memory: --spark-conf spark.driver.memory=4g. {whole}"
    return whole
