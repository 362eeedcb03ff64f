"""`inspect`: what a checkpoint holds."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streambank.cli.options import (
    Checkpoint,
)
from streambank.cli.output import console
from streambank.core.options import Option

if TYPE_CHECKING:
    from streambank.checkpoint.reader import CheckpointReader

EXAMPLES = """Examples:

  streambank inspect /data/checkpoints/orders

  streambank inspect /data/checkpoints/orders --batch 41 --json

  streambank inspect /data/ck/orders --history /data/savepoints.control/orders/progress/main --within 6h
"""


def inspect(
    checkpoint: Checkpoint,
    batch: Annotated[
        int | None, Option("Look at this batch instead of the newest.", metavar="N", least=0)
    ] = None,
    history: Annotated[
        str | None,
        Option(
            "Also show progress records: <control>/<job>/progress/<query>, or one file of it.",
            metavar="LOCATION",
        ),
    ] = None,
    within_s: Annotated[
        float, Option("How much of the history to show, counted back from its newest record.")
    ] = 86_400.0,
) -> None:
    """Show what a checkpoint holds, and what is wrong: exit code 1 for errors and warnings. Only reads."""
    from streambank.checkpoint.reader import CheckpointReader
    from streambank.storage import open_store

    told = None if history is None else recorded(history, within_s)
    reader = CheckpointReader(open_store(checkpoint))
    found = reader.inspect(batch).to_dict()
    found |= {"measured": measured(reader, found), "history": told}

    def show() -> None:
        _show(found)
        show_measures(found)

    console.answer(found, show)
    if any(finding["severity"] != "info" for finding in found["findings"]):
        raise typer.Exit(1)


def _show(found: dict[str, Any]) -> None:
    batches = found["retained_batches"]
    console.fields(
        [
            ("checkpoint", found.get("checkpoint")),
            ("query id", found["query_id"]),
            ("last committed batch", found["last_committed_batch"]),
            ("last planned batch", found["last_planned_batch"]),
            ("retained batches", _ranges(batches) if batches else "none"),
            ("watermark", found["watermark"]),
        ]
    )
    rows = [
        (operator["operator"], operator["name"], store["store"], store["partitions"], store["rows"],
         console.size(store["bytes"]))
        for operator in found["operators"]
        for store in operator["stores"]
    ]  # fmt: skip
    if rows:
        console.line()
        numbers = ("operator", "partitions", "rows", "bytes")
        console.table(("operator", "name", "store", "partitions", "rows", "bytes"), rows, right=numbers)
    if found["findings"]:
        console.line()
        console.findings(found["findings"])


def _ranges(batches: list[int]) -> str:
    """`3-5, 8` for 3, 4, 5, 8."""
    runs: list[list[int]] = []
    for batch in batches:
        if runs and batch == runs[-1][1] + 1:
            runs[-1][1] = batch
        else:
            runs.append([batch, batch])
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)


_MOST_PARTITIONS = 24

_FEW_STORES = 500
"""So many stores' files are opened where the inspection itself found too many to open."""


def measured(reader: CheckpointReader, found: dict[str, Any]) -> dict[str, Any] | None:
    """What a checkpoint tells by itself.

    Args:
        reader: It has just inspected the checkpoint.
        found: What it found. That nothing of the state can be read for measuring becomes a finding.

    Returns:
        None before its first commit, and where it cannot be read.
    """
    from streambank.core.errors import StorageError
    from streambank.core.finding import Finding
    from streambank.sla.history.unmanaged import MOST_STORES, measure_checkpoint

    if reader.planner is None or not reader.planner.index.commits:
        return None
    # Where every file of the state has been opened already, nothing is read again.
    most = MOST_STORES if found["retained_by"] == "closure" else _FEW_STORES
    try:
        return measure_checkpoint(reader.store, planner=reader.planner, most_stores=most).to_dict()
    except StorageError as error:
        effect = "The checkpoint is not measured."
        finding = Finding(error.code, "warning", "", error.message, effect, error.hint)
        found["findings"].append(finding.to_dict())
        return None


def recorded(location: str, within_s: float) -> dict[str, Any]:
    """What progress records tell.

    Args:
        location: A folder of them, or one file.
        within_s: How much of them, up to the newest one.

    Raises:
        NotFoundError: There are none.
    """
    from streambank.sla.history.history import HistoryScan, Records
    from streambank.sla.history.summary import HistoryMetrics

    window = timedelta(seconds=within_s)
    records = Records.at(location)
    newest = records.newest()
    scan = HistoryScan(records, since=None if newest is None else newest.at - window)
    gathered = HistoryMetrics(records.query)
    gathered.take(scan)
    gathered.runs, gathered.notes = scan.runs, scan.notes()
    return gathered.to_dict()


def show_measures(found: dict[str, Any]) -> None:
    """Both, for people."""
    told = found["measured"]
    if told is not None:
        _show_metrics("measured by its files", told)
        _show_growth(told["growth"])
        _show_partitions(told["partitions"])
        _show_notes(told["notes"])
    told = found["history"]
    if told is not None:
        runs = console.count(told["runs"], "run")
        _show_metrics(f"recorded progress of {told['query']}, {runs}", told)
        _show_notes(told["notes"])


def _show_metrics(title: str, told: dict[str, Any]) -> None:
    console.line()
    if not told["batches"]:
        console.line(f"{title}: no batches")
        return
    console.line(f"{title}: {_batches(told['batches'])}, {told['from']} to {told['to']}")
    columns = ("metric", "newest", "median", "p95", "max")
    rows = [
        (name, *(_value(one[column], one["unit"]) for column in columns[1:]))
        for name, one in told["metrics"].items()
    ]
    console.table(columns, rows, right=columns[1:])


def _show_growth(growth: dict[str, Any] | None) -> None:
    if growth is None:
        return
    grown = [_signed(growth["bytes"], "bytes")]
    if growth["rows"] is not None:
        grown.append(_signed(growth["rows"], "rows"))
    console.line(
        f"state from batch {growth['from_batch']} to {growth['to_batch']}: {', '.join(grown)} "
        f"in {console.age(growth['seconds'])}"
    )


def _show_partitions(partitions: list[dict[str, Any]]) -> None:
    if len(partitions) > _MOST_PARTITIONS:
        console.line(f"{len(partitions)} stores in partitions: --json lists them")
    elif partitions:
        console.line()
        columns = ("operator", "partition", "store", "snapshot", "rows", "bytes", "changes")
        rows = [
            (one["operator"], one["partition"], one["store"], one["snapshot_version"] or None, one["rows"],
             console.size(one["bytes"]), one["changes"])
            for one in partitions
        ]  # fmt: skip
        console.table(columns, rows, right=[name for name in columns if name != "store"])


def _show_notes(notes: list[str]) -> None:
    for note in notes:
        console.line(f"note: {note}")


def _signed(value: float, unit: str) -> str:
    return f"{'-' if value < 0 else '+'}{_value(abs(value), unit)}"


def _value(value: float, unit: str) -> str:
    if unit == "bytes":
        return console.size(round(value))
    if unit == "s":
        return f"{value:,.3f} s" if value < 100 else console.age(value)
    return f"{value:,.3f} {unit}" if unit == "ms" else f"{value:,.0f} {unit}"


def _batches(number: int) -> str:
    return f"{number:,} batch" if number == 1 else f"{number:,} batches"


VERBS = {"inspect": (inspect, EXAMPLES)}
