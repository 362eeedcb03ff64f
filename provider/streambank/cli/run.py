"""From arguments to an exit code: every failure is one sentence on stderr, with a hint under it.

Exit codes: 0 done, 1 ran and found problems, 2 to 8 and 70 by the kind of error (`streambank.errors`), 130
Ctrl-C, 143 asked to end. With `--json` a failure is the one JSON document on stdout, too.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from types import FrameType

import typer

from streambank.cli.app import app
from streambank.cli.console import MODE, OutputClosedError, write_document
from streambank.errors import InputError, InternalError, StreambankError

INTERRUPTED = 130
ENDED = 143
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # what every mistake in the arguments is


def run(arguments: Sequence[str]) -> int:
    """Run one command.

    Args:
        arguments: Everything after `streambank`.

    Returns:
        The exit code.
    """
    MODE.reset(arguments)
    before = signal.signal(signal.SIGTERM, _end)
    try:
        code = int(app(args=list(arguments), prog_name="streambank", standalone_mode=False) or 0)
        if code == INTERRUPTED:
            _say("Interrupted.")
        return code
    except _UsageError as error:
        return _fail(_usage_error(error))
    except StreambankError as error:
        return _fail(error)
    except typer.Abort:
        _say("Interrupted.")
        return INTERRUPTED
    except OutputClosedError:
        # Nothing more may be written, not even what Python flushes at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 0
    except Exception as error:
        return _fail(_bug(error))
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(number: int, frame: FrameType | None) -> None:
    """Turn TERM into an exception, so that a command asked to end leaves nothing half done."""
    raise SystemExit(ENDED)


def _fail(error: StreambankError) -> int:
    if MODE.json:
        write_document(error.to_dict())
    if MODE.debug:
        traceback.print_exception(error)
    _say(error.message)
    if error.hint:
        _say(f"hint: {error.hint}")
    return error.exit_code


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _usage_error(error: Exception) -> InputError:
    """A mistake in the arguments, in typer's words."""
    message = str(getattr(error, "format_message", error.__str__)()).strip().rstrip(".")
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "streambank"
    return InputError(f"{message}.", code="usage", hint=f"See `{command} --help`.")


def _bug(error: Exception) -> InternalError:
    bug = InternalError(
        f"Streambank failed in a way it should not: {type(error).__name__}: {error}",
        code="unexpected",
        hint="Run it again with --debug, and report what that shows.",
    )
    bug.__cause__ = error
    return bug
