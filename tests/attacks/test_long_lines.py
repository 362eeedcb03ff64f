"""One long line, or a text that grows in memory, in a file of lines: no parser takes over 300 MB."""

from __future__ import annotations

import gc
import itertools
import os
import resource
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from streambank.checkpoint.compactible import parse_log_entry
from streambank.checkpoint.files import MAX_ENTRY_BYTES
from streambank.checkpoint.logs import parse_commit, parse_offsets
from streambank.checkpoint.watermark import committed_watermark
from streambank.control.progress import MOST_BYTES, read_segment
from streambank.core.errors import FormatError, IntegrityError, RefusedError, StreambankError
from streambank.core.json_text import loads
from streambank.core.lines import pieces
from streambank.repository.digest import digest_of, split_digest
from streambank.repository.manifest import decode
from streambank.repository.objects.index import decode_index, index_key, read_index
from streambank.repository.objects.packs import TRAILER_BYTES, pack_key, read_pack
from streambank.repository.sealed import LONGEST_LINE_BYTES, decode_record, field_line, head_lines
from streambank.sinks.file.capture import FileSinkCapture
from streambank.sinks.file.log import Roots, parse_entry
from streambank.sinks.file.position import assess, read_saved_log
from streambank.storage import open_store
from tests.fuzz.run import ANSWER_S, ROOM_BYTES
from tests.support.refuses import refuses

LONG = 512 << 20
NESTED = b"[" * 500 + b"1" + b"]" * 500
ID = "a" * 64


def endless(first: bytes, filling: bytes) -> Iterator[bytes]:
    """A file of 512 MiB on one line, a chunk at a time."""
    yield first
    for _ in range(LONG >> 20):
        yield filling * ((1 << 20) // len(filling))


def holes(path: Path, first: bytes = b"", size_bytes: int = LONG) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(first)
    os.truncate(path, size_bytes)
    return path


def grown(most_bytes: int) -> bytes:
    """A list of lists, which takes 44 times its length when it is read."""
    return b"[" + b",".join(itertools.repeat(NESTED, most_bytes // (len(NESTED) + 1) - 1)) + b"]"


def refused(read: Callable[[], object], code: str, name: str, cpu_s: float = ANSWER_S) -> None:
    """Assert that a read ends in this error that names the file, with 300 MB and so much processor time."""
    child = os.fork()
    if child == 0:
        gc.freeze()  # what libraries with threads have made cannot be collected where these threads are not
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s + time_s()) + 1, int(cpu_s + time_s()) + 60))
            room = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 + ROOM_BYTES
            try:
                read()
            except StreambankError as error:
                assert (error.code, name in error.message) == (code, True), error
            else:
                raise AssertionError("it was read")
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            assert peak <= room, f"{(peak - room + ROOM_BYTES) >> 20} MiB"
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def time_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("filling", [b"a", b"[", b"\0", b'{"path":1}'])
def test_a_line_of_a_sink_log_or_source_log_is_not_gathered(filling: bytes) -> None:
    refused(
        lambda: list(parse_entry(endless(b"v1\n", filling), "_spark_metadata/7", Roots("file:///out"))),
        "half-written",
        "_spark_metadata/7",
    )
    refused(lambda: parse_log_entry(endless(b"", filling), "sources/0/7"), "half-written", "sources/0/7")


def test_many_lines_of_a_log_are_never_in_memory_together() -> None:
    line = b'{"path":"file:///out/a","size":1,"action":"add"}\n'
    version, entries = parse_log_entry(itertools.chain([b"v1\n"], [line * 1000] * 100), "7")
    assert version == 1 and sum(1 for _ in entries) == 100_000


@pytest.mark.parametrize("size_bytes", [LONG, 1 << 40])
def test_a_sink_log_with_holes_is_neither_saved_nor_compared(tmp_path: Path, size_bytes: int) -> None:
    output = open_store(tmp_path / "out")
    holes(tmp_path / "out/_spark_metadata/0", b'v1\n{"path":"', size_bytes)
    refused(lambda: FileSinkCapture(output.uri, output).capture(0), "half-written", "_spark_metadata/0")
    record = {"path": output.uri, "batch": 0, "data_files": 0}
    saved = read_saved_log(record, {"_spark_metadata/0": partial(pieces, b"v1")}, output.uri)
    standing = assess(saved, output, output.uri)
    assert (standing.standing, standing.can_roll_back) == ("damaged", False)
    assert "_spark_metadata/0" in standing.problem


def test_a_log_that_a_savepoint_keeps_is_refused_by_name() -> None:
    record = {"path": "file:///out", "batch": 0, "data_files": 0}
    content = {"_spark_metadata/0": partial(pieces, b"v1\n" + b"[" * (64 << 20))}
    refused(lambda: read_saved_log(record, content, "file:///new"), "half-written", "_spark_metadata/0")


@pytest.mark.parametrize("filling", [b"a", b"\0", b'["a"],'])
def test_a_line_of_a_manifest_is_not_gathered(filling: bytes) -> None:
    head = b"".join(head_lines("blake3"))
    refused(lambda: decode(endless(head + b'"sinks": [', filling), "savepoint b7"), "record-damaged", "b7")


def test_records_that_grow_in_memory_are_refused() -> None:
    head = b"".join(head_lines("blake3"))
    for size_bytes in (LONGEST_LINE_BYTES, 16 << 20):
        data = head + b'"x": ' + grown(size_bytes - 200) + b',\n"record_digest": ""\n}\n'
        refused(partial(decode_record, data, "mark m"), "record-damaged", "mark m")
    with pytest.raises(ValueError, match="too much memory"):
        loads(grown(16 << 20))


def test_no_line_is_written_that_readers_refuse() -> None:
    with refuses(RefusedError, "record-too-large"):
        field_line("sinks", ["x" * LONGEST_LINE_BYTES])
    assert len(field_line("sinks", ["x" * (LONGEST_LINE_BYTES - 20)])) <= LONGEST_LINE_BYTES


def test_the_logs_of_a_checkpoint_are_bounded(tmp_path: Path) -> None:
    grow = grown(MAX_ENTRY_BYTES - 100)
    refused(lambda: parse_offsets(b"v1\n{}\n" + grow, "offsets/7"), "half-written", "offsets/7")
    refused(lambda: parse_commit(b'v1\n{"a":' + grow + b"}", "commits/7"), "half-written", "commits/7")
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits/7").write_bytes(b"v1\n{}")
    holes(tmp_path / "offsets/7", b"v1\n")
    refused(lambda: committed_watermark(open_store(tmp_path)), "half-written", "offsets/7")


@pytest.mark.parametrize("first", [b"", b'{"index": 1, "digest": "blake3"}\n{"pack": "'])
def test_an_index_file_with_holes_is_not_read_whole(tmp_path: Path, first: bytes) -> None:
    holes(tmp_path / index_key(ID), first, 1 << 40)
    refused(lambda: read_index(open_store(tmp_path), ID, "blake3"), "index-damaged", index_key(ID))


def test_a_line_of_an_index_file_is_bounded() -> None:
    refused(lambda: decode_index(ID, endless(b"", b"a"), "blake3"), "index-damaged", index_key(ID))
    data = b'{"index": 1, "digest": "blake3"}\n' + grown(32 << 20)
    index_id = split_digest(digest_of("blake3", data))[1]
    refused(lambda: decode_index(index_id, pieces(data), "blake3"), "index-damaged", index_id)


def test_a_pack_whose_table_is_a_hole_is_not_read_whole(tmp_path: Path) -> None:
    path = holes(tmp_path / pack_key(ID), size_bytes=1 << 40)
    trailer = b"streambank-pack 01 %016d blake3:%b\n" % ((1 << 40) - 1000, ID.encode())
    assert len(trailer) == TRAILER_BYTES
    with path.open("r+b") as file:
        file.seek(-TRAILER_BYTES, os.SEEK_END)
        file.write(trailer)
    refused(lambda: read_pack(open_store(tmp_path), ID), "pack-damaged", pack_key(ID))


def test_progress_records_that_grow_in_memory_count_as_damaged(tmp_path: Path) -> None:
    line = (
        b'{"at":"2026-11-21T10:20:01.966Z","epoch":1,"query":"main","run_id":"r","batch":1,"progress":{"a":'
        + grown(1 << 20)
        + b"}}\n"
    )
    (tmp_path / "progress/main").mkdir(parents=True)
    (tmp_path / "progress/main/0000000001.jsonl").write_bytes(line * (MOST_BYTES // len(line)))

    def read() -> None:
        found = read_segment(open_store(tmp_path), "progress/main/0000000001.jsonl")
        assert found is not None and found.records and found.damaged and not found.torn
        raise FormatError("segment", code="read")

    refused(read, "read", "segment")


def test_the_errors_are_of_the_kind_that_readers_expect(tmp_path: Path) -> None:
    with pytest.raises(FormatError):
        parse_log_entry(endless(b"", b"a"), "7")
    holes(tmp_path / index_key(ID))
    with pytest.raises(IntegrityError):
        read_index(open_store(tmp_path), ID, "blake3")
