"""The verb `skew`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from streambank.cli.options import (
    OptionalJobsFile,
    RepositoryOfPlace,
    open_repository,
    repository_meant,
)
from streambank.cli.output import console
from streambank.core.errors import InputError
from streambank.core.options import Option

if TYPE_CHECKING:
    from streambank.sla.skew.report import SkewReport

EXAMPLES = """Examples:

  streambank skew /data/checkpoints/orders

  streambank skew b000041 -r /data/savepoints --limit 5 --json

  streambank skew --job orders --jobs dags/streaming_jobs.toml
"""
SHOWN = 20
"""Of a store with more partitions only the largest are shown; the JSON has all of them."""
BAR_WIDTH = 30


def skew(
    place: Annotated[
        str | None,
        Option(
            "A checkpoint directory, or a savepoint of -r or of the declared repository. Without it: "
            "--job and --jobs.",
            metavar="[CHECKPOINT|SAVEPOINT]",
            positional=True,
        ),
    ] = None,
    repository: RepositoryOfPlace = None,
    job: Annotated[
        str | None,
        Option(
            "A declared job, or job/query: its current checkpoint, and its traffic by key if the job "
            "declares hot_keys. Beside a savepoint: only savepoints of this one.",
            metavar="NAME",
        ),
    ] = None,
    jobs: OptionalJobsFile = None,
    batch: Annotated[
        int | None,
        Option("Of a checkpoint: this batch instead of the newest.", metavar="N", least=0),
    ] = None,
    limit: Annotated[
        float,
        Option(
            "Uneven if the largest partition has more than this many times the mean.", metavar="X", least=1
        ),
    ] = 3.0,
) -> None:
    """Show how evenly state is spread over its partitions, without Spark: exit code 1 if it is uneven."""
    if place is None:
        if job is None or jobs is None or repository is not None:
            raise _usage("Give a CHECKPOINT, a SAVEPOINT with -r, or --job with --jobs.")
        found = _of_job(job, jobs, batch, limit)
    else:
        found = _of_place(place, repository, job, batch, limit)
    console.answer(found, lambda: _show(found))
    if not found["ok"]:
        raise typer.Exit(1)


def _usage(message: str) -> InputError:
    return InputError(message, code="usage", hint="See `streambank skew --help`.")


def _of_job(job: str, jobs: str, batch: int | None, limit: float) -> dict[str, Any]:
    """Of a declared query: its state, and its traffic as its driver measured it last."""
    from streambank.control.progress import last_progress
    from streambank.core.names import QueryRef
    from streambank.declaration.load import read_jobs

    asked = QueryRef.parse(job)
    declared = read_jobs(jobs).around(asked.job).job(asked.job, console.note)
    query = declared.only_query(asked.query)
    records = declared.records()
    generation = records.generation(query)
    location = generation.location if generation else declared.queries[query]
    last, view = last_progress(records.store, query), records.lease.view()
    traffic = last.traffic(view.epoch if view else None) if last else None
    return {**_of(location, batch, limit).to_dict(), "traffic": traffic}


def _of_place(
    place: str, repository: str | None, job: str | None, batch: int | None, limit: float
) -> dict[str, Any]:
    repository = repository_meant([place], repository, job, batch)
    report = _of_savepoint(repository, place, job, limit) if repository else _of(place, batch, limit)
    return report.to_dict()


def _of(checkpoint: str, batch: int | None, limit: float) -> SkewReport:
    from streambank.sla.skew.report import skew_of_checkpoint
    from streambank.storage import open_store

    return skew_of_checkpoint(open_store(checkpoint), batch, limit=limit)


def _of_savepoint(repository: str, savepoint: str, job: str | None, limit: float) -> SkewReport:
    from streambank.sla.skew.report import skew_of_savepoint

    opened = open_repository(repository)
    return skew_of_savepoint(opened, opened.load(*opened.find(savepoint, job)), limit=limit)


def _show(found: dict[str, Any]) -> None:
    console.fields([("state of", found["location"]), ("batch", found["batch"])])
    if not found["stores"]:
        console.line("The query keeps no state.")
    for store in found["stores"]:
        console.line()
        _show_store(store)
    for note in found["notes"]:
        console.line()
        console.line(f"passed over: {note}")
    if "traffic" in found:
        console.line()
        _show_traffic(found["traffic"])


def _show_traffic(traffic: dict[str, Any] | None) -> None:
    from streambank.core.units import utc_now
    from streambank.sla.skew.traffic import as_of, measured_lines

    if traffic is None:
        console.line("traffic by key: not measured; the job's table hot_keys has it sampled.")
        return
    console.line(f"traffic by key, {as_of(traffic, utc_now())}:")
    for line in measured_lines(traffic):
        console.line(line)
    for operator in traffic["operators"]:
        top = operator.get("top")
        if top:
            console.line()
            console.line(f"operator {operator['operator']}, by {', '.join(operator['by'])}")
            rows = [
                (f"{100 * key['share']:.2f} %", f"{100 * key['low']:.2f} to {100 * key['high']:.2f} %",
                 f"{key['times_mean']:.1f}", "?" if key["partition"] is None else key["partition"],
                 key.get("hash", ""))
                for key in top
            ]  # fmt: skip
            columns = ("share", "certain", "times mean", "partition", "hash")
            console.table(columns, rows, right=columns[:4])


def _show_store(store: dict[str, Any]) -> None:
    name = f" {store['name']}" if store["name"] else ""
    skew = "" if store["skew"] is None else f": {store['skew']:.2f} times the mean by {store['by']}"
    console.line(f"operator {store['operator']}{name}, store {store['store']}{skew}")
    parts = store["partitions"]
    if len(parts) > SHOWN:
        parts = sorted(parts, key=lambda part: (part["times_mean"] or 0.0, part["bytes"]), reverse=True)
    most = max((part["times_mean"] or 0.0 for part in parts), default=0.0)
    rows = [
        (part["partition"], _rows(part), console.size(part["bytes"]),
         "" if part["times_mean"] is None else f"{part['times_mean']:.2f}",
         console.bar((part["times_mean"] or 0.0) / most if most else 0.0, BAR_WIDTH))
        for part in parts[:SHOWN]
    ]  # fmt: skip
    columns = ("partition", "rows", "bytes", "times mean", "")
    console.table(columns, rows, right=("partition", "rows", "bytes", "times mean"))
    if len(parts) > SHOWN:
        console.line(f"and {console.count(len(parts) - SHOWN, 'smaller partition')}")
    console.line(store["advice"])
    for sentence in store["unknown"]:
        console.line(f"not known: {sentence}")


def _rows(part: dict[str, Any]) -> str:
    """Rows, where they are known; else those that the newest snapshot counts, and at which version."""
    if part["rows"] is not None:
        return f"{part['rows']:,}"
    if part["snapshot_rows"] is not None:
        return f"{part['snapshot_rows']:,} at version {part['snapshot_version']}"
    return "?"


VERBS = {"skew": (skew, EXAMPLES)}
