"""Run a PySpark program as if Python had been started with it."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from streambank.core.errors import StreambankError
from streambank_spark.failures import say_error

INTERRUPTED = 130
"""Exit code of a program that Ctrl-C ended."""


def run(
    application: Path,
    arguments: Sequence[str],
    refused: Callable[[StreambankError], int] = lambda error: error.exit_code,
) -> int:
    """Run a program in this process, as its `__main__`, with its folder first on the path.

    The module stays `__main__` afterwards: a batch that is just finishing may still call its functions.

    Args:
        refused: The exit code where the runner refused something, and the program let that pass.

    Returns:
        The exit code that Python would have ended with; a traceback has been printed where Python prints one,
        and what the runner refused as a sentence and a hint.
    """
    module = ModuleType("__main__")
    module.__file__ = str(application)
    module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = module
    sys.argv = [str(application), *arguments]
    # `python app.py` puts the folder of app.py there; until now it is the folder of the entry script.
    sys.path[0] = str(application.resolve().parent)
    try:
        exec(compile(application.read_bytes(), str(application), "exec"), module.__dict__)
    except SystemExit as error:
        return _exit_code(error.code)
    except KeyboardInterrupt:
        traceback.print_exc()
        return INTERRUPTED
    except StreambankError as error:
        say_error(error)
        return refused(error)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    print(code, file=sys.stderr)
    return 1
