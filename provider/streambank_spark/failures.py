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
