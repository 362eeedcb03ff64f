"""Errors of Streambank as tests expect them: by class and stable code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from streambank.core.errors import StreambankError

Error = TypeVar("Error", bound=StreambankError)


@contextmanager
def refuses(
    kind: type[Error], code: str, *, match: str | None = None, hint: str = ""
) -> Iterator[pytest.ExceptionInfo[Error]]:
    """As `pytest.raises`, of an error with this code and these words in its hint."""
    with pytest.raises(kind, match=match) as caught:
        yield caught
    assert caught.value.code == code
    assert hint in caught.value.hint
