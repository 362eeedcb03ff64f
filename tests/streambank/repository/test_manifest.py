from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streambank.core.errors import FormatError, IntegrityError, StreambankError
from streambank.repository.digest import digest_of
from streambank.repository.manifest import (
    MANIFEST_SEAL,
    FileEntry,
    Manifest,
    decode,
    decode_head,
    encode,
    glance,
    savepoint_id,
)
from streambank.repository.sealed import seal
from streambank.storage.names import is_key
from tests.support.refuses import refuses
from tests.support.repository.repositories import manifest_of

DIGEST = digest_of("blake3", b"")
FULL = manifest_of(
    taken_by={"user": "ann", "host": "h", "reason": "before the upgrade"},
    note='two\nlines, "quotes", ünïcode \u2028 and a \\',
    checkpoint="file:///data/ck",
    watermark_ms=1_357_000_000_000,
    operators=({"operator": 0, "name": "stateStoreSave", "stores": [{"store": "default", "rows": None}]},),
    spark_version="4.3.0",
    application={"digest": "blake3:00"},
    conf=None,
    offset_conf={"spark.sql.shuffle.partitions": "2"},
    sources=({"source": 0, "offset": {"logOffset": 3}},),
    sinks=(
        {
            "kind": "file",
            "path": "file:///out",
            "files": [FileEntry("_spark_metadata/3", 0, DIGEST).to_dict()],
        },
    ),
    parent="b000002-0123456789ab",
    stats={"new_bytes": 5, "new_files": 1, "replans": 0, "seconds": 0.25},
)


def encoded(manifest: Manifest) -> bytes:
    return b"".join(encode(manifest))


def resealed(data: bytes, *changes: tuple[bytes, bytes]) -> bytes:
    """A manifest edited by somebody who knows how to seal it again."""
    lines = data.splitlines(keepends=True)[:-2]
    body = b"".join(lines)
    for old, new in changes:
        assert old in body
        body = body.replace(old, new)
    return b"".join(seal(body.splitlines(keepends=True), MANIFEST_SEAL, "blake3"))


def test_comes_back_as_it_was() -> None:
    back = decode(encoded(FULL))

    assert back == replace(FULL, files=tuple(sorted(FULL.files, key=lambda it: it.path.split("/"))))
    assert encoded(back) == encoded(FULL)
    assert back.objects()[DIGEST] == 0
    assert [entry.path for entry in back.sink_files()] == ["_spark_metadata/3"]
    assert pickle.loads(pickle.dumps(back)) == back


def test_is_json_and_a_file_is_a_line() -> None:
    data = encoded(FULL)
    parsed = json.loads(data)

    assert parsed["format"] == 1
    assert parsed["taken_at"] == "2013-01-01T05:15:00.000Z"
    assert {name: value for name, value in parsed.items() if name != MANIFEST_SEAL} == decode(data).to_dict()
    assert list(parsed)[-2:] == ["files", MANIFEST_SEAL]
    file_lines = [line for line in data.splitlines() if line.startswith(b'{"path"')]
    assert len(file_lines) == len(FULL.files)
    assert [json.loads(line.removesuffix(b",")) for line in file_lines] == parsed["files"]


def test_the_digest_covers_every_byte_before_its_line() -> None:
    data = encoded(FULL)
    before, _, _ = data.rpartition(b'"manifest_digest"')
    assert json.loads(data)[MANIFEST_SEAL] == digest_of("blake3", before)


@pytest.mark.parametrize("size_bytes", [1, 7, 100, 1 << 20])
def test_is_read_in_chunks_cut_anywhere(size_bytes: int) -> None:
    data = encoded(FULL)
    pieces = [data[start : start + size_bytes] for start in range(0, len(data), size_bytes)]
    assert decode(pieces) == decode(data)
    assert decode_head(pieces) == replace(decode(data), files=())


def test_may_hold_no_files() -> None:
    empty = replace(FULL, files=(), sinks=())
    assert decode(encoded(empty)) == empty
    assert json.loads(encoded(empty))["files"] == []


def test_unknown_fields_are_kept() -> None:
    newer = replace(
        FULL,
        extra={"region": "eu", "held_until": None},
        files=(replace(FULL.files[0], extra={"block": [1, 2]}),),
    )
    assert encoded(decode(encoded(newer))) == encoded(newer)
    assert json.loads(encoded(newer))["region"] == "eu"
    assert decode(encoded(newer)).files[0].extra == {"block": [1, 2]}


def test_sha256() -> None:
    manifest = manifest_of(digest="sha256")
    back = decode(encoded(replace(manifest, digest="sha256")))
    assert back.digest == "sha256"
    assert back.files[0].digest.startswith("sha256:")


def test_times_are_utc() -> None:
    local = replace(FULL, taken_at=datetime(2013, 1, 1, 7, 15, tzinfo=timezone(timedelta(hours=2))))
    assert decode(encoded(local)).taken_at == datetime(2013, 1, 1, 5, 15, tzinfo=UTC)


names = st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=12).filter(is_key)
entries = st.builds(
    FileEntry,
    path=st.lists(names.filter(lambda name: "/" not in name), min_size=1, max_size=4).map("/".join),
    size_bytes=st.integers(0, 2**63),
    digest=st.binary().map(lambda data: digest_of("blake3", data)),
    mtime_ns=st.integers(0, 2**63),
    identity=st.text(),
    role=st.text(),
)


@given(st.lists(entries, unique_by=lambda entry: entry.path), st.text(), st.integers(0, 10**9))
def test_any_files_come_back(files: list[FileEntry], note: str, batch: int) -> None:
    paths = {entry.path for entry in files}
    clash = any(path.startswith(f"{other}/") for path in paths for other in paths)
    manifest = replace(FULL, files=tuple(files), note=note, batch=batch)
    if clash:
        with refuses(IntegrityError, "path-clash"):
            encoded(manifest)
        return
    back = decode(encoded(manifest))
    assert {entry.path: entry for entry in back.files} == {entry.path: entry for entry in files}
    assert (back.note, back.batch) == (note, batch)


@settings(max_examples=400)
@given(st.data())
def test_any_changed_byte_is_found(data: st.DataObject) -> None:
    good = encoded(FULL)
    where = data.draw(st.integers(0, len(good) - 1))
    change = data.draw(st.integers(1, 255))
    bad = good[:where] + bytes([good[where] ^ change]) + good[where + 1 :]
    for read in (decode, lambda data: decode_head([data])):
        with pytest.raises((IntegrityError, FormatError)):
            read(bad)


def test_every_cut_and_every_added_byte_is_found() -> None:
    good = encoded(manifest_of({"metadata": b"x"}))
    damages = [good[:end] for end in range(len(good))] + [good + b"\n", b"\n" + good, good + b"x", good * 2]
    for bad in damages:
        with pytest.raises((IntegrityError, FormatError)):
            decode(bad)


def hostile() -> Iterator[Any]:
    first = b'"path": "metadata"'
    climbing = [
        "../x",
        "/etc/passwd",
        "a/../../x",
        "",
        "a//b",
        "a\\\\b",
        "a/./b",
        "..",
        "a\\u0000b",
        "a\\nb",
    ]
    for path in climbing:
        yield pytest.param([(first, f'"path": "{path}"'.encode())], "bad-path", id=f"path {path}")
    yield pytest.param([(first, b'"path": "\\ud800"')], "record-damaged", id="half of a character")
    yield pytest.param([(first, b'"path": 7')], "bad-path", id="a path that is no text")
    yield pytest.param([(b'"path": "offsets/3"', b'"path": "metadata"')], "duplicate-path", id="twice")
    yield pytest.param(
        [(b'"path": "offsets/3"', b'"path": "metadata/3"')], "path-clash", id="file and directory"
    )
    yield pytest.param([(first, b'"path": "zzz"')], "bad-entry", id="out of order")
    yield pytest.param([(b'"size_bytes": 10', b'"size_bytes": -1')], "bad-entry", id="a negative size")
    yield pytest.param(
        [(b'"size_bytes": 10', b'"size_bytes": true')], "bad-entry", id="a size that is no number"
    )
    yield pytest.param([(b'"role": "state"', b'"role": null')], "bad-entry", id="a role that is no text")
    yield pytest.param([(b'"mtime_ns": ', b'"mtime": ')], "bad-entry", id="a missing field")
    yield pytest.param([(b'"digest": "blake3:', b'"digest": "md5:')], "bad-entry", id="another digest")
    yield pytest.param([(b'"_spark_metadata/3"', b'"../3"')], "bad-path", id="a sink's file climbs")
    for old, new in [
        (b'"job": "flights"', b'"job": "../flights"'),
        (b'"job": "flights"', b'"job": "a/b/c"'),
        (b'"job": "flights"', b'"job": 5'),
        (b'"batch": 3', b'"batch": -1'),
        (b'"batch": 3', b'"batch": true'),
        (b'"batch": 3', b'"batch": "3"'),
        (b'"batch": 3,\n', b""),
        (b'"batch": 3,\n', b'"batch": 3,\n"batch": 4,\n'),
        (b'"taken_at": "2013-01-01T05:15:00.000Z"', b'"taken_at": "yesterday"'),
        (b'"taken_at": "2013-01-01T05:15:00.000Z"', b'"taken_at": "2013-01-01T05:15:00"'),
        (b'"savepoint": "b', b'"savepoint": "/b'),
        (b'"operators": [', b'"operators": [7, '),
        (b'"sinks": [', b'"sinks": ["x", '),
        (b'"taken_by": {', b'"taken_by": 5, "x": {'),
        (b'"files": [\n', b'"files": [[\n'),
        (b'"files": [\n', b'"files": [\n[1],\n'),
        (b'"files": [\n', b'"files": [],\n"other": [\n'),
        (b'"files": [{"path": "_spark_metadata/3"', b'"files": [7, {"path": "_spark_metadata/3"'),
    ]:
        yield pytest.param([(old, new)], "record-damaged", id=f"{old[:30]!r} to {new[:30]!r}")


@pytest.mark.parametrize(("changes", "code"), [*hostile()])
def test_a_hostile_manifest_with_a_right_seal_is_refused(
    changes: list[tuple[bytes, bytes]], code: str
) -> None:
    with refuses(IntegrityError, code) as raised:
        decode(resealed(encoded(FULL), *changes))
    assert raised.value.hint


def test_an_edited_manifest_is_refused_and_named() -> None:
    edited = encoded(FULL).replace(b'"batch": 3', b'"batch": 4')
    with refuses(IntegrityError, "record-damaged", match="manifest of x is damaged"):
        decode(edited, "manifest of x")


def test_a_manifest_formatted_anew_is_refused() -> None:
    for indent in (None, 2):
        with pytest.raises(IntegrityError):
            decode(json.dumps(json.loads(encoded(FULL)), indent=indent).encode())


@pytest.mark.parametrize(
    "junk",
    [b"", b"{", b"{\n", b"[]", b"null", b"\xff" * 100, b"{\n" * 1000, b'{"format": 1}', b"[" * 100_000],
)
def test_what_is_no_manifest(junk: bytes) -> None:
    with refuses(IntegrityError, "record-damaged"):
        decode(junk)


def test_a_newer_format_is_named() -> None:
    newer = encoded(FULL).replace(b'"format": 1', b'"format": 7')
    for data in (newer, resealed(encoded(FULL), (b'"format": 1', b'"format": 7'))):
        with refuses(FormatError, "unknown-format", match="format 7", hint="upgrade"):
            decode(data)


def test_what_could_not_be_read_is_not_written() -> None:
    bad: list[dict[str, Any]] = [
        {"job": "../x"},
        {"savepoint": "a/b"},
        {"batch": -1},
        {"files": (FileEntry("../x", 0, DIGEST),)},
        {"files": (FileEntry("x", 0, "md5:00"),)},
        {"files": (FileEntry("x", 0, DIGEST), FileEntry("x", 0, DIGEST))},
        {"extra": {"batch": 7}},
        {"sinks": ({"files": [{"path": "/x"}]},)},
    ]
    for change in bad:
        with pytest.raises(StreambankError):
            encoded(replace(FULL, **change))


def test_the_id_tells_batches_queries_and_timelines_apart() -> None:
    base = savepoint_id("j", "q", 42, b"o", b"c")
    others = {
        savepoint_id("j/a", "q", 42, b"o", b"c"),
        savepoint_id("j", "r", 42, b"o", b"c"),
        savepoint_id("j", "q", 43, b"o", b"c"),
        savepoint_id("j", "q", 42, b"p", b"c"),
        savepoint_id("j", "q", 42, b"oc", b""),
    }
    assert base == savepoint_id("j", "q", 42, b"o", b"c")
    assert base.startswith("b000042-")
    assert len(base) == len("b000042-") + 12
    assert len(others) == 5
    assert base not in others
    assert savepoint_id("j", "q", 12_345_678, b"", b"").startswith("b12345678-")


def test_a_list_of_many_files_comes_back_whole_and_in_order() -> None:
    files = {f"state/0/0/{number:04d}.delta": b"" for number in range(600)}
    back = decode(encoded(manifest_of(files)))
    assert [entry.path for entry in back.files] == [*files]


def test_a_manifest_without_a_list_of_files_is_refused() -> None:
    data = encoded(manifest_of({}))
    with refuses(IntegrityError, "record-damaged", match="lists no files"):
        decode(resealed(data, (b'"files": [\n],\n', b"")))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"batch": 3,\n', b""),
        (b'"batch": 3,\n', b'"batch": x,\n'),
        (b'"batch": 3', b'"batch": -3'),
        (b'"format": 1', b'"format": 7'),
        (b'"files": [\n', b'"files": ['),
    ],
)
def test_a_glance_at_a_beginning_that_cannot_be_read_sees_nothing(old: bytes, new: bytes) -> None:
    data = encoded(FULL)
    seen = glance(data)
    assert seen is not None and replace(seen, files=FULL.files) == FULL
    assert old in data and glance(data.replace(old, new)) is None
