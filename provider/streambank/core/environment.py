"""`${NAME}` in a declaration: one grammar, wherever and whenever a value is looked up."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Callable, Mapping

_VARIABLE = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\$\{")
_WHOLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")

Mistake = Callable[[str, str], Exception]
"""What is wrong, and what to do about it, to the error that is raised."""


def fill_in(text: str, variables: Mapping[str, str], mistake: Mistake) -> str:
    """A text with its variables: `${NAME}`, `${NAME:-default}`; `$$` is a dollar sign.

    As in a shell the default also stands for a variable that is set but empty.

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
        if match[2] is not None:
            return variables.get(name) or match[2]
        if name not in variables:
            raise mistake(f"the environment variable {name} is not set", "Set it, or write the value.")
        return variables[name]

    return _VARIABLE.sub(one, text)


def check_variables(text: str, mistake: Mistake) -> None:
    """Make sure that a text can be filled in once its variables are set.

    Raises:
        Exception: What `mistake` gives, where `${` is not closed.
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
