"""The forms of the generated DAGs: what a person may say when triggering one, with defaults that are right.

Optional answers are nullable, since Airflow's form asks for a text whose schema is a plain string. What
matters stands without a `section`, because the form keeps every named section closed. What a field means is
Markdown, which Airflow shows only where the field has no plain `description`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from streambank_airflow.choices import NEAREST
from streambank_airflow.markdown import code

if TYPE_CHECKING:
    from streambank.declaration.drill import DrillPolicy
    from streambank.declaration.savepoints import RestorePolicy
    from streambank.declaration.state import CompactPolicy

SINK_CHOICES = {
    "refuse": "refuse - ask in the approval if rows would be lost or repeated",
    "rollback": "rollback - set the output of later batches aside",
    "accept": "accept - leave the output as it is",
}
SOURCE_CHOICES = {
    "refuse": "refuse - ask in the approval if input is lost, unknown, or cannot be repeated",
    "accept": "accept - go on without it",
}
MODE_CHOICES = {
    "no-claim": "no-claim - the savepoint stays as it is",
    "claim": "claim - the job owns the savepoint from now on",
    "fork": "fork - it begins a second query with a new id, in a directory of its own",
}
_PRINTED = r"[^\x00-\x1f\x7f]"
_END = r"$(?!\n)"
NAME_PATTERN = r"[A-Za-z][A-Za-z0-9._\-]{0,99}"
"""How a savepoint may be called; what else could be a reference is refused when it is taken."""
"""The end of a text, in Python and in the browser: for Python, `$` is also before a last line break."""
_PLACE = rf"(/|[A-Za-z][A-Za-z0-9+.\-]*:/){_PRINTED}*"
"""An absolute path or a URI: a relative path means nothing on a worker."""
LEVEL_CHOICES = {
    "none": "none",
    "quick": "quick - every file exists, sizes match",
    "full": "full - every byte read and compared",
    "sampled": "sampled - the next share of all savepoints read and compared",
}
SITE_CHOICES = {
    "other": "other - the one that is not active",
    "standby": "standby",
    "primary": "primary",
}
DOWN_CHOICES = {
    "none": "none - a site that does not answer ends this",
    "primary": "primary - I know that it is down",
    "standby": "standby - I know that it is down",
}
BREACH_CHOICES = {
    "fail": "fail - the task fails",
    "warn": "warn - a warning in its log",
    "report": "report - only in the result",
}
LATER = {
    "replicate": ("Replicate", "After verification, copy to the replicas what they lack."),
    "expire": (
        "Expire",
        "Expire savepoints that the declared retention does not keep; if there are replicas, only in a run "
        "that replicates.",
    ),
    "expire_replicas": (
        "Expire in replicas",
        "In the replicas, expire savepoints that neither the repository lists nor the replicas' own declared "
        "retention keeps.",
    ),
    "sweep": ("Sweep", "Delete what no savepoint has needed for the grace period."),
}
"""What may follow the verifications: title and description."""


def _choice(default: str, choices: dict[str, str], **more: Any) -> Param:
    return Param(default, type="string", enum=list(choices), values_display=choices, **more)


def _note() -> Param:
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


def run_form() -> dict[str, Param]:
    """The form of `<job>.run`."""
    return {
        "note": _note(),
        "fresh_start": Param(
            False,
            type="boolean",
            title="Accept lost records",
            description_md=(
                "Only if a run has failed with repository-lost, and the repository is lost for good: start "
                "again without the job's records and savepoints. The records name who did so."
            ),
            section="Lost repository",
        ),
    }


def stop_form(force_after_s: float) -> dict[str, Param]:
    """The form of `<job>.stop`.

    Args:
        force_after_s: The job's own patience, in seconds.
    """
    return {
        "savepoint": Param(
            True,
            type="boolean",
            title="Take a savepoint",
            description_md="Once the driver has stopped, save the last committed batch.",
        ),
        "drain": Param(
            False,
            type="boolean",
            title="Work off the input first",
            description_md="Let the job process all that its sources hold now, then stop.",
        ),
        "force_after_s": Param(
            force_after_s,
            type="number",
            minimum=0,
            title="Force after (seconds)",
            description_md="How long the running batch may take before it is abandoned.",
        ),
        "note": _note(),
    }


def batch_field(query: str | None) -> str:
    """The field of `<job>.savepoint` for the batch of a query; None for the only one."""
    return f"batch_{query}" if query else "batch"


def savepoint_form(level: str, queries: Sequence[str] = (), *, later: Sequence[str] = ()) -> dict[str, Param]:
    """The form of `<job>.savepoint`.

    Args:
        level: How the scheduled runs verify.
        queries: The job's queries where it has several by name; each counts batches of its own.
        later: What follows the verifications, names in `LATER`; a run does it unless its form says no.
    """
    return {
        "note": _note(),
        "name": Param(
            None,
            type=["null", "string"],
            maxLength=100,
            pattern=rf"^({NAME_PATTERN})?{_END}",
            title="Name",
            description_md="A name that is unique within the job, such as `before-upgrade`, by which it can "
            "be restored. It does not keep the savepoint: the next field does.",
        ),
        "pin": Param(
            False,
            type="boolean",
            title="Keep until it is unpinned",
            description_md="Retention does not expire this savepoint before somebody unpins it.",
        ),
        "verify": _choice(
            level,
            LEVEL_CHOICES,
            title="Verification",
            description_md="What is compared with the manifest once the savepoint is taken.",
        ),
        **{
            name: Param(True, type="boolean", title=LATER[name][0], description_md=LATER[name][1])
            for name in later
        },
        **{
            batch_field(query): Param(
                None,
                type=["null", "integer"],
                minimum=0,
                title=f"Batch of {query}" if query else "Batch",
                description_md="An older batch that Spark still retains; empty: the last committed one.",
                section="More",
            )
            for query in (*queries,) or (None,)
        },
    }


def sla_form() -> dict[str, Param]:
    """The form of `<job>.sla`."""
    return {
        "on_breach": _choice("fail", BREACH_CHOICES, title="When something is broken"),
        "tell": Param(
            True,
            type="boolean",
            title="Send alerts",
            description_md="Alert the declared notifiers of what has changed since their last alert. A "
            "scheduled run does not repeat these alerts.",
        ),
        "skew": Param(
            True,
            type="boolean",
            title="Measure skew",
            description_md="Read from the state files: how unevenly the state is spread over partitions.",
            section="More",
        ),
        "doctor": Param(
            True,
            type="boolean",
            title="Look for problems ahead",
            description_md="In the task `doctor`.",
            section="More",
        ),
    }


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
        "idle_for": _optional(
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
        **_start_and_note(),
        "idle_since": _optional(
            None, "Remove keys idle since", "A savepoint instead of a time.", section="More"
        ),
        "operator": _optional(
            declared.operator, "Operator", "Only this stateful operator.", kind="integer", section="More"
        ),
        "part": _optional(
            declared.part,
            "Part",
            "Test only these rows: left or right of a join, or a state variable.",
            section="More",
        ),
        "max_rows": _optional(
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
            "where": _optional(
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
        **_start_and_note(),
    }


def _start_and_note() -> dict[str, Param]:
    return {
        "start": Param(
            True,
            type="boolean",
            title="Start afterwards",
            description_md="Start the job and wait for its first batch.",
        ),
        "note": _note(),
    }


ANY_PLACE = "nearest - the cheapest to read that has the savepoint undamaged"
DRILLED = {
    "latest-good": "latest-good - the newest that verifies",
    "random": "random - any that is kept",
}


def drill_form(queries: Sequence[str], drill: DrillPolicy, repositories: Sequence[str]) -> dict[str, Param]:
    """The form of `<job>.drill`.

    Args:
        queries: The job's queries where it has several by name: no savepoint is of all of them.
        drill: What the declaration says of drills.
        repositories: Where savepoints may come from, the usual place first.
    """
    return {
        "savepoint": _choice(
            drill.savepoint,
            DRILLED,
            title="Savepoint",
            description_md="Which savepoint of each query is restored.",
        )
        if queries
        else Param(
            drill.savepoint,
            type="string",
            minLength=1,
            examples=list(DRILLED),
            title="Savepoint",
            description_md="`latest-good` is the newest that verifies, `random` any that is kept. Or a "
            "time, for the newest from then or before; a batch (`batch:41`); a name; an id, or the beginning "
            "of one.",
        ),
        "repository": _choice(
            repositories[0],
            {one: one for one in repositories},
            title="Repository",
            description_md="Where the savepoint comes from: the job's repository, or a declared replica.",
        ),
        "batches": Param(
            drill.batches,
            type="integer",
            minimum=0,
            title="Batches to execute again",
            description_md="How many batches of the live query after the savepoint's the copy executes, for "
            "comparison.",
        ),
        "keep": Param(
            False,
            type="boolean",
            title="Keep the copy",
            description_md="Leave checkpoint, output and log of the copy, for a look. Delete them later.",
        ),
        "note": _note(),
    }


COMPARED = {
    "none": "none - differences are only reported",
    "counts": "counts - as many rows of input, state and output",
    "values": "values - the same rows, and the same state",
}


def upgrade_form(batches: int) -> dict[str, Param]:
    """The form of `<job>.upgrade`.

    Args:
        batches: How many batches of the live query the rehearsal executes again, by default.
    """
    return {
        "plan_only": Param(
            False,
            type="boolean",
            title="Only show what would change",
            description_md="Compare what runs with what is declared now, and do nothing.",
        ),
        "compare": _choice(
            "none",
            COMPARED,
            title="What has to be equal",
            description_md="What the new code has to compute as the old one did for the same batches, in the "
            "rehearsal. If it does not, the job stays as it is.",
        ),
        "watch": Param(
            "2m",
            type="string",
            minLength=1,
            title="Watch the new code for",
            description_md="A duration such as `10m`. If the new code does not get on, it is undone.",
        ),
        "batches": Param(
            batches,
            type="integer",
            minimum=0,
            title="Batches to execute again",
            description_md="How many batches of the live query the new code executes in the rehearsal.",
        ),
        "application": _optional(
            None,
            "Application",
            "Another application than the declared one, below its folder.",
        ),
        "args": _optional(
            None,
            "Arguments",
            "Other arguments than the declared ones, all of them: a JSON list of texts.",
            "array",
            items={"type": "string"},
        ),
        "conf": _optional(
            None,
            "Settings of Spark",
            "Over the declared ones, by name: of shuffles, adaptive execution, streaming, memory and cores.",
            "object",
        ),
        "unrehearsed": Param(
            False,
            type="boolean",
            title="Go on without a rehearsal",
            description_md="Go on although the rehearsal could not run the new code (`foreachBatch`).",
        ),
        "no_way_back": Param(
            False,
            type="boolean",
            title="Go on without a way back",
            description_md="Go on although the upgrade could not be undone by itself.",
        ),
        "note": _note(),
    }


def failover_form(sink: str, source: str) -> dict[str, Param]:
    """The form of `<job>.failover`.

    Args:
        sink: What the declaration says of output that is newer than the savepoint.
        source: What it says of input that cannot be read again.
    """
    return {
        "to": _choice(
            "other",
            SITE_CHOICES,
            title="Site",
            description_md="The site at which the job goes on.",
        ),
        "is_down": _choice(
            "none",
            DOWN_CHOICES,
            title="A site that is down",
            description_md="Only if a site does not answer, and you **know** that no driver of the job runs "
            "there. If one does, two drivers write to every sink that both sites share, until the site "
            "answers again. The records name who said so.",
        ),
        "sink": _choice(
            sink,
            {**SINK_CHOICES, "refuse": "refuse - fail if rows would be lost or repeated"},
            title="Output written after the savepoint",
            description_md="There is none after a last savepoint of the site that was active.",
        ),
        "note": _note(),
        "final_savepoint": Param(
            True,
            type="boolean",
            title="Last savepoint",
            description_md="Fail if the site that was active answers, and cannot give a last savepoint. If "
            "off, the job goes on from the newest one there is.",
            section="More",
        ),
        "source": _choice(
            source,
            {**SOURCE_CHOICES, "refuse": "refuse - fail if input is lost, unknown, or cannot be repeated"},
            title="Input that cannot be read again",
            section="More",
        ),
    }


def _optional(default: Any, title: str, description: str, kind: str = "string", **more: Any) -> Param:
    return Param(default, type=["null", kind], title=title, description_md=description, **more)


def _places(below: Sequence[str] | None, other: str) -> str:
    """Where a directory may be, for people."""
    if below is None:
        return f"beside {other}"
    return f"below {' or '.join(map(code, below))}" if below else "(the job allows none)"


def restore_form(
    queries: Sequence[str], restore: RestorePolicy, repositories: Sequence[str] = ()
) -> dict[str, Param]:
    """The form of `<job>.restore`.

    Args:
        queries: The job's queries where it has several by name.
        restore: What the declaration says of restores.
        repositories: Where savepoints may come from, the usual place first; no field for fewer than two.
    """
    return {
        **query_form(queries),
        "savepoint": Param(
            "latest-good",
            type="string",
            minLength=1,
            examples=["latest-good", "latest", "03:00", "2026-11-26T03:00", "batch:41", "before-upgrade"],
            title="Savepoint",
            description_md="`latest-good` is the newest that verifies, `latest` the newest of all. Or a "
            "time, for the newest from then or before (in the zone of the job); a batch (`batch:41`); the "
            "name that it was given; an id, or the beginning of one, as `streambank list` and the tasks "
            "`take` show them.",
        ),
        "sink": _choice(
            restore.sink,
            SINK_CHOICES,
            title="Output written after the savepoint",
            description_md="The plan, shown before anything happens, says what this means here.",
        ),
        "stop_running": Param(
            False,
            type="boolean",
            title="Stop the job if it runs",
            description_md="If off, the approval asks before a running job is stopped.",
        ),
        "start": Param(
            True,
            type="boolean",
            title="Start afterwards",
            description_md="Start the job from the restored state and wait for its first batch.",
        ),
        "note": _note(),
        **(
            {
                "repository": _choice(
                    repositories[0],
                    {one: one if one != NEAREST else ANY_PLACE for one in repositories},
                    title="Repository",
                    description_md="Where the savepoint comes from. Afterwards savepoints go on in the job's "
                    "own repository.",
                    section="More",
                )
            }
            if len(repositories) > 1
            else {}
        ),
        "source": _choice(
            restore.source,
            SOURCE_CHOICES,
            title="Input that cannot be read again",
            description_md="The plan says which records, if any.",
            section="More",
        ),
        "mode": _choice(
            "no-claim",
            MODE_CHOICES,
            title="What becomes of the savepoint",
            description_md="A savepoint that the job owns may expire like any other of the job. A fork needs "
            "the field below.",
            section="More",
        ),
        "into": _optional(
            None,
            "Directory to restore into",
            f"An empty directory {_places(restore.into, 'the checkpoint')} instead of the job's next "
            "generation. The job is neither stopped nor started for it; a fork may be restored while it "
            "runs.",
            pattern=f"^({_PLACE})?{_END}",
            section="More",
        ),
        "sink_of": Param(
            None,
            type=["null", "array"],
            items={"type": "string", "pattern": f"^([ \\t]*|{_PRINTED}+=({'|'.join(SINK_CHOICES)})){_END}"},
            title="Single sinks",
            description_md="One SINK=CHOICE per line, for a sink with which something else is done than with "
            "the others: the path that the plan shows, and `rollback`, `accept` or `refuse`.",
            section="More",
        ),
        "new_sinks": Param(
            None,
            type=["null", "array"],
            items={"type": "string", "pattern": f"^([ \\t]*|{_PRINTED}+={_PLACE}){_END}"},
            title="New output directories",
            description_md="One OLD=NEW per line: the query writes to the new directory NEW, "
            f"{_places(restore.new_outputs, 'OLD')}, instead of the file sink OLD. Declare NEW for the job "
            "as well, before it starts again.",
            section="More",
        ),
    }
