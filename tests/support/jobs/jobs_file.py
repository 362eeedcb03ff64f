"""Jobs files of any text: what they declare, and the mistake that they hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec

from streambank.core.errors import InputError
from streambank.declaration.declaration import Declarations
from streambank.declaration.load import load_jobs
from tests.support.refuses import refuses

P = ParamSpec("P")


def declared_jobs(folder: Path, text: str, **variables: str) -> Declarations:
    """The jobs of a file, in which `${NAME}` stands for these variables."""
    file = folder / "streaming_jobs.toml"
    file.write_text(text, encoding="utf-8")
    return load_jobs(file, variables=variables)


def mistake(declare: Callable[P, object], *args: P.args, **named: P.kwargs) -> str:
    """The message and the hint of the mistake for which a declaration is refused."""
    with refuses(InputError, "bad-declaration") as caught:
        declare(*args, **named)
    return f"{caught.value.message} {caught.value.hint}"
