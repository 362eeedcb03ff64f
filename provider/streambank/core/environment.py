"""`${NAME}` in a declaration: one grammar, wherever and whenever a value is looked up."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Callable, Mapping

from streambank.core.errors import InputError

_NAME = r"[A-Za-z_][A-Za-z0-9_]*|(?:var|conn):[A-Za-z0-9_][A-Za-z0-9_.-]*"
_VARIABLE = re.compile(r"\$\$|\$\{(" + _NAME + r")(?::-([^}]*))?\}|\$\{")
_WHOLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")

Mistake = Callable[[str, str], Exception]
"""What is wrong, and what to do about it, to the error that is raised."""


def fill_in(text: str, variables: Mapping[str, str], mistake: Mistake) -> str:
    """A text with its variables: `${NAME}`, `${NAME:-default}`; `$$` is a dollar sign.

    As in a shell the default also stands for a variable that is set but empty. `${var:NAME}` and
    `${conn:ID.FIELD}` are values of Airflow's, which only `variables` with a method `look_up` knows.

    Raises:
        Exception: What `mistake` gives, where a variable is not set or `${` is not closed. It is never told
            the text, which may hold a secret.
    """

    def one(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        name = match[1]
        if name is None:
            raise mistake("'${' does not begin a variable", "Write ${NAME}, or $$ for a dollar sign.")
        value = _of_airflow(name, variables, mistake) if ":" in name else variables.get(name)
        if match[2] is not None:
            return value or match[2]
        if value is None:
            what = f"the environment variable {name}" if ":" not in name else f"{name} of Airflow"
            raise mistake(f"{what} is not set", "Set it, or write the value.")
        return value

    return _VARIABLE.sub(one, text)


def _of_airflow(name: str, variables: Mapping[str, str], mistake: Mistake) -> str | None:
    look_up: Callable[[str], str | None] | None = getattr(variables, "look_up", None)
    if look_up is None:
        hint = "Take it from a variable of the environment where something else reads it, too: ${NAME}."
        raise mistake(f"{name} is a value of Airflow, and only Airflow can read it", hint)
    try:
        return look_up(name)
    except InputError as error:
        raise mistake(error.message.rstrip("."), error.hint) from error


def check_variables(text: str, mistake: Mistake) -> None:
    """Make sure that a text can be filled in once its variables are set.

    Raises:
        Exception: What `mistake` gives, where `${` is not closed, or a variable is none of the environment.
    """
    named = (match[1] for match in _VARIABLE.finditer(text) if match[1] is not None)
    fill_in(text, dict.fromkeys(named, ""), mistake)


def is_variable(text: str) -> bool:
    """Whether a text is taken whole from the environment, and has no default: `${NAME}`."""
    return _WHOLE.fullmatch(text) is not None


def user_name() -> str:
    """The user's name; the number, where it has none, as in many containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
