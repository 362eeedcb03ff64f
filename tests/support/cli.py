"""The command line as tests call it: in this process, with its answer and its exit code."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streambank.cli.run import run


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command said and how it ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)


def streambank(*arguments: str | int | Path) -> Answer:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run([str(argument) for argument in arguments])
    return Answer(code, out.getvalue(), err.getvalue())


def succeed(*arguments: str | int | Path) -> Answer:
    answer = streambank(*arguments)
    assert answer.code == 0, answer
    return answer
