"""`state compact`, `state migrate` and `rescale`: a savepoint made from another one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from streambank.cli.output import console
from streambank.cli.verb_options import Commands
from streambank.core.options import Option
from streambank.core.state_options import ExpireKeysOptions, MigrateOptions
from streambank_spark.commands.subject import (
    SavepointSubject,
    SparkOptions,
    savepoint_of,
    spark_of,
    staging_of,
)

if TYPE_CHECKING:
    from streambank.repository.repository import Repository
    from streambank_spark.rewrite.derive import Derived, SourceSavepoint
    from streambank_spark.rewrite.rewrite_request import RewriteRequest

COMPACT_EXAMPLES = """Examples:

  streambank state compact b000041 -r /data/savepoints --where "value.seen < {watermark}" --dry-run

  streambank state compact b000041 -r /data/savepoints --idle-for 30d
"""
MIGRATE_EXAMPLE = "Example: streambank state migrate b000041 -r /data/savepoints --provider rocksdb"
RESCALE_EXAMPLE = "Example: streambank rescale b000041 -r /data/savepoints --partitions 64"

DryRun = Annotated[bool, Option("Only show what would be removed.")]
Note = Annotated[str, Option("A note for the new savepoint.")]
Partitions = Annotated[int, Option("The new number of state partitions.", metavar="N", least=1)]


def compact(
    subject: SavepointSubject,
    expired: ExpireKeysOptions,
    spark: SparkOptions,
    dry_run: DryRun = False,
    note: Note = "",
) -> None:
    """Make a savepoint without the keys that have expired; the query and this savepoint stay as they are."""
    from streambank_spark.rewrite.rewrite_request import RewriteRequest

    _run(RewriteRequest(operation="compact", dry_run=dry_run, note=note, **vars(expired)), subject, spark)


def migrate(subject: SavepointSubject, options: MigrateOptions, spark: SparkOptions, note: Note = "") -> None:
    """Make a savepoint that has HDFS-backed state in RocksDB instead."""
    from streambank_spark.rewrite.rewrite_request import RewriteRequest

    _run(RewriteRequest(operation="migrate", note=note, **vars(options)), subject, spark)


def rescale(subject: SavepointSubject, partitions: Partitions, spark: SparkOptions, note: Note = "") -> None:
    """Make a savepoint with the same state in another number of partitions."""
    from streambank_spark.rewrite.rewrite_request import RewriteRequest

    _run(RewriteRequest(operation="rescale", partitions=partitions, note=note), subject, spark)


rescale_app = Commands(name="rescale", add_completion=False)
rescale_app.command(epilog=RESCALE_EXAMPLE)(rescale)


def _run(order: RewriteRequest, subject: SavepointSubject, spark: SparkOptions) -> None:
    with carried_out(order, subject, spark) as done:
        document = done.to_dict()
    console.answer(document, lambda: show(order, done.derived))


@dataclass(frozen=True, slots=True)
class Done:
    """An order that was carried out; the session lasts as long as the `with`."""

    order: RewriteRequest
    source: SourceSavepoint
    derived: Derived

    def to_dict(self) -> dict[str, Any]:
        asked = {"operation": self.order.operation, "dry_run": self.order.dry_run}
        return self.derived.to_dict() | asked


@contextmanager
def source_of(savepoint: tuple[Repository, str, str], spark: SparkOptions) -> Iterator[SourceSavepoint]:
    """A savepoint as `savepoint_of` gives it, with a session, for a `with`."""
    from streambank.control.processes import who
    from streambank_spark.rewrite.derive import SourceSavepoint

    with spark_of(spark) as session, console.progress() as progress:
        yield SourceSavepoint(session, *savepoint, staging_of(spark, progress), who("cli"), say)


@contextmanager
def carried_out(order: RewriteRequest, subject: SavepointSubject, spark: SparkOptions) -> Iterator[Done]:
    """Carry an order out; the session stays open for a `with`.

    Raises:
        StreambankError: As `carry_out`; the order cannot be meant, or there is no PySpark.
    """
    order.check()
    with source_of(savepoint_of(subject, spark, order.to_dict()), spark) as source:
        from streambank_spark.rewrite.request import carry_out

        yield Done(order, source, carry_out(source, order))


def say(text: str) -> None:
    """Note what is being done."""
    console.note(text[:1].lower() + text[1:])


def show_restore(savepoint: str, of: str) -> None:
    """What to do with a new savepoint."""
    console.line(f"Restore {savepoint} to use it. The query and {of} are unchanged.")


def show_going(found: Derived) -> None:
    """What goes, of each operator, and what that means."""
    if found.going:
        console.line()
        rows: list[tuple[Any, ...]] = [
            (each.operator, each.name or "", f"{each.keys:,}", f"{each.rows:,}", f"{each.rows_before:,}",
             console.size(each.about_bytes))
            for each in found.going
        ]  # fmt: skip
        columns = ("operator", "name", "keys that go", "rows that go", "of rows", "about")
        console.table(columns, rows, right=("operator", "keys that go", "rows that go", "of rows", "about"))
        for each in found.going:
            console.line(f"operator {each.operator}: {each.meaning}")
    for one in found.passed_over or ():
        console.line(f"PASSED OVER: operator {one.operator} ({one.name}): {one.why}")


def show(order: RewriteRequest, found: Derived) -> None:
    """What came of an order, for people."""
    console.fields([("state of", found.of), ("batch", found.batch), ("savepoint", found.savepoint)])
    show_going(found)
    console.line()
    if found.savepoint is not None:
        show_restore(found.savepoint, found.of)
    elif order.dry_run:
        console.line("Nothing was written.")
    else:
        console.line("Nothing has expired, so nothing was written.")


VERBS = {"compact": (compact, COMPACT_EXAMPLES), "migrate": (migrate, MIGRATE_EXAMPLE)}
"""Those that belong to `state`."""
