"""The forms of what rewrites state: compact, rescale, transform, bootstrap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from streambank.core.state_options import ExpireKeysOptions, PartOptions
from streambank.core.units import parse_duration_s
from streambank_airflow.dags.forms.fields import (
    END,
    PLACE,
    choice,
    form_of,
    optional,
    query_form,
    start_and_note,
)
from streambank_airflow.markdown import code

if TYPE_CHECKING:
    from streambank.declaration.state import BootstrapPolicy, CompactPolicy, TransformPolicy

EXISTING_CHOICES = {
    "refuse": "refuse - make no state if there are rows",
    "replace": "replace - all of them go",
    "keep": "keep - they stay, also where the table has their key",
    "overwrite": "overwrite - they stay, except where the table has their key",
}


def compact_form(queries: Sequence[str], declared: CompactPolicy) -> dict[str, Param]:
    """The form of `<job>.compact`."""
    where = _where(declared)
    names = ("idle_for_s", "operator", "part", "max_rows")
    idle_for_s = None if declared.idle_for is None else parse_duration_s(declared.idle_for)
    values = dict(zip(names, (idle_for_s, declared.operator, declared.part, declared.max_rows), strict=True))
    needed = {"idle_for_s": "One of this field and the one above is needed."} if where else {}
    dry_run = Param(
        declared.where is None and declared.idle_for is None,
        type="boolean",
        title="Only show what would be removed",
        description_md="Uses the newest savepoint; nothing is stopped. Switch it off to remove it, after "
        "an approval. It is off where the job declares what to remove.",
    )
    rules = form_of(ExpireKeysOptions, values, needed, asks_why=False, dry_run=dry_run)
    return {**_query(queries, declared.query), **where, **rules, **start_and_note()}


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
    """The form of `<job>.rescale`."""
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


def transform_form(queries: Sequence[str], declared: TransformPolicy) -> dict[str, Param]:
    """The form of `<job>.transform`."""
    any_of = declared.expressions == "any"
    of_job: list[str] = [*map(code, declared.sets)]
    of_job += [f"only where {code(declared.where)}"] if declared.where else []
    of_job += [f"delete keys where {code(declared.delete_where)}"] if declared.delete_where else []
    typed = {
        "sets": _expressions(
            declared.sets,
            "Set",
            "One `value.COLUMN = EXPRESSION` per line, such as `value.total = value.total * 100`: SQL over "
            "key and value of the row as it was.",
        ),
        "where": optional(
            declared.where,
            "Only rows where",
            "Set only rows for which this is true; `{now}` and `{watermark}` are times. Empty: all rows.",
        ),
        "delete_where": optional(
            declared.delete_where,
            "Delete keys where",
            "A key is deleted if this is true for all of its rows.",
        ),
    }
    return {
        **_query(queries, declared.query),
        **(typed if any_of else {}),
        "dry_run": Param(
            True,
            type="boolean",
            title="Only show what would change",
            description_md="Uses the newest savepoint; nothing is stopped. Switch it off to change it, after "
            "an approval." + ("" if any_of else f" The job declares: {', '.join(of_job)}."),
        ),
        **_rehearse(declared.rehearse),
        **start_and_note(),
        **(_part_of(declared) if any_of else {}),
    }


def bootstrap_form(queries: Sequence[str], declared: BootstrapPolicy) -> dict[str, Param]:
    """The form of `<job>.bootstrap`."""
    any_of = declared.expressions == "any"
    places = " or ".join(map(code, declared.tables))
    of_table = f" The job declares this SQL over it: {code(declared.sql)}." if declared.sql else ""
    column = "that is not named is the table's column of its name."
    return {
        **_query(queries, declared.query),
        "table": Param(
            declared.tables[0],
            type="string",
            examples=[*declared.tables],
            pattern=f"^{PLACE}{END}",
            title="Table",
            description_md=f"The table that becomes state: {places}, or a directory or file below.{of_table}",
        ),
        "existing": choice(
            declared.existing or "refuse",
            EXISTING_CHOICES,
            title="Rows that are there",
            description_md="What becomes of the rows that the state has now.",
        ),
        "dry_run": Param(
            True,
            type="boolean",
            title="Only check the table",
            description_md="Check it against the newest savepoint; nothing is stopped. Switch it off to make "
            "state of it, after an approval.",
        ),
        **_rehearse(declared.rehearse),
        **start_and_note(),
        **(
            {
                "keys": _expressions(
                    declared.keys,
                    "Key",
                    f"One `FIELD = EXPRESSION` per line over the columns of the table. A field {column}",
                    section="More",
                ),
                "values": _expressions(
                    declared.values,
                    "Value",
                    f"One `COLUMN = EXPRESSION` per line, likewise. A column {column}",
                    section="More",
                ),
                **_part_of(declared),
            }
            if any_of
            else {}
        ),
    }


def _query(queries: Sequence[str], declared: str | None) -> dict[str, Param]:
    query = query_form(queries)
    if declared is not None and query:
        query["query"].value = declared
    return query


def _expressions(declared: Sequence[str], title: str, description: str, **more: Any) -> Param:
    """Lines of SQL; in Airflow's form a text, in its API a list."""
    return Param(
        [*declared] or None,
        type=["null", "array"],
        items={"type": "string"},
        title=title,
        description_md=description,
        **more,
    )


def _rehearse(declared: bool) -> dict[str, Param]:
    return {
        "rehearse": Param(
            declared,
            type="boolean",
            title="Rehearse first",
            description_md="Before it is restored, run the job's own application on a copy of the new "
            "savepoint, as a drill does, while the job is stopped. If that fails, the job goes on as it was.",
        )
    }


def _part_of(declared: TransformPolicy | BootstrapPolicy) -> dict[str, Param]:
    of = {"operator": declared.operator, "part": declared.part}
    return form_of(PartOptions, of, asks_why=False)
