"""Requests to transform state, or to make it from a table; it loads without pyspark."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streambank.core.choices import TABLE_FORMATS
from streambank.core.errors import InputError
from streambank_spark.rewrite.rewrite_request import EXISTING, Planned, RewriteRequest
from streambank_spark.rewrite.validate_request import VALIDATE, Assignment, ValidateRequest

TRANSFORM = "transform"
BOOTSTRAP = "bootstrap"
FORMATS = TABLE_FORMATS
_MAPPED = re.compile(r"\s*(?P<path>\w+(?:\.\w+)*)\s*=(?!=)(?P<expression>.+)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformRequest:
    """Which columns of state get which values, and which keys go; JSON by the names of the attributes.

    Attributes:
        sets: What columns get, as `Assignment.parse` reads it.
        where: Which rows get it: SQL over key and value, with `{now}` and `{watermark}`; all for None.
        delete_where: Keys go for whose rows this is true, before anything is set.
        operator: Of which operator; may be left out where there is one.
        rehearse: A rehearsal of the new savepoint follows (`derive`).
        from_form: An expression was typed into a form: what Spark says of it is not repeated.
        planned: What a plan showed (`Planned`): if more keys would go, it is refused (`approval-outdated`).
    """

    operation: str = TRANSFORM
    sets: tuple[str, ...] = ()
    where: str | None = None
    delete_where: str | None = None
    operator: int | None = None
    part: str | None = None
    samples: int = 10
    dry_run: bool = False
    note: str = ""
    rehearse: bool = False
    from_form: bool = False
    planned: Mapping[str, Any] | None = None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TransformRequest:
        """From JSON.

        Raises:
            InputError: It is not valid (codes `usage`, `bad-expression`).
            RefusedError: A key would change (code `repair-key`).
        """
        request = cls(**{**data, "sets": tuple(data.get("sets") or ())})
        if not request.sets and request.delete_where is None:
            raise InputError(
                "transform needs something to set, or keys to delete.",
                code="usage",
                hint="Give an assignment such as value.total = value.total * 100, or a condition.",
            )
        if request.where is not None and not request.sets:
            raise InputError(
                "The condition names the rows that get new values, but nothing is set.",
                code="usage",
                hint="Give an assignment, or name the keys that go (delete where).",
            )
        request.assignments()
        Planned.of(request.planned)
        return request

    def assignments(self) -> list[Assignment]:
        """What columns get.

        Raises:
            InputError: One is not an assignment (code `bad-expression`).
            RefusedError: A key would change (code `repair-key`).
        """
        return [Assignment.parse(text, self.operator, self.part) for text in self.sets]


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapRequest:
    """Which state is made from which table; JSON by the names of the attributes.

    Attributes:
        format: Its format, one of `FORMATS`; by its name for None.
        query: SQL over the table, which is called `source` there; the table as it is for None.
        keys: Fields of the key, each `FIELD = EXPRESSION` over the columns of the table; other fields are
            the columns of their names.
        values: Columns of the value, likewise.
        existing: What becomes of rows that are there, one of `EXISTING`; refused for None.
        table_digest: What the table gave to a plan, as its report says: other rows are refused. None where
            there was no plan.
        operator: Of which operator; may be left out where there is one.
        rehearse: A rehearsal of the new savepoint follows (`derive`).
        from_form: An expression or the table was typed into a form: what Spark says of it is not repeated.
    """

    operation: str = BOOTSTRAP
    table: str
    format: str | None = None
    query: str | None = None
    keys: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    existing: str | None = None
    table_digest: str | None = None
    operator: int | None = None
    part: str | None = None
    samples: int = 10
    dry_run: bool = False
    note: str = ""
    rehearse: bool = False
    from_form: bool = False

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> BootstrapRequest:
        """From JSON.

        Raises:
            InputError: It is not valid (codes `usage`, `bad-expression`).
        """
        lists = {name: tuple(data.get(name) or ()) for name in ("keys", "values")}
        request = cls(**{**data, **lists})
        for given, known, what in (
            (request.format, FORMATS, "format of the table"),
            (request.existing, EXISTING, "choice for rows that are there"),
        ):
            if given is not None and given not in known:
                raise InputError(
                    f"{given} is not a {what}.", code="usage", hint=f"Use one of {', '.join(known)}."
                )
        mapped(request.keys)
        mapped(request.values)
        return request


def mapped(texts: Sequence[str]) -> dict[str, str]:
    """Fields and their expressions, from `FIELD = EXPRESSION`; a field in a field has a dot: `window.start`.

    Raises:
        InputError: One is not of that form, or a field is named twice (code `bad-expression`).
    """
    found: dict[str, str] = {}
    for text in texts:
        match = _MAPPED.fullmatch(text)
        if match is None or match["path"] in found:
            why = "names a field twice" if match else "does not say which field gets which expression"
            raise InputError(
                f"{text!r} {why}.", code="bad-expression", hint="Example: customer = upper(name)"
            )
        found[match["path"]] = match["expression"].strip()
    return found


Request = RewriteRequest | ValidateRequest | TransformRequest | BootstrapRequest
_KINDS: Mapping[str, Any] = {
    VALIDATE: ValidateRequest,
    TRANSFORM: TransformRequest,
    BOOTSTRAP: BootstrapRequest,
}


def request_of(data: Mapping[str, Any]) -> Request:
    """A request about a savepoint's state, from JSON; `operation` says which kind.

    Raises:
        InputError: It is not valid (code `usage`).
    """
    kind = _KINDS.get(str(data.get("operation")), RewriteRequest)
    try:
        request: Request = kind.from_dict(data)
    except TypeError as error:
        raise InputError(
            f"The request is not valid: {error}.", code="usage", hint="Give what the operation takes."
        ) from error
    return request
