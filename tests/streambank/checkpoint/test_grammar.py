from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambank.checkpoint.grammar import Kind, Part, classify, name_pattern
from tests.support.checkpoint.recorded import NAMES, checkpoint

UUID = "8de4d609-c3fd-4163-8503-b3ec704096a9"

KNOWN = [
    ("metadata", Kind.METADATA, {}),
    ("offsets/12", Kind.OFFSETS, {"batch": 12}),
    ("commits/0", Kind.COMMITS, {"batch": 0}),
    ("sources/0/7", Kind.SOURCE_LOG, {"batch": 7, "source": "0", "name": "7"}),
    ("sources/left/9.compact", Kind.SOURCE_LOG, {"batch": 9, "compact": True, "source": "left"}),
    ("_schema_log_3bffe7c2/0", Kind.SCHEMA_LOG, {"batch": 0, "name": "_schema_log_3bffe7c2"}),
    ("_schemas/of/a/_schema_log_t_left/12", Kind.SCHEMA_LOG, {"batch": 12, "name": "_schema_log_t_left"}),
    ("sources/0/_schema_log_t/1", Kind.SCHEMA_LOG, {"batch": 1}),
    ("_schema_log_t/.0.crc", Kind.HIDDEN_CHECKSUM, {"of": "_schema_log_t/0"}),
    ("sources/0/shard-commit/4", Kind.SOURCE_OTHER, {"source": "0"}),
    ("state/3/_metadata/metadata", Kind.OPERATOR_V1, {"operator": 3}),
    ("state/0/_metadata/v2/13", Kind.OPERATOR_V2, {"operator": 0, "batch": 13}),
    (f"state/0/_stateSchema/default/4_{UUID}", Kind.SCHEMA_V3, {"store": "default", "batch": 4}),
    ("state/0/0/_metadata/schema", Kind.SCHEMA_V2, {"partition": 0, "store": "default"}),
    ("state/0/0/left-keyToNumValues/_metadata/schema", Kind.SCHEMA_V2, {"store": "left-keyToNumValues"}),
    ("state/0/11/5.delta", Kind.DELTA, {"partition": 11, "version": 5, "unique_id": None}),
    ("state/0/1/5.snapshot", Kind.SNAPSHOT, {"version": 5}),
    ("state/0/1/right-keyWithIndexToValue/5.zip", Kind.ZIP, {"store": "right-keyWithIndexToValue"}),
    (f"state/0/1/5_{UUID}.zip", Kind.ZIP, {"version": 5, "unique_id": UUID}),
    (f"state/2/1/5_{UUID}.changelog", Kind.CHANGELOG, {"operator": 2, "version": 5, "unique_id": UUID}),
    (f"state/0/1/SSTs/000008-{UUID}.sst", Kind.SST, {"name": f"000008-{UUID}.sst", "store": "default"}),
    (f"state/0/1/s/SSTs/000008-{UUID}.sst", Kind.SST, {"store": "s"}),
    (f"state/0/1/logs/000008-{UUID}.log", Kind.WAL, {"store": "default"}),
    (f"state/0/1/5_{UUID}.zip.crc", Kind.CHECKSUM, {"version": 5, "of": f"state/0/1/5_{UUID}.zip"}),
    ("offsets/.12.crc", Kind.HIDDEN_CHECKSUM, {"of": "offsets/12"}),
    (".metadata.crc", Kind.HIDDEN_CHECKSUM, {"of": "metadata"}),
    (f"sources/0/.16.{UUID}.tmp", Kind.TEMPORARY, {"of": "sources/0/16"}),
    (f"state/0/3/.16.zip.{UUID}.TID881.tmp", Kind.TEMPORARY, {"of": "state/0/3/16.zip"}),
    (f"state/0/3/..16.zip.{UUID}.tmp.crc", Kind.HIDDEN_CHECKSUM, {}),
]
UNKNOWN = [
    "",
    "/",
    "metadata/",
    "offsets",
    "offsets/-1",
    "offsets/01",
    "offsets/1.compact",
    "offsets/1/2",
    "commits/x",
    "commits/٣",
    "sources",
    "sources//1",
    "state",
    "state/x/0/1.delta",
    "state/0/0/1.wal",
    "state/0/0/1_.zip",
    "state/0/0/a/b/1.zip",
    "state/0/0/1_x/y.zip",
    "state/0/_metadata/v3/0",
    "state/0/_stateSchema/default/x",
    ".hidden",
    "..",
    "../metadata",
    "commits/1\n",
    "99999999999999999999999",
]


@pytest.mark.parametrize(("path", "kind", "fields"), KNOWN, ids=[path for path, _, _ in KNOWN])
def test_what_spark_writes_is_told_by_its_path(path: str, kind: Kind, fields: dict[str, object]) -> None:
    part = classify(path)
    assert part.kind is kind
    assert part.path == path
    assert {name: getattr(part, name) for name in fields} == fields


HARMLESS = [
    "x.crc",
    "offsets/12.crc.crc",
    "sources/0/4.tmp",
    "sources/0",
    "state/0/_temporary/0/x/part-0",
    "_temporary/0/x",
    ".DS_Store",
    "commits/.nfs000000000012abcd",
    "state/0_$folder$",
    "offsets/4._COPYING_",
    "state/0/0/._5.delta",
]


@pytest.mark.parametrize("path", HARMLESS)
def test_what_others_leave_is_harmless(path: str) -> None:
    assert classify(path) == Part(Kind.HARMLESS, path)


@pytest.mark.parametrize(
    "path", ["_schema_log_t/x", "_schema_log_/0", "my_temporary/0", "metadata.bak", "_SUCCESS/x"]
)
def test_what_only_looks_harmless_or_known_is_not(path: str) -> None:
    assert classify(path) == Part(Kind.UNKNOWN, path)


def test_files_of_one_kind_have_one_pattern() -> None:
    first, second = f"x/{UUID}_12/0", f"x/{UUID.replace('8', '9')}_1/77"
    assert name_pattern(first) == name_pattern(second) == "x/<id>_<n>/<n>"
    assert name_pattern("a/notes.txt") == "a/notes.txt"


@pytest.mark.parametrize("path", UNKNOWN)
def test_anything_else_is_unknown_and_no_error(path: str) -> None:
    assert classify(path) == Part(Kind.UNKNOWN, path)


@given(st.text())
def test_no_text_makes_it_fail(text: str) -> None:
    assert classify(text).path == text


@given(
    st.lists(
        st.sampled_from(
            ["state", "0", "1", "_metadata", "v2", "SSTs", "s", "1.zip", "1_a.zip", ".1.crc", "x.crc", ""]
        ),
        max_size=7,
    )
)
def test_near_misses_never_fail_and_never_climb(parts: list[str]) -> None:
    part = classify("/".join(parts))
    if part.kind in (Kind.ZIP, Kind.SST):
        assert part.operator is not None and part.partition is not None and part.store


@given(
    operator=st.integers(0, 10**6),
    partition=st.integers(0, 10**6),
    store=st.one_of(st.just("default"), st.from_regex(r"[A-Za-z][A-Za-z-]{0,30}", fullmatch=True)).filter(
        lambda name: name not in ("SSTs", "logs")
    ),
    version=st.integers(0, 2**62),
    unique_id=st.one_of(st.none(), st.uuids().map(str)),
    kind=st.sampled_from([Kind.SNAPSHOT, Kind.DELTA, Kind.ZIP, Kind.CHANGELOG]),
)
def test_state_files_are_read_back_as_they_were_named(
    operator: int, partition: int, store: str, version: int, unique_id: str | None, kind: Kind
) -> None:
    folder = f"state/{operator}/{partition}" + ("" if store == "default" else f"/{store}")
    name = f"{version}.{kind}" if unique_id is None else f"{version}_{unique_id}.{kind}"
    path = f"{folder}/{name}"
    part = Part(
        kind, path, operator=operator, partition=partition, store=store, version=version, unique_id=unique_id
    )
    assert classify(path) == part
    checksum = classify(f"{path}.crc")
    assert (checksum.kind, checksum.of, checksum.version) == (Kind.CHECKSUM, path, version)
    assert classify(f"{folder}/.{name}.crc").of == path
    assert classify(f"{folder}/.{name}.{UUID}.tmp").of == path


@pytest.mark.parametrize("name", NAMES)
def test_every_file_of_every_real_checkpoint_is_known(name: str) -> None:
    unknown = {Kind.UNKNOWN, Kind.SOURCE_OTHER, Kind.TEMPORARY}
    assert [path for path in checkpoint(name).files if classify(path).kind in unknown] == []
