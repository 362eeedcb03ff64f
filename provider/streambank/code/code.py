"""What a driver runs: its program, arguments, settings and Spark; and in what two of them differ."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from streambank.code.program import PY_FILES, Program, read_program
from streambank.core.shape import JsonObject, decode
from streambank.core.units import say_count
from streambank.declaration.declaration import Job


@dataclass(frozen=True, slots=True)
class Code(JsonObject):
    """What a job declares, or a driver was launched with.

    Attributes:
        spark: Spark's settings. Credentials are none of them: a declaration refuses them.
        python: The interpreter; None for the one that Streambank itself runs in, which is the default.
        spark_home: The distribution of Spark; None for the PySpark of the interpreter.
    """

    application: str
    args: tuple[str, ...]
    spark: Mapping[str, str]
    python: str | None = None
    spark_home: str | None = None
    program: str | None = None

    @classmethod
    def of(cls, job: Job, program: Program | None) -> Code:
        return cls(
            job.application,
            job.args,
            dict(job.spark),
            job.named_python,
            job.named_spark_home,  # what only its connection says is not the job's own
            None if program is None else program.digest,
        )

    @classmethod
    def declared(cls, job: Job) -> Code:
        return cls.of(job, read_program(job.application, job.spark))

    @property
    def identity(self) -> str:
        """A digest: the same code has the same, wherever its program is."""
        said = self.to_dict()
        if self.program is not None:
            # A program is known by what is in it: a deployment may bring it to another path.
            said["application"] = None
            said["spark"] = {name: value for name, value in self.spark.items() if name != PY_FILES}
        return f"sha256:{hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()}"

    @property
    def identity_unread(self) -> str:
        """What `identity` is where the program cannot be read: by its path."""
        return replace(self, program=None).identity

    def applied(self, job: Job) -> Job:
        return replace(
            job,
            application=self.application,
            args=self.args,
            spark=dict(self.spark),
            python=self.python or sys.executable,
            named_python=self.python,
            spark_home=self.spark_home if self.spark_home or self.python else job.launch.spark_home,
            named_spark_home=self.spark_home,
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Code:
        """From what `to_dict` gave.

        Raises:
            FormatError: Something is missing or of another kind (code `damaged-record`).
        """
        return decode(
            cls,
            data,
            "record of a job's code",
            hint="It was cut off or edited. Start the job with the code that its jobs file declares.",
        )


def differences(before: Code, after: Code) -> list[str]:
    """In what two codes differ, for people. Values are not named: arguments and settings may be private."""
    return list(_differences(before, after))


def _differences(before: Code, after: Code) -> Iterator[str]:
    if before.program is None or after.program is None:
        if before.application != after.application:
            yield f"the application is {after.application}, and was {before.application}"
        else:
            yield f"whether {after.application} has changed is not known"
    elif before.program != after.program:
        where = "" if before.application == after.application else f" in {before.application}"
        now, then = _short(after.program), _short(before.program)
        yield f"the program in {after.application} is {now}, and was {then}{where}"
    if before.args != after.args:
        yield _arguments(before.args, after.args)
    names = sorted({*before.spark, *after.spark} - {PY_FILES})
    for name in names:
        if before.spark.get(name) != after.spark.get(name):
            gone, new = name not in after.spark, name not in before.spark
            yield f"the setting {name} is {'gone' if gone else 'new' if new else 'another'}"
    for what, old, new_place in (
        ("interpreter", before.python, after.python),
        ("distribution of Spark", before.spark_home, after.spark_home),
    ):
        if old != new_place:
            yield f"the {what} is {new_place or 'the default one'}, and was {old or 'the default one'}"


def _arguments(before: tuple[str, ...], after: tuple[str, ...]) -> str:
    if len(before) != len(after):
        return f"there are {say_count(len(after), 'argument')}, and were {len(before)}"
    numbers = [str(at) for at, (old, new) in enumerate(zip(before, after, strict=True), 1) if old != new]
    if len(numbers) == 1:
        return f"argument {numbers[0]} is another"
    return f"arguments {', '.join(numbers)} are others"


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:12]
