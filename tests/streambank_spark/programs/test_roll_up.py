"""Hours of real and made-up histories in Parquet: the engine's own figures, each hour once."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from streambank.control.progress import progress_keys
from streambank.core.errors import ConflictError, FormatError, InputError
from streambank.sla.history.history import HistoryScan, Records
from streambank.sla.history.summary import Gathered
from streambank.storage import open_store
from streambank.storage.store import Store
from streambank_spark.programs import roll_up as room
from streambank_spark.programs.hourly import rolled_hours
from streambank_spark.programs.roll_up import main, parse, roll_up, ship
from streambank_spark.programs.rolled import SCHEMA, HourRow, Mark, add, marks, moment
from tests.support.histories import FOLDER, at, line, operator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

END = at(3 * 86_400)
Keyed = dict[tuple[Any, ...], tuple[Any, ...]]


def write(control: Store, key: str, *lines: bytes) -> None:
    control.write(key, b"".join(one + b"\n" for one in lines))


def history(control: Store, job: str = "flights", query: str = "main") -> list[bytes]:
    """Two days of a query with two operators, a batch every seven minutes, in files of a hundred batches."""
    lines = [
        line(
            batch,
            batch * 420,
            took_s=1 + batch % 17,
            run=f"run-{batch // 150}",
            stateOperators=[
                operator(numRowsTotal=batch * 3, customMetrics={"rocksdbSstFileSize": batch * 1000 + 1}),
                operator(numRowsTotal=7),
            ],
        )
        for batch in range(411)
    ]
    for number in range(5):
        write(control, f"{job}/progress/{query}/{number + 1:010d}.jsonl", *lines[number * 100 :][:100])
    return lines


def engine_says(
    control: Store, job: str, query: str, end: datetime
) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """The same by the engine's own summary of each hour."""
    by_hour: dict[datetime, list[Any]] = {}
    records = Records.of_query(control.child(job), None if query == "main" else query)
    for point in HistoryScan(records):
        if point.at < end:
            by_hour.setdefault(point.at.replace(minute=0, second=0, microsecond=0), []).append(point)
    found: Keyed = {}
    for hour, points in by_hour.items():
        gathered = Gathered(query)
        gathered.take(points)
        for number in (None, *gathered.operators):
            columns = gathered.metrics if number is None else gathered.operators[number]
            for name, one in gathered.summaries(number).items():
                figures = (one.unit, one.batches, min(columns[name]), one.median, one.p95, one.maximum)
                found[query, hour, number, name] = figures
    return found


def rolled(output: Store, job: str = "flights") -> list[dict[str, Any]]:
    return [
        row
        for info in sorted(output.list(f"job={job}"), key=lambda info: info.path)
        for row in pq.ParquetFile(io.BytesIO(output.read(info.path))).read().to_pylist()
    ]


def by_key(rows: list[dict[str, Any]]) -> Keyed:
    found = {}
    for row in rows:
        query, hour, number, metric, *figures = row.values()
        assert (query, hour, number, metric) not in found, "once"
        found[query, hour, number, metric] = tuple(figures)
    return found


@pytest.fixture(scope="module")
def shipped(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark whose workers have this very code."""
    ship(spark, tmp_path_factory.mktemp("streambank-shipped"), [])
    yield spark


def test_the_figures_are_the_engine_s_and_a_rerun_changes_nothing(
    shipped: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    control, output = open_store(tmp_path / "jobs"), open_store(tmp_path / "rolled")
    lines = history(control)
    for name in ("aircraft-sessions", "driver-killed"):
        for number, file in enumerate(sorted((FOLDER / name).iterdir()), 1):
            control.write(f"real/progress/{name}/{number:010d}.jsonl", file.read_bytes())
    first = at(86_400 + 3 * 3600 + 100)

    def again(now: datetime) -> dict[str, Any]:
        found = roll_up(shipped, control.uri, ["flights", "real"], output, now=now, portion_bytes=40_000)
        return {f"{one.job}/{one.query}": one for one in found}

    done = again(first)
    end = first.replace(minute=0, second=0)
    assert by_key(rolled(output)) == engine_says(control, "flights", "main", end)
    assert done["flights/main"].hours == 27
    assert (done["real/driver-killed"].hours, done["real/driver-killed"].counts["records"]) == (0, 0)
    told = capsys.readouterr().out
    assert "flights/main: 5 files in 5 portions, from the beginning" in told
    assert "7 of 7 portions read" in told or "8 of 8 portions read" in told
    before = {info.path: output.read(info.path) for info in output.list()}
    assert sorted(before) == [
        "job=flights/day=2026-11-01/main.00.parquet",
        "job=flights/day=2026-11-02/main.00.parquet",
    ]

    assert "flights/main" not in again(first), "nothing new is over"
    assert {info.path: output.read(info.path) for info in output.list()} == before

    # A line for an hour that is there already, half a line, a damaged one, and the rest of the hours.
    late = line(411, 86_400, run="late", epoch=1)
    files = progress_keys(control.child("flights"))
    write(control, f"flights/{files[-1]}", *lines[400:], b"nonsense", late)
    now = datetime(2026, 12, 1, tzinfo=UTC)
    done = again(now)
    one = done["flights/main"]
    assert {key: output.read(key) for key in before} == before
    assert (one.counts["late"], one.counts["damaged"], one.hours) == (0, 1, 21), "a clock that went back"
    whole = engine_says(control, "flights", "main", now)
    assert by_key(rolled(output)) == whole
    for name in ("aircraft-sessions", "driver-killed"):
        ours = {key: value for key, value in by_key(rolled(output, "real")).items() if key[0] == name}
        assert ours == engine_says(control, "real", name, now)
        assert ours

    frame = shipped.read.parquet(str(tmp_path / "rolled"))
    assert frame.where("job = 'flights'").count() == len(whole)
    assert {field.name for field in frame.schema} == {*SCHEMA.names, "job", "day"}


def test_a_line_that_comes_after_its_hour_was_rolled_up_is_counted(
    shipped: SparkSession, tmp_path: Path
) -> None:
    control, output = open_store(tmp_path / "jobs"), open_store(tmp_path / "rolled")
    lines = [line(batch, batch * 600) for batch in range(12)]
    write(control, "flights/progress/main/0000000001.jsonl", *lines[:9])
    (one,) = roll_up(shipped, control.uri, ["flights"], output, now=at(7200))
    assert (one.hours, one.counts["records"], one.counts["late"]) == (2, 9, 0)
    write(control, "flights/progress/main/0000000001.jsonl", *lines[:12])
    write(control, "flights/progress/main/0000000002.jsonl", line(12, 7300, epoch=2))
    (one,) = roll_up(shipped, control.uri, ["flights"], output, now=at(10_800))
    assert (one.hours, one.counts["records"], one.counts["late"]) == (1, 1, 3)
    (one,) = roll_up(shipped, control.uri, ["flights"], output, now=at(14_400))
    assert (one.hours, one.counts["late"]) == (0, 0), "told once"


def test_two_at_the_same_time_write_nothing_twice(
    shipped: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control, output = open_store(tmp_path / "jobs"), open_store(tmp_path / "rolled")
    history(control)

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.setattr(room, "rolled_hours", rolled_hours)
        (other,) = roll_up(shipped, control.uri, ["flights"], output, now=at(86_400 + 7200))
        assert other.hours == 26
        return rolled_hours(*arguments)

    monkeypatch.setattr(room, "rolled_hours", overtaken)
    (one,) = roll_up(shipped, control.uri, ["flights"], output, now=END)
    assert (one.overtaken, one.hours) == (True, 0)
    with pytest.raises(ConflictError) as refused:
        room._refuse_overtaken([one])
    assert refused.value.code == "rolled-up-meanwhile"
    (one,) = roll_up(shipped, control.uri, ["flights"], output, now=END)
    assert not one.overtaken
    assert by_key(rolled(output)) == engine_says(control, "flights", "main", END)


def row(hour: int) -> HourRow:
    return HourRow(hour, None, "batch_s", 1, 1.0, 1.0, 1.0, 1.0)


def test_the_newest_file_says_how_far_it_goes(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    assert marks(store, "flights", ["main", "left"]) == {"main": Mark(), "left": Mark()}
    hours = int(at(0).timestamp()) // 3600
    mark = Mark(at(3 * 3600), {"progress/main/0000000001.jsonl": 7}, {"run": 3})
    assert add(store, "flights", "main", [row(hours + 2)], begin=None, mark=mark).endswith("/main.00.parquet")
    assert marks(store, "flights", ["main"])["main"] == mark
    later = Mark(at(40 * 3600))
    key = add(store, "flights", "main", [row(hours + 5)], begin=mark.through, mark=later)
    assert key.endswith("day=2026-11-01/main.03.parquet")
    found = marks(store, "flights", ["main", "left"])
    assert found["main"].through == at(24 * 3600), "another day is another file"
    assert found["left"] == Mark()
    with pytest.raises(ConflictError):
        add(store, "flights", "main", [row(hours + 5)], begin=mark.through, mark=later)
    assert moment(hours) == at(0)


@pytest.mark.parametrize("data", [b"", b"PAR1", b"nonsense"])
def test_a_damaged_file_is_no_reason_to_begin_anew(tmp_path: Path, data: bytes) -> None:
    store = open_store(tmp_path)
    store.write("job=flights/day=2026-11-01/main.00.parquet", data)
    with pytest.raises(FormatError) as damaged:
        marks(store, "flights", ["main"])
    assert damaged.value.code == "damaged-roll-up"
    assert "main.00.parquet" in damaged.value.message


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["-o", "out"], 2, "Say where the records are, once."),
        (["-o", "out", "--jobs", "f", "--control", "c"], 2, "Say where the records are, once."),
        (["-o", "out", "--control", "c", "--settle", "10"], 2, "'10' is no duration."),
        (["-o", "out", "--control", "c", "--portion", "much"], 2, "'much' is no size"),
        (["-o", "out", "--control", "c", "--portion", "0"], 2, "A portion holds one byte at least."),
        (["-o", "out", "--control", "nowhere"], 3, "no progress records of any job at nowhere"),
        (["-o", "out", "--control", "nowhere", "--job", "a"], 3, "no progress records of a at nowhere"),
        (["-o", "out", "--jobs", "nowhere.toml"], 2, "nowhere.toml"),
    ],
)
def test_what_is_wrong_with_the_arguments_is_said_before_spark_starts(
    arguments: list[str],
    code: int,
    says: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == code
    assert says in capsys.readouterr().err


def test_help_says_what_comes_out(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["--help"])
    assert not ended.value.code
    assert "95th percentile" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(InputError):
        parse(["-o", "out"])


def test_jobs_whose_records_are_at_several_locations_are_rolled_up_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(
        'repository = "repository"\n'
        '[jobs.a]\napplication = "a.py"\ncheckpoint = "ck/a"\n'
        '[jobs.b]\napplication = "b.py"\ncheckpoint = "ck/b"\ncontrol = "control"\n'
    )
    asked = ["--jobs", str(tmp_path / "jobs.toml"), "--output", str(tmp_path / "out")]

    with pytest.raises(InputError, match="at 2 locations"):
        room._jobs(parse(asked))
    assert room._jobs(parse([*asked, "--job", "b"])) == (f"file://{tmp_path}/control", ["b"])
    assert room._jobs(parse([*asked, "--job", "a"])) == (f"file://{tmp_path}/repository/jobs", ["a"])
