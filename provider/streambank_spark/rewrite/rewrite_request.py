"""What of a savepoint's state is rewritten, and how: data, which loads without pyspark.

A verb reads its options before it is settled which PySpark its process imports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from streambank.core.choices import EXISTING_ROWS
from streambank.core.errors import InputError
from streambank.core.shape import JsonObject
from streambank.core.units import from_json_time

OPERATIONS = ("compact", "erase", "rescale", "migrate")
PROVIDERS = ("rocksdb",)
EXISTING = REPLACE, KEEP, OVERWRITE = EXISTING_ROWS
"""What becomes of rows where a table gives state: all go; those of a key in the table stay, or go."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What a plan showed, which is not exceeded: a condition over time is as it was then.

    Attributes:
        now: What `{now}` is, and from when on keys are idle; None for the time of the rewrite.
        watermark_ms: What `{watermark}` is at most.
        keys: How many keys of each operator go at most; None for a plan, which shows it.
    """

    now: datetime | None = None
    watermark_ms: int | None = None
    keys: Mapping[int, int] | None = None

    @classmethod
    def of(cls, data: Mapping[str, Any] | None) -> Planned:
        """From JSON.

        Raises:
            InputError: It is not valid (code `usage`).
        """
        given = dict(data or {})
        try:
            now, keys = given.get("now"), given.get("keys")
            return cls(
                None if now is None else from_json_time(str(now)),
                None if given.get("watermark_ms") is None else int(given["watermark_ms"]),
                None if keys is None else {int(one): int(number) for one, number in keys.items()},
            )
        except (AttributeError, TypeError, ValueError) as error:
            raise InputError(
                "The request is not valid: planned.",
                code="usage",
                hint="Give what a plan has left, as it is.",
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteRequest(JsonObject):
    """What is asked; JSON by `to_dict`.

    Attributes:
        where: Compact: keys go for whose rows this SQL expression holds.
        idle_since: Compact: keys go that have the same rows in this earlier savepoint.
        idle_for_s: Compact: the same, of the newest savepoint that is so many seconds older, or more.
        key: Erase: keys that have these fields go.
        partitions: Rescale: how many state partitions there are to be. Migrate: the same, besides.
        provider: Migrate: what is to keep the state, one of `PROVIDERS`.
        max_rows: So many rows go at most, of each operator.
        from_form: Somebody typed `where` into a form: what Spark says of it may carry data of the state, and
            is not repeated.
        planned: What a plan showed (`Planned`): more keys than that are refused (`approval-outdated`).
    """

    operation: str
    where: str | None = None
    idle_since: str | None = None
    idle_for_s: float | None = None
    key: str | None = None
    partitions: int | None = None
    provider: str | None = None
    operator: int | None = None
    part: str | None = None
    max_rows: int | None = None
    from_form: bool = False
    dry_run: bool = False
    note: str = ""
    planned: Mapping[str, Any] | None = None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RewriteRequest:
        """From what `to_dict` gave.

        Raises:
            InputError: It is no order (code `usage`).
        """
        unknown = set(data) - {one.name for one in fields(cls)}
        if unknown or data.get("operation") not in OPERATIONS:
            raise InputError(
                f"The request is not valid: {', '.join(sorted(unknown)) or data.get('operation')}.",
                code="usage",
                hint=f"The operation must be one of {', '.join(OPERATIONS)}.",
            )
        order = cls(**data)
        order.check()
        return order

    def check(self) -> None:
        """Make sure that it can be meant.

        Raises:
            InputError: It cannot (code `usage`).
        """
        Planned.of(self.planned)
        rules = [self.where, self.idle_since, self.idle_for_s, self.key, self.provider or self.partitions]
        given = sum(rule is not None for rule in rules)
        needs = {
            "compact": "a condition (where), a savepoint (idle since), or a time (idle for)",
            "erase": "a key",
            "rescale": "a number of partitions",
            "migrate": "the provider rocksdb",
        }
        migrates = self.operation == "migrate"
        if (
            given != 1
            or migrates is not (self.provider is not None)
            or self.provider not in (None, *PROVIDERS)
        ):
            raise InputError(
                f"{self.operation} needs {needs[self.operation]}, and nothing besides.",
                code="usage",
                hint="Give exactly one rule that says what to do.",
            )
        if (self.partitions is not None and self.partitions < 1) or (
            self.max_rows is not None and self.max_rows < 1
        ):
            raise InputError(
                "The number of partitions and the limit of rows must be at least 1.",
                code="usage",
                hint="Give a whole number above 0.",
            )
