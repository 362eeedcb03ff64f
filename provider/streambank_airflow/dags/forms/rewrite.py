"""The forms of what rewrites state: compact, rescale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow.sdk import Param

from streambank_airflow.dags.forms.fields import (
    optional,
    query_form,
    start_and_note,
)
from streambank_airflow.markdown import code

if TYPE_CHECKING:
    from streambank.declaration.state import CompactPolicy

COMPACT_FIELDS = ("where", "idle_for", "idle_since", "operator", "part", "max_rows")
"""The fields of `<job>.compact` that say what goes."""


def compact_form(queries: Sequence[str], declared: CompactPolicy) -> dict[str, Param]:
    """The form of `<job>.compact`.

    Args:
        queries: The job's queries where it has several by name.
        declared: What the declaration says of it.
    """
    query = query_form(queries)
    if declared.query is not None and query:
        query["query"].value = declared.query
    where = _where(declared)
    return {
        **query,
        **where,
        "idle_for": optional(
            declared.idle_for,
            "Remove keys idle for",
            "Remove keys unchanged since the newest savepoint that is at least this old, for example `30d`."
            + (" One of this field and the one above is needed." if where else ""),
        ),
        "dry_run": Param(
            declared.where is None and declared.idle_for is None,
            type="boolean",
            title="Only show what would be removed",
            description_md="Uses the newest savepoint; nothing is stopped. Switch it off to remove it, after "
            "an approval. It is off where the job declares what to remove.",
        ),
        **start_and_note(),
        "idle_since": optional(
            None, "Remove keys idle since", "A savepoint instead of a time.", section="More"
        ),
        "operator": optional(
            declared.operator, "Operator", "Only this stateful operator.", kind="integer", section="More"
        ),
        "part": optional(
            declared.part,
            "Part",
            "Test only these rows: left or right of a join, or a state variable.",
            section="More",
        ),
        "max_rows": optional(
            declared.max_rows,
            "Maximum rows",
            "Remove at most this many rows of each operator in this run.",
            kind="integer",
            section="More",
        ),
    }


def _where(declared: CompactPolicy) -> dict[str, Param]:
    """The condition: a text where the job allows any, yes or no where it declares one."""
    if declared.expressions == "any":
        return {
            "where": optional(
                declared.where,
                "Remove keys where",
                "SQL over the columns of key and value, such as `value.seen < {now} - interval 30 days`; a "
                "key is removed if this is true for all of its rows. `{watermark}` is the query's watermark.",
            )
        }
    if declared.where is None:
        return {}
    return {
        "where": Param(
            True,
            type="boolean",
            title="Remove keys by the declared condition",
            description_md=f"The job declares {code(declared.where)}; a key is removed if this is true for "
            'all of its rows. A form takes another condition only if the job declares `expressions = "any"`.',
        )
    }


def rescale_form(queries: Sequence[str]) -> dict[str, Param]:
    """The form of `<job>.rescale`.

    Args:
        queries: The job's queries where it has several by name.
    """
    return {
        **query_form(queries),
        "partitions": Param(
            type="integer",
            minimum=1,
            title="Partitions",
            description_md="The new number of state partitions.",
        ),
        "dry_run": Param(
            False,
            type="boolean",
            title="Only check",
            description_md="Check whether the newest savepoint can be rescaled; nothing is stopped.",
        ),
        **start_and_note(),
    }
