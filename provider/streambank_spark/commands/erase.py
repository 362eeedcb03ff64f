"""`state erase`: a savepoint without what is kept of one key, and where else that key still is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streambank.cli.options import jobs_option
from streambank.cli.output import console
from streambank.core.errors import NotFoundError, StreambankError
from streambank.core.options import Option
from streambank.core.state_options import EraseOptions
from streambank_spark.commands.rewrite import Done, DryRun, Note, carried_out, show
from streambank_spark.commands.subject import SavepointSubject, SparkOptions

if TYPE_CHECKING:
    from streambank.declaration.declaration import Declarations, Job

EXAMPLES = """Examples:

  streambank state erase b000041 -r /data/savepoints --key '{"customer": "c-17"}'

  streambank state erase b000041 -r /data/savepoints --key c-17 --replica s3://backups/streambank
"""


def erase(
    subject: SavepointSubject,
    key: Annotated[
        str,
        Option("The key's only field as text, or some of its fields as a JSON object.", metavar="KEY"),
    ],
    options: EraseOptions,
    spark: SparkOptions,
    jobs: Annotated[
        str | None, jobs_option("The file that declares the job, to find its replicas and generations.")
    ] = None,
    no_search: Annotated[bool, Option("Do not look for the key in other savepoints.")] = False,
    dry_run: DryRun = False,
    note: Note = "",
) -> None:
    """Make a savepoint without the state of one key, and list what still holds the key."""
    from streambank.declaration.load import load_jobs
    from streambank_spark.rewrite.rewrite_request import RewriteRequest

    declared = load_jobs(jobs) if jobs is not None and not no_search else None
    order = RewriteRequest(operation="erase", key=key, operator=options.operator, dry_run=dry_run, note=note)
    with carried_out(order, subject, spark) as done:
        from streambank_spark.rewrite.key_locations import not_searched

        document = done.to_dict()
        if no_search:
            document |= not_searched("--no-search was given")
        else:
            try:
                document |= _search(done, options.replicas, declared)
            except StreambankError as error:  # the savepoint is there, whatever became of the search
                document |= not_searched(error.message)
    console.answer(document, lambda: _show(done, document))
    if not document["searched"] and not no_search:
        raise typer.Exit(1)


def _search(done: Done, replicas: Sequence[str], jobs: Declarations | None) -> dict[str, Any]:
    from streambank.cleaning.left_directories import left_directories
    from streambank.core.names import QueryRef
    from streambank_spark.rewrite.expiry import KeySelection
    from streambank_spark.rewrite.key_locations import search
    from streambank_spark.rewrite.key_places import live_places

    repository, job = done.source.repository, done.source.job
    declared = _declared(jobs, job)
    if declared is not None:
        replicas = list(dict.fromkeys([*replicas, *declared.replicate.to]))
    left = None if declared is None else left_directories(declared, QueryRef.parse(job).name)
    assert done.order.key is not None
    key = KeySelection(done.order.key, done.order.operator)
    live = live_places(repository, job, declared)
    found = search(done.source, done.derived, key, replicas=replicas, live=live, left=left)
    return found.to_dict() | {"replicas": replicas, "declared": declared is not None}


def _declared(jobs: Declarations | None, job: str) -> Job | None:
    """The declared job; None where no file is at hand, or it declares other jobs."""
    from streambank.core.names import QueryRef

    if jobs is None:
        return None
    try:
        return jobs.job(QueryRef.parse(job).job)
    except NotFoundError as error:
        console.note(f"{error.message} Its replicas and generations are not known.")
        return None


def _show(done: Done, document: dict[str, Any]) -> None:
    show(done.order, done.derived)
    console.line()
    if not document["searched"]:
        console.line(f"NOT SEARCHED: {document['why']}.")
        console.line("Other savepoints, replicas and live checkpoints may hold the key.")
        return
    searched, every = document["looked_into"], console.count(document["savepoints"], "savepoint")
    console.line(f"Searched for the key in {every}; {searched} had to be read for it.")
    rows = [
        (each["repository"], each["savepoint"] or "", (each["taken_at"] or "")[:19].replace("T", " "),
         "pinned" if each["pinned"] else "held" if each["held"] else "", each["found"])
        for each in document["holding"]
    ]  # fmt: skip
    if rows:
        console.table(("repository", "savepoint", "taken at (UTC)", "stays", "holds it"), rows)
    else:
        console.line("No savepoint holds it.")
    if not document["replicas"]:
        console.line(
            "The jobs file declares no replica, and none was named by --replica."
            if document["declared"]
            else "No replica was named: give --replica LOCATION, or --jobs FILE if they are declared there."
        )
    for each in document["live"]:
        console.line(f"live: {each['location']}: {each['found']}")
    _show_left(document)
    if document["deletion"]:
        console.line()
        console.line("These commands delete them, once the new savepoint is verified and restored:")
        for command in document["deletion"]:
            console.line(f"  {command}")
    console.line("Other jobs and queries, sources, sinks and logs were not searched.")


def _show_left(document: dict[str, Any]) -> None:
    if not document["declared"]:
        console.line(
            "Earlier generations, quarantines and other directories left behind were not searched: give "
            "--jobs FILE if the job is declared there."
        )
    for each in document["left"]:
        answer = "searched, does not hold the key" if each["found"] == "no" else each["found"]
        console.line(f"left behind: {each['location']} ({each['kind']}): {answer}")
        if each["next"]:
            console.line(f"  {each['next']}")
    for each in document["left_unread"]:
        console.line(f"left behind: {each['location']}: could not be read: {each['why']}")


VERBS = {"erase": (erase, EXAMPLES)}
