"""The one exception tree, grouped by what whoever catches it does next.

```
StreambankError        .code (stable)  .hint  .exit_code
├── InputError       2 fix the call (also ValueError)
├── NotFoundError    3 look elsewhere (also LookupError)
├── FormatError      4 unknown version or unparsable: upgrade or report
├── IntegrityError   5 not what was promised: use another savepoint
├── ConflictError    6 the world moved: re-plan, retry
├── StorageError     7 environment: back off, retry
├── RefusedError     8 would lose or repeat data, or a live owner: decide, ask again with the option named
└── InternalError   70 our bug
```

Conflict and storage errors may be retried; the others fail for good until somebody decides or repairs
something. Findings of `verify` and breaches of an SLA are data, never exceptions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeVar

C = TypeVar("C", bound=str)


class StreambankError(Exception):
    """Something a person should read: one sentence, and a hint that says what to do next.

    Attributes:
        code: Stable, append-only name of the failure, such as `batch-not-retained`; listed in docs/errors.md.
    """

    exit_code: ClassVar[int] = 70
    default_code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, code: str | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.code, self.hint))

    def to_dict(self) -> dict[str, str | int]:
        return {
            "error": self.code,
            "kind": type(self).__name__,
            "message": self.message,
            "hint": self.hint,
            "exit_code": self.exit_code,
        }


def _rebuild(kind: type[StreambankError], message: str, code: str, hint: str) -> StreambankError:
    return kind(message, code=code, hint=hint)


class InputError(StreambankError, ValueError):
    """The call itself is wrong: an option, a name, a declaration."""

    exit_code = 2
    default_code = "bad-input"


class NotFoundError(StreambankError, LookupError):
    """What was asked for is not there."""

    exit_code = 3
    default_code = "not-found"


class FormatError(StreambankError):
    """Bytes that cannot be understood, or a version or feature that is not known."""

    exit_code = 4
    default_code = "unknown-format"


class IntegrityError(StreambankError):
    """Bytes that are not the ones that were promised."""

    exit_code = 5
    default_code = "damaged"


class ConflictError(StreambankError):
    """Somebody else changed the same thing first, or the thing moved while it was read."""

    exit_code = 6
    default_code = "conflict"
    retryable = True


class StorageError(StreambankError):
    """The environment failed: a disk, a permission, a network, a service."""

    exit_code = 7
    default_code = "storage"
    retryable = True


class RefusedError(StreambankError):
    """Going on would lose or repeat data, or a live owner holds the job; the hint names the way to decide."""

    exit_code = 8
    default_code = "refused"


class InternalError(StreambankError):
    """A bug of ours."""

    exit_code = 70
    default_code = "internal"


def check_choice(value: object, option: str, choices: Sequence[C]) -> C:
    """The value, if the option knows it: any other one is refused, and never read as the default.

    Raises:
        InputError: It is none of them (code `bad-choice`).
    """
    for known in choices:
        if value == known:
            return known
    raise InputError(
        f"{option} must be one of {', '.join(choices)}, not {value!r}.",
        code="bad-choice",
        hint=f"Choices of {option}: {', '.join(choices)}.",
    )
