"""What a `streambank` connection says, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from streambank.errors import InputError


@dataclass(frozen=True, slots=True)
class Settings:
    """The fields of a connection; each may be missing.

    Attributes:
        repository: Where savepoints are kept: a path or a URI.
        jobs_file: The `streaming_jobs.toml` for tasks that name none.
    """

    repository: str | None = None
    jobs_file: str | None = None

    @classmethod
    def from_extra(cls, conn_id: str, extra: Mapping[str, Any]) -> Settings:
        """The settings in a connection's extra.

        Raises:
            InputError: A field is unknown or no text (code `bad-connection`); its value is not repeated,
                since it could be a secret in the wrong place.
        """
        known = {field.name for field in fields(cls)}
        for name, value in extra.items():
            if name not in known:
                raise InputError(
                    f"The connection {conn_id} has a field {name!r} that nothing here knows.",
                    code="bad-connection",
                    hint=f"Its extra may hold: {', '.join(sorted(known))}.",
                )
            if value is not None and not isinstance(value, str):
                raise InputError(
                    f"The field {name!r} of the connection {conn_id} is to be a text.",
                    code="bad-connection",
                    hint="Write it in quotation marks in the connection's extra.",
                )
        return cls(**{name: value or None for name, value in extra.items()})
