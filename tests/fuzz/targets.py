"""What is fuzzed: parsers one by one, and verbs over whole checkpoints, repositories and records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from zlib import crc32

from streambank.checkpoint.compactible import parse_log_entry
from streambank.checkpoint.logs import parse_commit, parse_metadata, parse_offsets
from streambank.checkpoint.operators import parse_operator_metadata
from streambank.checkpoint.paths import rewrite_operator_metadata, schema_paths
from streambank.checkpoint.reader import CheckpointReader
from streambank.checkpoint.rewritten import with_conf
from streambank.checkpoint.schema.store import is_keyless, parse_state_schema, parse_variables
from streambank.checkpoint.schema.unnamed import only_columns, operator_name
from streambank.checkpoint.sources import check_initial_offsets
from streambank.checkpoint.state.changelog import UnreadableLineageError, parse_lineage
from streambank.checkpoint.state.changes import elements, head_of_changes
from streambank.checkpoint.state.lz4 import LZ4Error, decompress_prefix
from streambank.checkpoint.state.rocksdb import read_zip_metadata
from streambank.checkpoint.state.unsafe_row import leaves
from streambank.control.control import JobControl
from streambank.control.marker import Marker
from streambank.control.records import decode_json
from streambank.core.errors import FormatError, StreambankError
from streambank.core.lines import pieces
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.doctor.diagnose import diagnose_checkpoint
from streambank.driver.launcher import Handle
from streambank.driver.launchers.local import LocalLauncher
from streambank.driver.prepare import prepare_launch
from streambank.driver.spark_properties import read_properties
from streambank.driver.spec import decode_launch, write_launch
from streambank.job.history import job_history
from streambank.job.status import job_status
from streambank.kafka.offsets import parse_offsets as parse_kafka_offsets
from streambank.repository.catalog import summarize
from streambank.repository.manifest import decode, glance
from streambank.repository.repository import Repository
from streambank.repository.sealed import decode_record
from streambank.retention.expire import expire
from streambank.retention.policy import Policy
from streambank.retention.sweep import sweep
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from streambank.sinks.file.capture import FileSinkCapture
from streambank.sinks.file.rows import count_rows
from streambank.sla.assess import assess_checkpoint, assess_job
from streambank.storage import open_store
from streambank.storage.memory import MemoryStore
from streambank_spark.rewrite.hdfs_files import load_rows
from tests.fuzz import of_airflow, of_declarations, of_records, of_webhdfs
from tests.fuzz.inputs import MOST_BYTES, Target, changed, each, filled, named
from tests.support.checkpoint.file_sink import FileSinkWriter
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.checkpoint.recorded import NAMES, checkpoint
from tests.support.paths import ROOT

CHECKPOINTS = tuple(name for name in NAMES if not name.endswith(("async", "join3", "zstd")))


def files_of(*parts: str) -> Callable[[], Sequence[bytes]]:
    """Files of recorded checkpoints with a part of these in their names, each content once."""

    @cache
    def found() -> Sequence[bytes]:
        seen = {
            data
            for name in CHECKPOINTS
            for path, data in checkpoint(name).files.items()
            if any(part in path for part in parts)
            and 0 < len(data) <= MOST_BYTES
            and not path.endswith(".crc")
        }
        return sorted(seen, key=lambda data: (len(data), data))[:200]

    return found


def _lineage(data: bytes) -> None:
    try:
        parse_lineage(data, "a.changelog")
    except UnreadableLineageError:
        return


def _changes(data: bytes) -> None:
    kind = {
        "fields": [{"name": "a", "type": "string"}, {"name": "b", "type": {"type": "struct", "fields": []}}]
    }
    for path in ("1.changelog", "1.delta"):
        try:
            for change in head_of_changes(data, path, 1 << 16):
                leaves(change.key, kind)
                leaves(change.value, kind)
                elements(change.value)
        except (UnreadableLineageError, FormatError):
            continue


def _lz4(data: bytes) -> None:
    try:
        decompress_prefix(data, 1 << 20)
    except LZ4Error:
        return


def _zip(data: bytes) -> None:
    def read(path: str, offset: int = 0, length: int | None = None) -> bytes:
        return data[offset : None if length is None else offset + length]

    read_zip_metadata("a.zip", len(data), read)


def _rows(data: bytes) -> None:
    for codec in ("lz4", "zstd", "snappy", "none"):
        try:
            load_rows(lambda _: data, ["a.delta"], codec)
        except StreambankError:
            continue


def _progress() -> Sequence[bytes]:
    found = [path.read_bytes() for path in sorted((ROOT / "tests/data/progress").rglob("*.jsonl"))]
    return [data[:MOST_BYTES].rpartition(b"\n")[0] + b"\n" for data in found]


def _history(data: bytes) -> None:
    store = MemoryStore("fuzz-history")
    store.write("history/0000000001.jsonl", data)
    assess_checkpoint("memory://fuzz-none/x", history="memory://fuzz-history/history")


def _jobs_files() -> Sequence[bytes]:
    # A hidden folder holds what was installed, and what is being installed beside this.
    folders = (one for one in ROOT.iterdir() if one.is_dir() and not one.name.startswith("."))
    found = (path for folder in folders for path in folder.rglob("streaming_jobs.toml"))
    return [path.read_bytes() for path in sorted(found)]


def _jobs_file(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "jobs.toml"
        file.write_bytes(data)
        load_jobs(file, variables={"STREAMBANK_DEMO_HOME": folder})


def _parquet() -> Sequence[bytes]:
    found = [path.read_bytes() for path in sorted((ROOT / "tests/data").rglob("*.parquet"))]
    return [data for data in found if len(data) <= MOST_BYTES] or [
        b"PAR1" + bytes(8) + b"\x04\x00\x00\x00PAR1"
    ]


def _rows_of_parquet(data: bytes) -> None:
    store = MemoryStore("fuzz-parquet")
    store.write("a.parquet", data)
    count_rows(store, "a.parquet")


SMALL = "4.3.0/hdfs-short"


def _whole_checkpoint(data: bytes) -> None:
    filled("fuzz-checkpoint", changed(checkpoint(SMALL).files, data))
    store = open_store("memory://fuzz-checkpoint")
    asks = (
        lambda: CheckpointReader(store).inspect(),
        lambda: diagnose_checkpoint(store.uri),
        lambda: assess_checkpoint(store.uri),
        lambda: take(TakeRequest(store, _empty_repository(), "orders")),
    )
    asks[crc32(data) % len(asks)]()


def _empty_repository() -> Repository:
    return Repository.open(filled("fuzz-empty", {}), create=True)


@cache
def repository_files() -> Mapping[str, bytes]:
    """A repository with savepoints of two jobs, one expired, with marks and a sweep."""
    name = "memory://fuzz-made"
    repository = Repository.open(open_store(f"{name}/repository"), create=True)
    for job in ("orders", "sales"):
        live = LiveCheckpoint(open_store(f"{name}/{job}"))
        sink = FileSinkWriter(open_store(f"{name}/{job}-out"))
        for batch in range(3):
            live.plan()
            sink.write(batch, [{"n": batch}])
            live.commit()
            capture = FileSinkCapture(sink.store.uri, sink.store)
            taken = take(TakeRequest(live.store, repository, job, sinks=[capture]))
        verify(repository, job, taken.savepoint, "full")
        repository.pin(job, taken.savepoint)
    expire(repository, Policy(keep_last=1, min_verified=0))
    sweep(repository)
    return {info.path: repository.store.read(info.path) for info in repository.store.list()}


def _whole_repository(data: bytes) -> None:
    store = filled("fuzz-repository", changed(repository_files(), data))
    repository = Repository.open(store)
    asks = (
        lambda: list(summarize(store)),
        lambda: [verify(repository, one.job, one.savepoint, "quick") for one in summarize(store)],
        lambda: expire(repository, Policy(keep_last=1, min_verified=0), dry_run=True),
        lambda: sweep(repository, dry_run=True),
    )
    asks[crc32(data) % len(asks)]()


@cache
def _job() -> Job:
    return Job(
        "orders",
        "/nowhere/app.py",
        "memory://fuzz-job/checkpoint",
        {"main": "memory://fuzz-job/checkpoint"},
        "memory://fuzz-job/repository",
        "memory://fuzz-control/x",
    )


@cache
def control_files() -> Mapping[str, bytes]:
    """The records of a job that has run."""
    store = MemoryStore("fuzz-records").child("x/orders")
    control = JobControl(store, "orders")
    by = {"user": "ann", "via": "cli"}
    control.set_desired("stopped", by=by, why="a test")
    control.generations().ensure_first("memory://fuzz-job/checkpoint", by=by)
    with control.operation("start", by=by), control.lease.held("restore", by=by) as claim:
        claim.beat({"state": "running", "batch": 3, "queries": {"main": {"batch": 3}}})
    control.record_event("driver-ended", launch_id="launch-1", epoch=1, exit_code=1)
    control.record_event("query-ended", launch_id="launch-1", query="main", failure="ValueError: x")
    control.record_query(None, {"generation": 1, "query_id": "q", "sink": "FileSink[file:/o]", "sources": []})
    store.write(
        "restores/0000000001.json", b'{"savepoint": "b000001-aa", "batch": 1, "at": "2026-11-21T10:00:00Z"}'
    )
    store.write("progress/main/0000000001.jsonl", _progress()[0][:8000].rpartition(b"\n")[0] + b"\n")
    return {info.path: store.read(info.path) for info in store.list()}


def _whole_control(data: bytes) -> None:
    files = {f"x/orders/{path}": content for path, content in changed(control_files(), data).items()}
    filled("fuzz-control", files)
    asks = (
        lambda: job_status(_job(), launcher=_Nowhere()),
        lambda: job_history(_job()),
        lambda: assess_job(_job()),
    )
    asks[crc32(data) % len(asks)]()


class _Nowhere(LocalLauncher):
    """Finds no drivers: those of this machine are none of a test's."""

    def find(self, control: JobControl) -> list[Handle]:
        return []


@cache
def _launches() -> Sequence[bytes]:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "jobs.toml"
        file.write_text(
            'repository = "r"\n[jobs.a]\napplication = "a.py"\ncheckpoint = "c"\nargs = ["x", "y"]\n'
        )
        (Path(folder) / "a.py").touch()
        job = load_jobs(file).job("a")
        control = job.records()
        spec = prepare_launch(job, control, by={"user": "ann"})
        write_launch(control, spec)
        return [control.store.read(spec.key)]


MARKER = b"""{"format": 1, "job": "a", "query": "main", "generation": 2, "location": "file:///c",
"control": "file:///x",
"repository": "file:///r", "repository_id": "1", "query_id": "q", "sink": "FileSink", "sink_path": null,
"at": "2026-11-21T10:00:00Z", "by": {"user": "ann"},
"accepted": {"at": "", "by": {}, "why": "", "was": {}}}"""


def _sealed_files() -> Sequence[bytes]:
    return [
        data for path, data in repository_files().items() if path.endswith((".json", "last-sweep")) and data
    ]


TARGETS: Mapping[str, Target] = {
    "offsets": Target(
        files_of("offsets/"), each(lambda data: parse_offsets(data), lambda data: with_conf(data, "o", {}))
    ),
    "commits": Target(files_of("commits/"), lambda data: parse_commit(data)),
    "metadata": Target(
        lambda: [checkpoint(name).files["metadata"] for name in CHECKPOINTS],
        lambda data: parse_metadata(data),
    ),
    "source-log": Target(
        files_of("sources/"),
        each(
            lambda data: check_initial_offsets(data, "s"),
            lambda data: list(parse_log_entry(pieces(data), "s")[1]),
        ),
    ),
    "kafka-offsets": Target(
        lambda: [b'{"t":{"0":12,"1":7}}', b'{"a.b":{"0":-1},"c":{"3":9007199254740993}}'],
        lambda data: parse_kafka_offsets(data.decode("utf-8", "replace")),
    ),
    "changelog": Target(files_of(".changelog", ".delta"), _lineage),
    "state-changes": Target(files_of(".changelog", ".delta"), _changes),
    "lz4": Target(files_of(".changelog", ".delta", ".snapshot"), _lz4),
    "rocksdb-zip": Target(files_of(".zip"), _zip),
    "hdfs-rows": Target(files_of(".delta", ".snapshot"), _rows),
    "state-schema": Target(
        files_of("_metadata/schema", "_stateSchema"),
        each(
            lambda data: parse_state_schema(data, "schema"),
            lambda data: operator_name({"default": only_columns(data, "schema")}),
            lambda data: parse_variables(data, "schema"),
            is_keyless,
        ),
    ),
    "operator-metadata": Target(
        files_of("_metadata/metadata", "_metadata/v2"),
        each(
            lambda data: parse_variables(data, "m"),
            lambda data: parse_operator_metadata(data, "m"),
            lambda data: rewrite_operator_metadata(data, "m", "file:///new"),
            lambda data: schema_paths(data, "m"),
        ),
    ),
    "sink-log": Target(
        lambda: [
            b'v1\n{"path":"file:///o/a.json","size":3,"isDir":false,"modificationTime":1,"blockReplication":1,'
            b'"blockSize":1,"action":"add"}'
        ],
        lambda data: list(parse_log_entry(pieces(data), "l")[1]),
    ),
    "parquet-footer": Target(_parquet, _rows_of_parquet),
    "progress": Target(_progress, _history),
    "jobs-file": Target(_jobs_files, _jobs_file),
    "properties": Target(
        lambda: [b"spark.a b\nspark.c = d\\\n  e\n# x\n"],
        lambda data: read_properties(data.decode("utf-8", "replace")),
    ),
    "launch-spec": Target(_launches, lambda data: decode_launch(data)),
    "marker": Target(lambda: [MARKER], lambda data: Marker.from_dict(decode_json(data, "m"), "m")),
    "sealed": Target(
        _sealed_files,
        each(lambda data: decode(data), lambda data: glance(data), lambda data: decode_record(data, "r")),
    ),
    "checkpoint": Target(lambda: named(checkpoint(SMALL).files), _whole_checkpoint, is_tree=True),
    "repository": Target(lambda: named(repository_files()), _whole_repository, is_tree=True),
    "records": Target(lambda: named(control_files()), _whole_control, is_tree=True),
    **of_records.TARGETS,
    **of_airflow.TARGETS,
    **of_declarations.TARGETS,
    **of_webhdfs.TARGETS,
}
