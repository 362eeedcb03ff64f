"""What a calculation begins with, and where each value is from.

An option wins, then what the newest progress record of a job shows, then what the job declares, then a
default. What the application or a cluster's `spark-defaults.conf` sets is not known here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from streambank.advice.memory import say_mib
from streambank.core.errors import InputError
from streambank.core.units import spark_bytes
from streambank.declaration.declaration import Job
from streambank.doctor.checks.rocksdb import PREFIX
from streambank.doctor.spark_conf import MIB, SparkConf, conf_of

Origin = Literal["option", "progress", "job", "spark", "default"]
Unit = Literal["bytes", "count", "ratio", "switch"]
T = TypeVar("T", int, float, bool)


@dataclass(frozen=True, slots=True)
class Value:
    """A value, and where it is from.

    Attributes:
        origin: `option`, `progress` (the newest progress record), `job` (its declaration), `spark` (Spark's
            default) or `default` (that of the command).
        setting: Spark's setting of the same; None where there is none.
    """

    option: str
    value: float
    unit: Unit
    origin: Origin
    setting: str | None
    job: str | None

    @property
    def source(self) -> str:
        """Where it is from, for people."""
        if self.origin == "job":
            return f"{self.setting} of job {self.job}"
        if self.origin == "spark":
            return f"Spark's default of {self.setting}"
        return {
            "option": "the option",
            "progress": f"the newest progress record of job {self.job}",
            "default": "the default of this command",
        }[self.origin]

    @property
    def brief(self) -> str:
        """The same in a few words, beside the setting's name."""
        return {
            "spark": "Spark's default",
            "job": f"declared by job {self.job}",
            "option": "by the option",
        }.get(self.origin, self.source)

    @property
    def text(self) -> str:
        """The value with its unit, for people."""
        if self.unit == "switch":
            return "on" if self.value else "off"
        if self.unit == "bytes":
            return say_mib(int(self.value))
        return f"{self.value:,}" if self.unit == "count" else f"{self.value:g}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "option": self.option,
            "setting": self.setting,
            "value": int(self.value) if self.unit == "switch" else self.value,
            "unit": self.unit,
            "from": self.origin,
        }


@dataclass(frozen=True, slots=True)
class Spec(Generic[T]):
    """A value that an option, a job's settings, or a default may set.

    Attributes:
        setting: Spark's setting of the same; None where there is none.
        read: Reads the setting's text; None for a text by which Spark takes its default.
        expects: What the setting has to hold, for a message.
        of_spark: Whether `usual` is Spark's default rather than the command's.
    """

    option: str
    usual: T
    unit: Unit
    setting: str | None = None
    read: Callable[[str], T | None] | None = None
    expects: str = ""
    of_spark: bool = True


@dataclass(frozen=True, slots=True)
class DeclaredConf:
    """Spark's settings of a declared job."""

    job: str
    conf: SparkConf

    def text(self, setting: str) -> str | None:
        """The value of a setting; None where it is not declared.

        Spark ignores the case of RocksDB's names (`RocksDBConf`).
        """
        found = self.conf.declared.get(setting)
        if found is None and setting.startswith(PREFIX):
            lower = {name.lower(): value for name, value in self.conf.declared.items()}
            found = lower.get(setting.lower())
        return found

    def read(self, spec: Spec[T]) -> T | None:
        """What the job declares of a value; None where it does not.

        Raises:
            InputError: Spark could not read it, or would refuse it (code `bad-input`).
        """
        text = None if spec.setting is None else self.text(spec.setting)
        if text is None or spec.read is None:
            return None
        try:
            return spec.read(text.strip())
        except ValueError as error:
            raise InputError(
                f"{spec.setting} of job {self.job} is {text!r}, and has to hold {spec.expects}.",
                code="bad-input",
                hint=f"Correct it in [jobs.{self.job}.spark]"
                + (f", or give {spec.option}." if spec.option else "."),
            ) from error


def declared_by(job: Job) -> DeclaredConf:
    """Spark's settings of a job."""
    return DeclaredConf(job.name, conf_of(job))


@dataclass(slots=True)
class Values:
    """Takes each value from where it is set, and keeps where that was.

    Attributes:
        declared: The job's settings; None without a job.
    """

    declared: DeclaredConf | None
    found: list[Value] = field(default_factory=list)

    def take(self, spec: Spec[T], given: T | None, recorded: T | None = None) -> T:
        """The value: as given, as recorded, as the job declares it, or the default.

        Args:
            recorded: By the newest progress record.

        Raises:
            InputError: The job's setting cannot be read (code `bad-input`).
        """
        job = None if self.declared is None else self.declared.job
        if given is not None:
            return self._keep(spec, given, "option", None)
        if recorded is not None:
            return self._keep(spec, recorded, "progress", job)
        declared = None if self.declared is None else self.declared.read(spec)
        if declared is not None:
            return self._keep(spec, declared, "job", job)
        return self._keep(spec, spec.usual, "spark" if spec.of_spark else "default", None)

    def take_declared(self, spec: Spec[T]) -> T | None:
        """The value that the job declares; None, which is not kept, where it does not.

        Raises:
            InputError: The job's setting cannot be read (code `bad-input`).
        """
        if self.declared is None or (found := self.declared.read(spec)) is None:
            return None
        return self._keep(spec, found, "job", self.declared.job)

    def _keep(self, spec: Spec[T], value: T, origin: Origin, job: str | None) -> T:
        self.found.append(Value(spec.option, value, spec.unit, origin, spec.setting, job))
        return value


def count(text: str) -> int:
    """A whole number above 0."""
    return _whole(text, 1)


def count_or_default(text: str) -> int | None:
    """A whole number; 0 and below leave RocksDB's default."""
    found = _whole(text, None)
    return found if found > 0 else None


def mebibytes(text: str) -> int:
    """Bytes of a whole number of MiB above 0."""
    return _whole(text, 1) * MIB


def mebibytes_or_default(text: str) -> int | None:
    """The same; 0 and below leave RocksDB's default."""
    found = count_or_default(text)
    return None if found is None else found * MIB


def kibibytes(text: str) -> int:
    """Bytes of a whole number of KiB above 0."""
    return _whole(text, 1) * 1024


def size(text: str) -> int:
    """Bytes of a size such as `4g`; a number without a unit is in MiB, as of Spark's settings of memory."""
    found = spark_bytes(text, MIB)
    if not found:
        raise ValueError(text)
    return found


def switch(text: str) -> bool:
    """`true` or `false`."""
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def ratio(text: str) -> float:
    """A number from 0 to 1."""
    found = float(text)
    if not 0 <= found <= 1:  # NaN is neither
        raise ValueError(text)
    return found


def factor(text: str) -> float:
    """A number above 0."""
    found = float(text)
    if not (math.isfinite(found) and found > 0):
        raise ValueError(text)
    return found


def _whole(text: str, least: int | None) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text) or (least is not None and int(text) < least):
        raise ValueError(text)
    return int(text)
