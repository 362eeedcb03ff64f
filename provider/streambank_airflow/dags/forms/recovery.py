"""The forms of what brings a job back, copies or rehearses it: restore, refresh, drill, failover, upgrade."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow.sdk import Param

from streambank.core.verb_options import DrillOptions, FailoverOptions, RefreshOptions, UpgradeOptions
from streambank_airflow.choices import ALL_QUERIES, DECLARED, NEAREST
from streambank_airflow.dags.forms.fields import (
    END,
    PLACE,
    PRINTED,
    choice,
    form_of,
    note,
    optional,
)
from streambank_airflow.markdown import code

if TYPE_CHECKING:
    from streambank.declaration.drill import DrillPolicy
    from streambank.declaration.savepoints import RestorePolicy

SINK_CHOICES = {
    "refuse": "refuse - ask in the approval if rows would be lost or repeated",
    "rollback": "rollback - set the output of later batches aside",
    "rollback-accept": "rollback-accept - the same, and go on without older output files that are gone",
    "accept": "accept - leave the output as it is",
}
SOURCE_CHOICES = {
    "refuse": "refuse - ask in the approval if input is lost, unknown, or cannot be repeated",
    "accept": "accept - go on without it",
}
MODE_CHOICES = {
    "no-claim": "no-claim - the savepoint stays as it is",
    "claim": "claim - the job owns the savepoint from now on",
    "fork": "fork - it begins a second query with a new id, in another directory",
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
ANY_PLACE = "nearest - the cheapest to read that has the savepoint undamaged"
DRILLED = {
    "latest-good": "latest-good - the newest that verifies",
    "random": "random - any that is kept",
    "each": "each - all that are kept, one after the other",
}


def refresh_form(repositories: Sequence[str], source: str) -> dict[str, Param]:
    """The form of `<job>.refresh.<copy>`.

    Args:
        repositories: Where savepoints may come from, `declared` first.
        source: What the copy declares for input that cannot be read again.
    """
    shown = {NEAREST: ANY_PLACE, DECLARED: "as the copy declares"}
    repository = choice(
        repositories[0],
        {one: shown.get(one, one) for one in repositories},
        title="Repository",
        description_md="Where the savepoint comes from: what the copy declares, the job's repository, or a "
        "declared replica.",
    )
    return form_of(RefreshOptions, {"source": source}, repository=repository)


def drill_form(queries: Sequence[str], drill: DrillPolicy, repositories: Sequence[str]) -> dict[str, Param]:
    """The form of `<job>.drill`.

    Args:
        queries: The job's queries where it has several by name: no savepoint is of all of them.
        drill: What the declaration says of drills.
        repositories: Where savepoints may come from, the usual place first.
    """
    savepoint = (
        choice(
            drill.savepoint,
            DRILLED,
            title="Savepoint",
            description_md="Which savepoint of each query is restored. `each` drills all that are kept: "
            "together those that were taken closest to each other.",
        )
        if queries
        else Param(
            drill.savepoint,
            type="string",
            minLength=1,
            examples=list(DRILLED),
            title="Savepoint",
            description_md="`latest-good` is the newest that verifies, `random` any that is kept, `each` all "
            "of them, one drill after the other. Or a time, for the newest from then or before; a batch "
            "(`batch:41`); a name; an id, or the beginning of one.",
        )
    )
    declared = {name: getattr(drill, name) for name in ("batches", "limit", "time_limit_s")}
    repository = choice(
        repositories[0],
        {one: one for one in repositories},
        title="Repository",
        description_md="Where the savepoint comes from: the job's repository, or a declared replica.",
    )
    return form_of(DrillOptions, declared, savepoint=savepoint, repository=repository)


def upgrade_form(batches: int, applications: Sequence[str] | None = None) -> dict[str, Param]:
    """The form of `<job>.upgrade`.

    Args:
        batches: How many batches of the live query the rehearsal executes again, by default.
        applications: Which applications may be named, as declared; None for those beside the declared one.
    """
    named = (
        "a Python program in the same folder."
        if applications is None
        else f"what {', '.join(map(code, applications)) or 'nothing'} names from its folder."
    )
    return form_of(UpgradeOptions, {"batches": batches}, {"application": f"By its absolute path: {named}"})


def failover_form(sink: str, source: str) -> dict[str, Param]:
    """The form of `<job>.failover`.

    Args:
        sink: What the declaration says of output that is newer than the savepoint.
        source: What it says of input that cannot be read again.
    """
    to = choice("other", SITE_CHOICES, title="Site", description_md="The site at which the job goes on.")
    is_down = choice(
        "none",
        DOWN_CHOICES,
        title="A site that is down",
        description_md="Only if a site does not answer, and you **know** that no driver of the job runs "
        "there. If one does, two drivers write to every sink that both sites share, until the site "
        "answers again. The records name who said so.",
    )
    return form_of(FailoverOptions, {"sink": sink, "source": source}, to=to, is_down=is_down)


def _places(below: Sequence[str] | None, other: str) -> str:
    """Where a directory may be, for people."""
    if below is None:
        return f"beside {other}"
    return f"below {' or '.join(map(code, below))}" if below else "(the job allows none)"


def _restored_queries(queries: Sequence[str]) -> dict[str, Param]:
    """Which queries of a job with several; nothing for the others."""
    if not queries:
        return {}
    return {
        "query": choice(
            ALL_QUERIES,
            {ALL_QUERIES: "all of them - as one, to savepoints that belong together"}
            | {query: f"{query} - the others go on from where they are" for query in queries},
            title="Query",
            description_md="Which queries of the job are restored. A directory, a fork and new outputs need "
            "one query; so do an id and a batch as *Savepoint*.",
        )
    }


def restore_form(
    queries: Sequence[str], restore: RestorePolicy, repositories: Sequence[str] = ()
) -> dict[str, Param]:
    """The form of `<job>.restore`.

    Args:
        restore: What the declaration says of restores.
        repositories: Where savepoints may come from, the usual place first; no field for fewer than two.
    """
    return {
        **_restored_queries(queries),
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
        "sink": choice(
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
        "note": note(),
        **(
            {
                "repository": choice(
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
        "source": choice(
            restore.source,
            SOURCE_CHOICES,
            title="Input that cannot be read again",
            description_md="The plan says which records, if any.",
            section="More",
        ),
        "mode": choice(
            "no-claim",
            MODE_CHOICES,
            title="What becomes of the savepoint",
            description_md="A savepoint that the job owns may expire like any other of the job. A fork needs "
            "the field below.",
            section="More",
        ),
        "into": optional(
            None,
            "Directory to restore into",
            f"An empty directory {_places(restore.into, 'the checkpoint')} instead of the job's next "
            "generation. The job is neither stopped nor started for it; a fork may be restored while it "
            "runs.",
            pattern=f"^({PLACE})?{END}",
            section="More",
        ),
        "sink_of": Param(
            None,
            type=["null", "array"],
            items={"type": "string", "pattern": f"^([ \\t]*|{PRINTED}+=({'|'.join(SINK_CHOICES)})){END}"},
            title="Single sinks",
            description_md="One SINK=CHOICE per line, for a sink with which something else is done than with "
            "the others: the path that the plan shows, and `rollback`, `rollback-accept`, `accept` "
            "or `refuse`.",
            section="More",
        ),
        "new_sinks": Param(
            None,
            type=["null", "array"],
            items={"type": "string", "pattern": f"^([ \\t]*|{PRINTED}+={PLACE}){END}"},
            title="New output directories",
            description_md="One OLD=NEW per line: the query writes to the new directory NEW, "
            f"{_places(restore.new_outputs, 'OLD')}, instead of the file sink OLD. Declare NEW for the job "
            "as well, before it starts again.",
            section="More",
        ),
    }
