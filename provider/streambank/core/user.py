"""Whose process this is, for the records of who did what."""

from __future__ import annotations

import getpass
import os


def user_name() -> str:
    """The user's name; the number, where it has none, as in many containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
