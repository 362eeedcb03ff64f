"""Options that know a few values: any other one is refused where it enters, and never read as the default."""

from __future__ import annotations

from collections.abc import Sequence

from streambank.errors import InputError


def check_choice(value: object, option: str, choices: Sequence[str]) -> str:
    """The value, if the option knows it.

    Args:
        value: What was given.
        option: The option's name.
        choices: What it knows, `get_args` of its `Literal`.

    Raises:
        InputError: It is none of them (code `bad-choice`).
    """
    if isinstance(value, str) and value in choices:
        return value
    raise InputError(
        f"{option} must be one of {', '.join(choices)}, not {value!r}.",
        code="bad-choice",
        hint=f"Choices of {option}: {', '.join(choices)}.",
    )
