"""How a program of ours that Spark runs says what went wrong: a sentence and a hint, no traceback."""

from __future__ import annotations

import sys

from streambank.core.errors import StreambankError


def say_error(error: StreambankError) -> int:
    """Say it.

    Returns:
        Its exit code.
    """
    print(f"streambank: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"streambank: {error.hint}", file=sys.stderr)
    return error.exit_code


def first_line(error: BaseException) -> str:
    """The first line of what Spark says of a failure, without the plan or the stack below it."""
    return str(error).strip().partition("\n")[0].strip()
