"""From arguments to an exit code: every failure is one sentence on stderr, with a hint under it.

Exit codes: 0 done, 1 ran and found problems, 2 to 8 and 70 by the kind of error (`streambank.core.errors`),
130 Ctrl-C, 143 asked to end. With `--json` each of them but help is the one JSON document on stdout, too.
"""

from __future__ import annotations

import signal
import traceback
from collections.abc import Sequence
from functools import cache
from types import FrameType
from typing import Any

import typer
from typer.main import get_command

from streambank.cli.app import app
from streambank.cli.options import forget_jobs_file
from streambank.cli.output.console import (
    MODE,
    OutputClosedError,
    discard_output,
    log_shown,
    note,
    prepare_output,
    write_document,
)
from streambank.core.errors import InputError, InternalError, StreambankError
from streambank.core.last_read import last_read, reading

INTERRUPTED = 130
ENDED = 143
OUTPUT_NOT_WRITTEN = "output-not-written"
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # what every mistake in the arguments is


def run(arguments: Sequence[str]) -> int:
    """Run one command.

    Args:
        arguments: Everything after `streambank`.
    """
    MODE.reset(arguments)
    forget_jobs_file()
    reading(None)
    prepare_output()
    before = signal.signal(signal.SIGTERM, _end)
    try:
        with log_shown():
            return _run(arguments)
    except OutputClosedError:
        discard_output()
        return 0
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(arguments: Sequence[str]) -> int:
    try:
        _check_text(arguments)
        code = int(_command()(args=list(arguments), prog_name="streambank", standalone_mode=False) or 0)
        return _interrupted(code) if code == INTERRUPTED else code
    except _UsageError as error:
        return _fail(_usage_error(error, arguments))
    except StreambankError as error:
        return _fail(error)
    except (typer.Abort, KeyboardInterrupt):
        return _interrupted(INTERRUPTED)
    except OutputClosedError:
        raise
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0
        return _interrupted(code) if code == ENDED else code
    except Exception as error:
        return _fail(_bug(error))


@cache
def _command() -> Any:
    """Every verb with its options: who runs several commands, as the tests do, has them made once."""
    return get_command(app)


def _check_text(arguments: Sequence[str]) -> None:
    """Refuse what is not UTF-8: it could stand neither in a manifest nor in an answer.

    Raises:
        InputError: An argument is not (code `usage`).
    """
    for argument in arguments:
        if any("\ud800" <= character <= "\udfff" for character in argument):
            raise InputError(
                f"The argument {argument!r} is not UTF-8.",
                code="usage",
                hint="Use names in UTF-8, and a UTF-8 locale such as LC_ALL=C.UTF-8.",
            )


def _end(number: int, frame: FrameType | None) -> None:
    """Turn TERM into an exception, so that a command asked to end leaves nothing half done."""
    raise SystemExit(ENDED)


def _fail(error: StreambankError) -> int:
    if MODE.debug:
        traceback.print_exception(error)
    note(error.message)
    if error.hint:
        note(f"hint: {error.hint}")
    return _document(error.to_dict(), error.exit_code)


def _interrupted(code: int) -> int:
    """How a command ends that somebody ended: Ctrl-C, or TERM."""
    message = "Interrupted." if code == INTERRUPTED else "Terminated."
    note(message)
    told = {"error": "interrupted", "kind": "Interrupted", "message": message, "hint": ""}
    return _document({**told, "exit_code": code}, code)


def _document(told: dict[str, str | int], code: int) -> int:
    """The exit code, once the failure is the one JSON document where that is asked for."""
    if told["error"] == OUTPUT_NOT_WRITTEN:
        discard_output()  # stderr and the exit code have said it; Python may flush again at its exit
    elif MODE.json:
        try:
            write_document(told)
        except StreambankError:
            discard_output()
    return code


def _usage_error(error: Exception, arguments: Sequence[str]) -> InputError:
    """A mistake in the arguments, in typer's words; none at all, after which typer has shown the help.

    Args:
        error: What typer raised.
        arguments: Those of the command, since typer does not always say which command it is about.
    """
    message = str(getattr(error, "format_message", error.__str__)()).strip() or "Missing command"
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else _command_in(arguments)
    ended = message if message.endswith((".", "?")) else f"{message}."
    return InputError(ended, code="usage", hint=f"See `{command} --help`.")


def _command_in(arguments: Sequence[str]) -> str:
    """The command that arguments begin with, with its verbs."""
    words, group = ["streambank"], typer.main.get_command(app)
    for word in arguments:
        found = group.get_command(None, word) if hasattr(group, "get_command") else None
        if found is None:
            break
        words.append(word)
        group = found
    return " ".join(words)


def _bug(error: Exception) -> InternalError:
    file = last_read(error)
    where = f". The file that it read last: {file}" if file is not None else ""
    bug = InternalError(
        f"Streambank has a bug: {type(error).__name__}: {error}{where}",
        code="unexpected",
        hint="Run it again with --debug, and report what that shows.",
    )
    bug.__cause__ = error
    return bug
