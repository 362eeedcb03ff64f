"""The exactly-once oracle: does a restored copy of a checkpoint go on as if nothing had happened?

A trial runs one query in one layout over fixed input. What it gave undisturbed, batch by batch, is the truth.
A candidate is a directory that claims to be the checkpoint after batch N. It is continued to the end of the
input; every batch after N must then give the same rows as the truth, no batch more and none less. A candidate
that Spark cannot continue, or that continues with other rows, is caught.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from streambank.core.errors import ConflictError, NotFoundError
from tests.support.spark.queries import FILES_PER_BATCH, Query, write_input
from tests.support.spark.sessions import (
    BY_FILE_SYSTEM,
    finish,
    read_batches,
    run_to_end,
    run_until,
    session_for,
    start,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = Mapping[int, list[str]]
"""What each batch gave; the whole table under `TABLE` where Spark's file sink was written."""

TABLE = -1

NOT_YET = frozenset({"no-committed-batch", "not-a-checkpoint"})
"""What a take may answer before the first batch of a query is committed."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A savepoint as the oracle sees it: the name to restore it by, and the batch after which it goes on."""

    ref: str
    batch: int


@dataclass(slots=True)
class Takes:
    """What a thread that took savepoints without a pause came to.

    Attributes:
        saved: One for each batch that was caught, oldest first.
        not_yet: Takes before the first commit.
        moved: Takes that Spark's cleaning outran again and again, and that said so.
        failure: Anything else: the end of the thread.
    """

    saved: list[Saved] = field(default_factory=list)
    not_yet: int = 0
    moved: int = 0
    failure: Exception | None = None

    def once(self, take: Callable[[], Saved]) -> None:
        """Take one savepoint; remember it unless its batch was saved before."""
        try:
            saved = take()
        except NotFoundError as error:
            if error.code not in NOT_YET:
                raise
            self.not_yet += 1
        except ConflictError:
            self.moved += 1
        else:
            if saved not in self.saved:
                self.saved.append(saved)


@dataclass(slots=True)
class Trial:
    """One query, one layout, its input and its truth.

    Attributes:
        batches: How many input files, so how many batches with data, there are.
    """

    spark: SparkSession
    query: Query
    layout: str
    folder: Path
    batches: int
    conf: dict[str, str] = field(default_factory=dict)
    runs: int = 0

    def __post_init__(self) -> None:
        write_input(self.source, self.batches)

    @property
    def source(self) -> Path:
        """The input files; the same for every run, since Spark remembers their names."""
        return self.folder / "input"

    @property
    def checkpoint(self) -> Path:
        """The checkpoint of the run that savepoints are taken of."""
        return self.folder / "live"

    @property
    def sink(self) -> Path:
        """Where the run that savepoints are taken of writes."""
        return self.folder / "live-output"

    def session(self, **conf: str) -> SparkSession:
        return session_for(self.spark, self.layout, {**self.conf, **conf})

    def new_folder(self, name: str) -> Path:
        """A path that no run has used."""
        self.runs += 1
        return self.folder / f"{self.runs:04d}-{name}"

    def result(self, output: Path) -> Rows:
        if not self.query.file_sink:
            return read_batches(output)
        table = self.session().read.json(str(output))
        return {TABLE: sorted(str(sorted(row.asDict().items())) for row in table.collect())}

    def undisturbed(self) -> Rows:
        """The truth: a run from the first file to the last, without a savepoint and without a stop."""
        output = self.new_folder("undisturbed-output")
        session, checkpoint = self.session(**BY_FILE_SYSTEM), self.new_folder("undisturbed")
        run_to_end(session, self.query, self.source, checkpoint, output)
        return self.result(output)

    def ordinary_restart(self, batch: int) -> Rows:
        """A run that is stopped after the commit of `batch`, and started again on its own checkpoint."""
        checkpoint, output = self.new_folder("restarted"), self.new_folder("restarted-output")
        for_rows = self.session(**BY_FILE_SYSTEM)
        run_until(for_rows, self.query, self.source, checkpoint, output, batch)
        run_to_end(for_rows, self.query, self.source, checkpoint, output)
        return self.result(output)

    def run_live(self, take: Callable[[], Saved]) -> Takes:
        """Run as fast as Spark can while a thread calls `take` again and again; then once more at the end.

        Raises:
            Exception: What `take` raised, unless it says that there is nothing yet, or that the checkpoint
            moved on.
        """
        takes, over = Takes(), threading.Event()

        def work() -> None:
            try:
                while not over.is_set():
                    takes.once(take)
            except Exception as error:
                takes.failure = error

        thread = threading.Thread(target=work, name="taker")
        try:
            thread.start()
            finish(lambda: start(self.session(), self.query, self.source, self.checkpoint, self.sink))
        finally:
            over.set()
            thread.join()
        if takes.failure is not None:
            raise takes.failure
        takes.once(take)
        return takes

    def go_on(self, checkpoint: Path, *, restart_after: int | None = None) -> Rows:
        """Continue a candidate to the end of the input, with one more restart on the way if asked for."""
        output = self.sink if self.query.file_sink else self.new_folder("continued-output")
        if restart_after is not None:
            run_until(self.session(), self.query, self.source, checkpoint, output, restart_after)
        run_to_end(self.session(), self.query, self.source, checkpoint, output)
        return self.result(output)

    def judge(
        self, checkpoint: Path, batch: int, truth: Rows, *, restart_after: int | None = None
    ) -> list[str]:
        """Continue a candidate that claims to stand after `batch`: all that is wrong, nothing if exact."""
        from pyspark.errors import StreamingQueryException

        try:
            outcome = self.go_on(checkpoint, restart_after=restart_after)
        except (StreamingQueryException, TimeoutError) as error:
            return [f"cannot go on: {str(error)[:300]}"]
        return differences(truth, outcome, batch)

    def replace_input(self, after: int, seed: int) -> None:
        """Let history go another way after batch `after`: the later input files get other rows."""
        write_input(self.source, self.batches, seed=seed, first=after + 1)

    def more_input(self, batches: int) -> None:
        """Let more input arrive, up to so many files in all."""
        self.batches = batches
        write_input(self.source, batches)

    def recut(self, files_per_batch: int) -> None:
        """Let later runs read several input files in a batch, as after a change of configuration."""
        self.conf[FILES_PER_BATCH] = str(files_per_batch)


def differences(truth: Rows, outcome: Rows, batch: int) -> list[str]:
    """Compare what came after `batch`; the whole table where there are no batches to tell apart."""
    expected = {number: rows for number, rows in truth.items() if number > batch or number == TABLE}
    found = {number: rows for number, rows in outcome.items() if number > batch or number == TABLE}
    wrong = [f"batch {number} is missing" for number in sorted(expected.keys() - found.keys())]
    wrong += [f"batch {number} should not be there" for number in sorted(found.keys() - expected.keys())]
    for number in sorted(expected.keys() & found.keys()):
        if expected[number] != found[number]:
            lost = len([row for row in expected[number] if row not in found[number]])
            strange = len([row for row in found[number] if row not in expected[number]])
            counts = f"{len(found[number])} rows instead of {len(expected[number])}"
            wrong.append(f"batch {number}: {counts}, {lost} missing or changed, {strange} unexpected")
    return wrong


def newest_snapshot(checkpoint: Path, layout: str, at_most: int) -> int:
    """The highest state version up to `at_most` that operator 0 keeps as a full snapshot of partition 0."""
    suffix = ".snapshot" if layout == "hdfs" else ".zip"
    names = (path.stem for path in (checkpoint / "state/0/0").glob(f"*{suffix}") if path.name[0] != ".")
    found = [version for version in (int(name.split("_")[0]) for name in names) if version <= at_most]
    assert found, f"Spark's maintenance made no snapshot up to version {at_most}"
    return max(found)


def roll_back_in_place(checkpoint: Path, batch: int) -> None:
    """The folk recipe: delete the newest entries of all logs, leave the state as it is."""
    for log in (checkpoint / "commits", checkpoint / "offsets", *(checkpoint / "sources").glob("*")):
        for path in log.iterdir():
            number = path.name.strip(".").split(".")[0]
            if number.isdigit() and int(number) > batch:
                path.unlink()


def committed(checkpoint: Path) -> int:
    """The newest committed batch of a checkpoint, -1 before the first one."""
    names = (path.name for path in (checkpoint / "commits").glob("*"))
    return max((int(name) for name in names if name.isdigit()), default=-1)


def copy_recursively(checkpoint: Path, into: Path, between: Callable[[], None]) -> int:
    """What `cp -r` does to a live checkpoint: one entry after the other, while time passes `between` them.

    Returns:
        The batch that the copy claims to stand after.
    """
    into.mkdir()
    for entry in sorted(checkpoint.iterdir()):
        if entry.is_file():
            shutil.copy2(entry, into / entry.name)
            continue
        for path in sorted(entry.rglob("*")):
            target = into / path.relative_to(checkpoint)
            try:
                if path.is_dir():
                    target.mkdir(parents=True, exist_ok=True)
                else:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(path, target)
            except FileNotFoundError:
                continue  # "cp: cannot stat ...: No such file or directory", and on it goes
        between()
    return committed(into)
