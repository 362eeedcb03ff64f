"""Fields that several forms share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import Param

PRINTED = r"[^\x00-\x1f\x7f]"
"""One character that is printed."""
END = r"$(?!\n)"
"""The end of a text, in Python and in the browser: for Python, `$` is also before a last line break."""
NAME_PATTERN = r"(?!None$)[A-Za-z][A-Za-z0-9._\-]{0,99}"
"""How a savepoint may be called; what else could be a reference is refused when it is taken. A task takes
`None` for no name, so it is refused here."""
PLACE = rf"(/|[A-Za-z][A-Za-z0-9+.\-]*:/){PRINTED}*"
"""An absolute path or a URI: a relative path means nothing on a worker."""


def choice(default: str, choices: dict[str, str], **more: Any) -> Param:
    """One of a few answers, each with its explanation."""
    return Param(default, type="string", enum=list(choices), values_display=choices, **more)


def note() -> Param:
    """Why; every form has it."""
    return Param(
        None,
        type=["null", "string"],
        title="Note",
        description_md="The reason; kept with the records of this operation.",
        maxLength=1000,
    )


def query_form(queries: Sequence[str]) -> dict[str, Param]:
    """Which query, for jobs that have several; nothing for the others."""
    if not queries:
        return {}
    return {
        "query": Param(
            queries[0],
            type="string",
            enum=list(queries),
            title="Query",
            description_md="Which query of the job to work on.",
        )
    }


def start_and_note() -> dict[str, Param]:
    """Whether the job is started afterwards, and why all this."""
    return {
        "start": Param(
            True,
            type="boolean",
            title="Start afterwards",
            description_md="Start the job and wait for its first batch.",
        ),
        "note": note(),
    }


def optional(default: Any, title: str, description: str, kind: str = "string", **more: Any) -> Param:
    """An answer that may be left empty."""
    return Param(default, type=["null", kind], title=title, description_md=description, **more)
