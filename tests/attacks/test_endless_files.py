"""Who can write a file, or the name of a pattern, keeps whoever reads it busy, or fills the memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from streambank.checkpoint.files import MAX_ENTRY_BYTES
from streambank.checkpoint.reader import CheckpointReader
from streambank.checkpoint.schema.store import parse_state_schema
from streambank.control.marker import marker_location, read_marker
from streambank.control.progress import last_of_segment, read_segment
from streambank.control.records import RecordStream
from streambank.core.errors import FormatError, InputError, IntegrityError
from streambank.core.signing import VARIABLE, new_key
from streambank.core.units import parse_bytes, parse_duration_s
from streambank.driver.failure import shown
from streambank.kafka.topics import topic_pattern
from streambank.replicas.replicate import read_manifest
from streambank.repository.catalog import manifest_key
from streambank.repository.manifest import decode_head
from streambank.repository.marks import read_mark
from streambank.repository.repository import Repository
from streambank.repository.sealed import encode_record, unseal
from streambank.savepoint.sign import sign_savepoint
from streambank.storage import open_store
from streambank.storage.store import MAX_RECORD_BYTES
from streambank.work.pace import parse_rate
from streambank.work.target import read_note
from streambank_spark.rewrite.hdfs_files import load_rows, snapshot
from tests.support.checkpoint.recorded import unpack
from tests.support.cli import streambank
from tests.support.jobs.simulated_job import JOB, SimulatedJob
from tests.support.refuses import refuses
from tests.support.waiting import at_most_of_a_processor

CHUNK = 1 << 20


def test_metadata_with_holes_is_not_read_whole(tmp_path: Path) -> None:
    os.truncate(os.open(tmp_path / "metadata", os.O_CREAT | os.O_WRONLY), 1 << 40)
    with pytest.raises(FormatError) as caught:
        CheckpointReader(open_store(tmp_path)).query_id()
    assert caught.value.code == "half-written" and str(MAX_ENTRY_BYTES) in caught.value.message


def test_metadata_with_holes_in_a_place_to_restore_to_is_not_read_whole(tmp_path: Path) -> None:
    os.truncate(os.open(tmp_path / "metadata", os.O_CREAT | os.O_WRONLY), 1 << 40)
    assert read_note(open_store(tmp_path)) is None


@pytest.mark.parametrize("which", ["record", "mark", "marker", "progress"])
def test_a_record_with_holes_is_not_read_whole(tmp_path: Path, which: str) -> None:
    """A file of a terabyte in the place of a record: reading it whole would fill the memory."""
    store, checkpoint = open_store(tmp_path), str(tmp_path / "ck")
    key = {
        "record": "generation/0000000001.json",
        "mark": "marks/orders/b000003-x/verified-0000000001.json",
        "marker": str(marker_location(checkpoint)).rpartition("/")[2],
        "progress": "progress/main/0000000001.jsonl",
    }[which]
    path = tmp_path / key
    path.parent.mkdir(parents=True, exist_ok=True)
    os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 1 << 40)
    if which == "progress":
        found = read_segment(store, key)
        assert found is not None and (found.records, found.torn) == ([], True)
        assert last_of_segment(store, key) is None
        return
    read: Callable[[], object] = {
        "record": lambda: RecordStream(store, "generation").read(1),
        "mark": lambda: read_mark(store, "orders", "b000003-x", "verified-0000000001.json"),
        "marker": lambda: read_marker(checkpoint),
    }[which]
    with pytest.raises((FormatError, IntegrityError), match=f"more than {MAX_RECORD_BYTES} bytes") as caught:
        read()
    assert caught.value.code in ("damaged-record", "record-damaged")


def test_a_manifest_with_holes_is_neither_signed_nor_replicated_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = SimulatedJob(tmp_path / "shop", sink=False).run(3)
    taken = shop.take().savepoint
    os.truncate(tmp_path / "shop/repository" / manifest_key(JOB, taken), 1 << 40)
    new_key(tmp_path / "keys")
    monkeypatch.setattr("streambank.repository.sealed.LONGEST_LINE_BYTES", 64 * CHUNK)
    with pytest.raises(IntegrityError):
        read_manifest(shop.repository, JOB, taken)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "keys"))
    answer = sign_savepoint(Repository.open(shop.repository_store), JOB, taken)
    assert not answer.signed and taken in answer.says


def test_zstd_does_not_unpack_into_all_memory() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(300 << 20))
    assert len(bomb) < 20_000
    with pytest.raises(FormatError) as caught:
        load_rows(lambda path: bomb, ["1.snapshot"], "zstd")
    assert caught.value.code == "half-written" and "1.snapshot has" in caught.value.message
    rows = {b"key": bytes(1 << 20)}
    assert load_rows(lambda path: snapshot(rows, "zstd"), ["1.snapshot"], "zstd") == rows


@pytest.mark.parametrize("filling", [b"\0", b"a"])
def test_a_line_without_an_end_is_read_once_and_not_whole(
    filling: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambank.repository.sealed.LONGEST_LINE_BYTES", 64 * CHUNK)
    given = 0

    def chunks() -> object:
        nonlocal given
        while True:
            given += 1
            yield filling * CHUNK

    with at_most_of_a_processor(5), pytest.raises(IntegrityError) as caught:
        decode_head(chunks(), "savepoint b000003")  # type: ignore[arg-type]
    assert caught.value.code == "record-damaged" and "b000003" in caught.value.message
    assert given <= 65


def test_what_follows_a_seal_is_not_gathered() -> None:
    """Nor is a good file refused that comes a byte at a time."""
    data = encode_record({"kind": "pin"}, "blake3")
    assert len(list(unseal((data[at : at + 1] for at in range(len(data))), "record_digest", "mark"))) == 2
    given = 0

    def chunks() -> object:
        nonlocal given
        yield data
        while True:
            given += 1
            yield b"\n" * CHUNK

    with pytest.raises(IntegrityError):
        list(unseal(chunks(), "record_digest", "mark"))  # type: ignore[arg-type]
    assert given == 1


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "password",
        "key_",
        "x.y_",
        "token ",
        "://a:",
        "://a:b/",
        "secret",
        "password='",
        'pwd="',
        "Bearer ",
        "--token",
        " --a",
        "jdbc:oracle:thin:",
        "jdbc:oracle:thin:x/",
        "jdbc:oracle:thin:x/y",
    ],
)
def test_what_a_query_says_at_its_end_is_searched_for_secrets_in_one_pass(text: str) -> None:
    """An exception may quote a megabyte of Base64: each letter was taken for the beginning of a name.

    A quarter of one tells as well: what is searched anew from each letter takes minutes for that, too.
    """
    with at_most_of_a_processor(5):
        assert len(shown(text * (250_000 // len(text)), {})) < 600


@pytest.mark.parametrize("number", ["9" * 400 + "GB", "9" * 400 + "d"])
def test_a_number_beyond_all_floats_is_no_size_and_no_duration(number: str) -> None:
    with pytest.raises(InputError) as caught:
        (parse_bytes if number.endswith("B") else parse_duration_s)(number)
    assert caught.value.code in ("bad-size", "bad-duration") and len(caught.value.message) < 100
    with pytest.raises(InputError):
        parse_rate(f"{number[:-1]}GB/s")


@pytest.mark.parametrize(
    "field",
    [
        '{"name": "k"}',
        '{"name": 1, "type": "long"}',
        '{"name": "k", "type": {"type": "array"}}',
        '{"name": "k", "type": {"type": "struct"}}',
        '{"name": "k", "type": {"type": "map", "keyType": "long"}}',
        "1",
    ],
)
def test_a_schema_of_state_that_is_none_is_damage(field: str) -> None:
    whole, struct = '{"type": "struct", "fields": []}', f'{{"type": "struct", "fields": [{field}]}}'
    data = b"".join(len(text).to_bytes(2, "big") + text.encode() for text in ("v1", whole, struct))
    with refuses(FormatError, "half-written"):
        parse_state_schema(data, "state/0/_stateSchema")


@pytest.mark.parametrize(
    "pattern", ["(a+)+", "(a|aa)*b", "(?:(a?)){50}", "a?" * 40, ".*.*.*.*x", "(?i)(a+)+", "(?x)(a+) +"]
)
def test_a_pattern_that_could_run_for_years_is_not_run(pattern: str) -> None:
    assert topic_pattern(pattern) is None


@pytest.mark.parametrize(
    "pattern",
    [
        *("flights", "flights.*", ".*ights-?.*", "(?i)FLIGHTS(-v[0-9]+)?", "(weather|flights|orders.*)"),
        *("[a-z]+", "(?:fl)+ights", "[(]?flights[)+]?", "\\(?flights"),
    ],
)
def test_the_patterns_of_real_queries_are_run(pattern: str) -> None:
    read = topic_pattern(pattern)
    assert read is not None and read.fullmatch("flights")
    with at_most_of_a_processor(1):
        read.fullmatch("a" * 249)


def test_the_worst_pattern_that_is_run_ends() -> None:
    read = topic_pattern("a*a*a*x")
    assert read is not None
    with at_most_of_a_processor(5):
        assert read.fullmatch("a" * 249) is None


@pytest.mark.parametrize("second", [-86_400, 10_413_792_000])
def test_files_from_before_1970_or_after_2262_are_saved(tmp_path: Path, second: int) -> None:
    checkpoint = unpack("4.3.0/hdfs-window", tmp_path) / "checkpoint"
    for name in ("metadata", "offsets/0"):
        os.utime(checkpoint / name, (second, second))
    assert streambank("inspect", str(checkpoint), "--json").code == 0
    for _ in range(2):
        taken = streambank(
            "take", str(checkpoint), "--job", "x", "-r", str(tmp_path / "repository"), "--json"
        )
        assert taken.code == 0, taken
    assert taken.document["already_there"] is True
