"""Whether a library failed because it lacks a right: the storage has refused the change, so none was made."""

from __future__ import annotations

import re

from streambank.core.errors import RefusedError

_NO_RIGHT = re.compile(
    r"lacked the necessary privileges"  # object_store (Rust), PermissionDenied
    r"|\bAccess_?Denied\b"  # S3 (XML), AWS SDK for C++ in Arrow
    r"|\bPermission denied\b",  # a file system
    re.IGNORECASE,
)


def lacks_right(error: BaseException) -> bool:
    """Whether an error says that the caller may not write there."""
    return isinstance(error, PermissionError) or _NO_RIGHT.search(str(error)) is not None


def no_right_to_roll_back(name: str, said: str) -> RefusedError:
    """The refusal of a rollback that storage or catalog does not allow; no secret may be in `said`."""
    return RefusedError(
        f"The {name} was not rolled back and is as it was: the right to change it is missing: {said}",
        code="sink-cannot-roll-back",
        hint="Give the user of the restore that right, then restore again; or use --sink accept.",
    )
