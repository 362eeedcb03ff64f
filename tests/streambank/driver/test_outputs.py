"""A sink that is recorded for a query never changes silently: asked before Spark writes anything."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from streambank.control.generations import Generation
from streambank.control.marker import renew_marker
from streambank.core.errors import RefusedError, StreambankError
from streambank.core.names import MAIN
from streambank.core.shape import decode
from streambank.driver import outputs
from streambank.driver.outputs import FILES, Output, check_arguments, check_output
from streambank.driver.preflight import DeclaredQuery, check_start, declared_query
from streambank.driver.prepare import prepare_launch
from streambank.driver.spec import LaunchSpec, QuerySpec, write_launch
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.declared import BY, declare
from tests.support.refuses import refuses


class Begun:
    """A query of which nothing is known but its first generation, and an output."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.job = declare(folder)
        self.control = self.job.records()
        self.out = Output(FILES, f"file://{folder}/out")
        self.generation = self.control.generations().ensure_first(self.job.checkpoint, by=BY)

    def log(self, output: str, *batches: int) -> Output:
        """An output directory whose log has these batches."""
        for batch in batches:
            open_store(self.folder / output).write(f"_spark_metadata/{batch}", b"v1\n")
        return Output(FILES, f"file://{self.folder}/{output}")

    @property
    def query(self) -> DeclaredQuery:
        return declared_query(self.job, MAIN, self.control)

    def check(self, output: Output, generation: Generation | None = None) -> str | None:
        return check_output(self.query, generation or self.generation, output)

    def check_arguments(self, *args: str) -> None:
        check_arguments(self.query, self.generation, args, str(self.folder))

    def mark(self, facts: Mapping[str, object]) -> None:
        """Leave the marker of a driver that has learnt so much."""
        told = {"generation": self.generation, "control": self.control, "by": BY, "facts": facts}
        (self.folder / "checkpoints").mkdir(exist_ok=True)
        assert renew_marker(self.job.checkpoint, job=self.job.name, query=MAIN, **told) is None  # type: ignore[arg-type]


class Started(Begun):
    """A query that was started once, and wrote to `out`."""

    def __init__(self, folder: Path, batches: int = 3, output: Output | None = None) -> None:
        super().__init__(folder)
        self.checkpoint = LiveCheckpoint(open_store(self.job.checkpoint), retain=20)
        self.checkpoint.run(batches)
        self.record(output or self.out)

    def record(self, output: Output, **more: object) -> None:
        """What the runner writes down about it."""
        path = output.path if output.kind == FILES else None
        sink = f"FileSink[{path}]" if path else "OtherSink"
        facts = {"generation": self.generation.number, "query_id": "q", "sink": sink, "sink_path": path}
        self.control.record_query(None, {**facts, "output": output.to_dict(), **more})


def refused(act: Callable[[], object], code: str) -> StreambankError:
    with refuses(RefusedError, code) as caught:
        act()
    return caught.value


def test_the_same_output_is_no_change(folder: Path) -> None:
    started = Started(folder)
    started.log("out", 0, 1, 2)

    started.check(started.out)
    started.control.record_query(None, {"query_id": "q", "generation": 1, "sink_path": started.out.path})
    started.check(started.out)  # as an older version recorded it


def test_another_directory_without_a_log(folder: Path) -> None:
    started = Started(folder)

    error = refused(lambda: started.check(Output(FILES, f"file://{folder}/new")), "sink-changed")

    assert f"has written to file://{folder}/out up to batch 2" in error.message
    assert "has no log" in error.message
    assert f"--new-sink file://{folder}/out=file://{folder}/new" in error.hint


@pytest.mark.parametrize("batches", [(0, 1), (0, 1, 2, 3)])
def test_another_directory_whose_log_is_another_one(folder: Path, batches: tuple[int, ...]) -> None:
    started = Started(folder)
    new = started.log("new", *batches)

    error = refused(lambda: started.check(new), "sink-changed")

    assert f"has a log up to batch {batches[-1]}" in error.message


def test_another_directory_that_goes_on_where_the_checkpoint_is(folder: Path) -> None:
    started = Started(folder)

    started.check(started.log("moved", 0, 1, 2))


def test_a_restore_with_a_new_sink_begins_a_log(folder: Path) -> None:
    started = Started(folder)
    new = started.log("new", 2)
    moved = replace(started.generation, number=2, new_sinks={str(started.out.path): str(new.path)})

    started.check(new, moved)
    refused(lambda: started.check(started.out, moved), "old-sink")
    refused(lambda: started.check(Output(FILES, f"file://{folder}/third"), moved), "sink-changed")


def test_a_restore_that_accepts_an_output_that_is_further(folder: Path) -> None:
    started = Started(folder)

    started.check(started.log("moved", 0, 1, 2, 3), replace(started.generation, number=2))


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (Output(FILES, "file:///out"), Output("foreachBatch")),
        (Output("foreachBatch"), Output("foreach")),
        (Output("table", name="a"), Output("table", name="b")),
        (Output("kafka", name="flights"), Output("kafka", name="delays")),
        (Output("delta", "file:///a"), Output("delta", "file:///b")),
        (Output("delta", "file:///a"), Output("console")),
    ],
)
def test_another_kind_of_sink_needs_another_generation(folder: Path, before: Output, now: Output) -> None:
    started = Started(folder, output=before)

    error = refused(lambda: started.check(now), "sink-changed")

    assert str(before) in error.message and str(now) in error.message
    assert "stop the job with a savepoint" in error.hint
    started.check(before)
    started.check(now, replace(started.generation, number=2))


@pytest.mark.parametrize("before", [Output("console"), Output("memory"), Output("noop")])
def test_a_sink_that_keeps_nothing_gives_way_to_any(folder: Path, before: Output) -> None:
    started = Started(folder, output=before)

    started.check(Output("foreachBatch"))
    started.check(Output("kafka", name="flights"))
    refused(lambda: started.check(started.out), "sink-changed")  # whose log could not be gone on from


def test_what_an_older_version_recorded_is_compared_as_far_as_it_goes(folder: Path) -> None:
    started = Started(folder)
    older = {"query_id": "q", "generation": 1}
    started.control.record_query(None, {**older, "sink": "ForeachBatchSink", "sink_path": None})
    refused(lambda: started.check(Output("kafka")), "sink-changed")
    started.control.record_query(None, {**older, "sink": "SomeSink", "sink_path": None})
    started.check(Output("kafka"))
    started.control.record_query(None, {"generation": 1})
    started.check(Output("kafka"))


def test_a_new_checkpoint_does_not_begin_in_an_output_that_has_batches(folder: Path) -> None:
    begun = Begun(folder)
    begun.log("out", 6)

    error = refused(lambda: begun.check(begun.out), "sink-used")

    assert "up to 6" in error.message and "move its _spark_metadata away" in error.hint
    begun.check(Output(FILES, f"file://{folder}/new"))
    begun.check(Output("foreachBatch"))
    # The first batch was written, and the driver died before it was committed: it is written again.
    (folder / "checkpoints/flights/offsets").mkdir(parents=True)
    (folder / "checkpoints/flights/offsets/0").write_text("v1\n{}")
    begun.check(begun.out)


def test_an_output_that_the_job_began_before_it_declared_several_queries(folder: Path) -> None:
    """The first run took its first query for the only one, and was refused at the second."""
    one = declare(folder)
    control, out = one.records(), f"file://{folder}/out"
    open_store(folder / "out").write("_spark_metadata/0", b"v1\n")
    several = replace(one, queries={name: f"{one.checkpoint}/{name}" for name in ("first", "second")})
    query = declared_query(several, "first", control)
    generation = control.generations("first").ensure_first(query.checkpoint, by=BY)

    def hint() -> str:
        return refused(lambda: check_output(query, generation, Output(FILES, out)), "sink-used").hint

    assert "Restore a savepoint" in hint()
    open_store(one.checkpoint).write("offsets/0", b"v1\n{}")
    control.record_query(None, {"generation": 1, "query_id": "q", "sink_path": f"{out}2"})
    assert "Restore a savepoint" in hint(), "another query wrote it"
    control.record_query(None, {"generation": 1, "query_id": "q", "sink_path": out})
    assert f"whose checkpoint is {one.checkpoint}" in hint() and f"into {query.checkpoint}" in hint()
    (folder / "checkpoints/flights/first").mkdir()
    (folder / "checkpoints/flights/offsets").rename(folder / "checkpoints/flights/first/offsets")
    check_output(query, generation, Output(FILES, out))


def test_an_output_that_only_spark_can_reach(folder: Path) -> None:
    elsewhere = Output(FILES, "nowhere://nn/out")
    begun = Begun(folder)

    assert "nowhere" in (begun.check(elsewhere) or "")
    started = Started(folder, output=Output(FILES, "nowhere://nn/old"))
    with pytest.raises(StreambankError, match="nowhere"):
        started.check(elsewhere)
    began = replace(begun.generation, number=2, new_sinks={"nowhere://nn/old": "nowhere://nn/out"})
    started.check(elsewhere, began)


def test_s3_by_another_name_is_no_other_place(folder: Path) -> None:
    started = Started(folder, output=Output(FILES, "s3a://bucket/out"))
    started.check(Output(FILES, "s3://bucket/out"))
    started.record(Output("delta", "s3://bucket/t"))

    started.check(Output("delta", "s3a://bucket/t"))
    refused(lambda: started.check(Output("delta", "s3a://bucket/other")), "sink-changed")


@pytest.mark.parametrize(
    "output", [Output(FILES, "s3a://b/old"), Output("table", name="t", located="s3a://b/old")]
)
def test_s3_by_another_name_is_the_output_that_was_left(folder: Path, output: Output) -> None:
    started = Started(folder, output=Output(FILES, "s3://b/old"))
    moved = replace(started.generation, number=2, new_sinks={"s3://b/old": "s3://b/new"})

    refused(lambda: started.check(output, moved), "old-sink")
    refused(lambda: check_arguments(started.query, moved, ["s3a://b/old"], str(folder)), "old-sink")
    check_arguments(started.query, moved, ["s3a://b/new"], str(folder))


def test_s3_by_another_name_in_the_arguments_has_the_same_log(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = Begun(folder)
    begun.control.record_query(None, {"sink_path": "s3://b/out"})
    monkeypatch.setattr(outputs, "_newest", lambda output: 6)

    refused(lambda: begun.check_arguments("s3a://b/out"), "sink-used")
    begun.check_arguments("s3a://b/new")


@pytest.mark.parametrize(
    "output",
    [
        Output("table", name="t"),
        Output("org.apache.spark.sql.execution.datasources.parquet.parquetfileformat", "file:///wh/t"),
    ],
)
def test_a_file_sink_that_an_older_version_recorded_may_be_a_table_or_any_format(
    folder: Path, output: Output
) -> None:
    started = Started(folder)
    older = {"generation": 1, "query_id": "q", "sink": "FileSink[file:/wh/t]", "sink_path": "file:///wh/t"}
    started.control.record_query(None, older)

    started.check(output)
    for kind in ("foreachBatch", "foreach", "kafka", "noop"):
        refused(functools.partial(started.check, Output(kind)), "sink-changed")


@pytest.mark.parametrize("how", ["asked of Spark", "recorded", "recorded by an older version", "marker"])
def test_a_table_that_spark_writes_by_its_file_sink_has_a_log_too(folder: Path, how: str) -> None:
    begun = Begun(folder)
    place = f"file://{folder}/warehouse/sightings"
    begun.log("warehouse/sightings", 6)
    table = Output("table", name="db.Sightings")
    facts = {"query_id": "q", "generation": 0, "sink": f"FileSink[{place}]", "sink_path": place}
    if how == "asked of Spark":
        table = replace(table, located=place)
    elif how == "recorded":
        begun.control.record_query(None, {**facts, "output": table.to_dict()})
    elif how == "recorded by an older version":
        begun.control.record_query(None, facts)
    else:
        begun.mark(facts)

    error = refused(lambda: begun.check(table), "sink-used")

    assert place in error.message and "up to 6" in error.message
    begun.check(Output("table", name="db.others"))  # it was told to name another one
    begun.check(Output("delta", f"file://{folder}/delta"))
    begun.check(Output("noop"))
    LiveCheckpoint(open_store(begun.generation.location), retain=20).run(3)
    begun.check(table)


def test_a_table_whose_log_only_spark_can_read(folder: Path) -> None:
    table = Output("table", name="t", located="nowhere://nn/t")

    assert "nowhere" in (Begun(folder).check(table) or "")


def test_the_arguments_tell_of_an_output_that_has_batches(folder: Path) -> None:
    begun = Begun(folder)
    for name in ("in", "out"):
        begun.log(name, 6)
    begun.check_arguments("in", "out")  # nobody knows which is which
    begun.mark({"query_id": "q", "sink": "FileSink[x]", "sink_path": begun.out.path})

    refused(lambda: begun.check_arguments("in", "out/"), "sink-used")
    begun.check_arguments("in", "new")


@pytest.mark.parametrize(("was", "now"), [("out", "new"), ("--output={}/out", "--output={}/new")])
def test_the_arguments_tell_of_another_output(folder: Path, was: str, now: str) -> None:
    started = Started(folder)
    job = declare(folder, "in", was.format(folder))
    spec = prepare_launch(job, started.control, by=BY)
    write_launch(started.control, spec)
    started.record(started.out, launch_id=spec.launch_id)

    def launch(*args: str) -> LaunchSpec:
        return prepare_launch(declare(folder, *args), started.control, by=BY)

    refused(lambda: launch("in", now.format(folder)), "sink-changed")
    launch("in", was.format(folder))
    launch("in", f"file:{folder}/out/")
    launch("elsewhere", was.format(folder))
    launch("--config", "a.toml", "in")  # the driver will see
    started.log("new", 0, 1, 2)
    launch("in", now.format(folder))


def test_a_generation_that_was_restored_and_is_gone_is_not_begun_anew(folder: Path) -> None:
    started = Started(folder)
    restored = replace(
        started.generation, number=2, location=f"file://{folder}/gone", from_savepoint="b000002-x"
    )

    error = refused(lambda: check_start(started.query, restored), "checkpoint-lost")

    assert "savepoint b000002-x was restored there" in error.message


def test_a_launch_of_an_older_version_is_read() -> None:
    old = {"checkpoint": "file:///c", "generation": 1}
    assert decode(QuerySpec, old, "launch spec").declared is None
