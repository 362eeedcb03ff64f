"""From the command line of `run_query.py` to its exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from streambank.core.errors import StreambankError
from streambank_spark.failures import say_error
from streambank_spark.runner import signals


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the arguments name.

    Returns:
        The exit code: the application's own, or that of the error (errors.py), which stderr shows as a
        sentence and a hint.
    """
    # Before any other thread is there, so before pyspark is imported.
    signals.block_term()
    from streambank_spark.runner import arguments, runner
    from streambank_spark.runner import superseded as wanted

    spec = None
    try:
        spec = arguments.parse(list(sys.argv[1:] if argv is None else argv))
        return runner.run(spec)
    except StreambankError as error:
        code = say_error(error)
        if spec is None:
            return code
        try:
            return wanted.exit_code(spec, error)
        except StreambankError as later:
            return say_error(later)
