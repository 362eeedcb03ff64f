"""Which files a version of a state store is made of, by names and sizes alone."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from streambank.checkpoint.index import CheckpointIndex
from streambank.checkpoint.state.changelog import LineageItem, UnreadableLineageError
from streambank.checkpoint.state.rocksdb import SnapshotFile, ZipMetadata
from streambank.checkpoint.state.versions import Chain, ChainReaders, plan_chain
from streambank.core.errors import FormatError, NotFoundError
from streambank.storage import FileInfo
from tests.support.refuses import refuses

FOLDER = "state/0/0"


def plan(
    *names: str,
    version: int,
    safe: bool = False,
    rocksdb: bool = False,
    unique_id: str | None = None,
    sizes: Mapping[str, int] | None = None,
    zips: Mapping[str, ZipMetadata] | None = None,
    lineages: Mapping[str, list[LineageItem]] | None = None,
    committed: Mapping[int, str] | None = None,
) -> Chain:
    """The plan of a version, where these files are there; of 10 bytes each, if nothing else is said."""
    size = dict.fromkeys(names, 10) | dict(sizes or {})
    listing = {f"{FOLDER}/{name}": FileInfo(f"{FOLDER}/{name}", size[name], 0, "1") for name in names}
    (store,) = CheckpointIndex.build(listing).operators[0].stores.values()

    def metadata(path: str) -> ZipMetadata:
        return (zips or {}).get(path.removeprefix(f"{FOLDER}/"), ZipMetadata((), (), 5))

    def lineage(path: str) -> list[LineageItem]:
        if lineages is None:
            raise UnreadableLineageError("zstd")
        return lineages[path.removeprefix(f"{FOLDER}/")]

    readers = ChainReaders(listing, metadata, lineage, (committed or {}).get)
    return plan_chain(store, rocksdb, (version, unique_id), safe, readers)


def names_of(chain: Chain) -> list[str]:
    return sorted(file.path.removeprefix(f"{FOLDER}/") for file in chain.files)


DELTAS = [f"{number}.delta" for number in range(1, 8)]


def test_without_a_snapshot_it_is_every_change_from_the_first_on() -> None:
    chain = plan(*DELTAS, version=4)
    assert names_of(chain) == DELTAS[:4] and chain.base_version == 0
    assert chain.newest == chain.files


def test_the_newest_snapshot_and_the_changes_after_it() -> None:
    files = [*DELTAS, "2.snapshot", "5.snapshot", "7.snapshot"]
    chain = plan(*files, version=6)
    assert (names_of(chain), chain.base_version) == (["5.snapshot", "6.delta"], 5)
    exact = plan(*files, version=5)
    assert names_of(exact) == ["5.snapshot"]


def test_a_safe_plan_has_what_repairs_a_damaged_snapshot() -> None:
    chain = plan(*DELTAS, "2.snapshot", "5.snapshot", version=6, safe=True)
    assert names_of(chain) == ["2.snapshot", "3.delta", "4.delta", "5.delta", "5.snapshot", "6.delta"]
    assert sorted(file.version for file in chain.newest) == [5, 6]
    alone = plan("5.snapshot", "6.delta", version=6, safe=True)
    assert names_of(alone) == ["5.snapshot", "6.delta"], "older ones were cleaned up"


def test_an_empty_snapshot_is_passed_over_and_said() -> None:
    chain = plan(*DELTAS, "2.snapshot", "5.snapshot", version=6, sizes={"5.snapshot": 0})
    assert chain.base_version == 2
    assert [note for note in chain.notes if "5.snapshot is empty" in note]


@pytest.mark.parametrize(
    ("files", "missing"),
    [
        (["1.delta", "3.delta"], "2.delta"),
        (["2.delta", "3.delta"], "1.delta"),
        (["1.delta", "2.delta"], "3.delta"),
    ],
)
def test_a_gap_is_named(files: list[str], missing: str) -> None:
    with refuses(NotFoundError, "missing-state-file") as caught:
        plan(*files, version=3)
    assert f"{FOLDER}/{missing}" in caught.value.message


def test_an_empty_change_is_damage_unless_a_snapshot_stands_above_it() -> None:
    with refuses(FormatError, "half-written"):
        plan(*DELTAS, version=4, sizes={"3.delta": 0})
    chain = plan(*DELTAS, "4.snapshot", version=5, safe=True, sizes={"3.delta": 0})
    assert chain.base_version == 4 and chain.notes


def zip_of(*ssts: SnapshotFile, keys: int | None = 5) -> ZipMetadata:
    return ZipMetadata(ssts, (), keys)


ZIPS = {"3.zip": zip_of(SnapshotFile("a.sst", 10), SnapshotFile("b.sst", 20), keys=9)}
SSTS = ["SSTs/a.sst", "SSTs/b.sst"]


def test_a_snapshot_of_rocksdb_brings_the_files_that_it_names() -> None:
    chain = plan(
        "3.zip", "4.changelog", *SSTS, "SSTs/other.sst", version=4, rocksdb=True, zips=ZIPS,
        sizes={"SSTs/b.sst": 20},
    )  # fmt: skip
    assert names_of(chain) == ["3.zip", "4.changelog", *SSTS]
    assert (chain.rows, chain.base_rows) == (None, 9), "rows of version 4 are not known"
    exact = plan("3.zip", *SSTS, version=3, rocksdb=True, zips=ZIPS, sizes={"SSTs/b.sst": 20})
    assert exact.rows == 9


@pytest.mark.parametrize(
    ("there", "sizes", "said"),
    [(SSTS[:1], {}, "SSTs/b.sst is missing"), (SSTS, {"SSTs/b.sst": 19}, "has 19 bytes, and")],
)
def test_a_snapshot_whose_files_are_not_whole_is_passed_over(
    there: list[str], sizes: dict[str, int], said: str
) -> None:
    older = [f"{number}.changelog" for number in range(1, 5)]
    chain = plan("3.zip", *older, *there, version=4, rocksdb=True, zips=ZIPS, sizes=sizes)
    assert names_of(chain) == older and chain.base_rows == 0
    assert said in "".join(chain.notes)
    with pytest.raises((NotFoundError, FormatError), match=said):
        plan("3.zip", "4.changelog", *there, version=4, rocksdb=True, zips=ZIPS, sizes=sizes)


IDS = ["1_a.zip", "2_b.changelog", "2_x.changelog", "3_c.changelog"]


def test_with_unique_ids_the_lineage_tells_whose_attempt_counts() -> None:
    lineages = {"3_c.changelog": [LineageItem(1, "a"), LineageItem(2, "b")]}
    chain = plan(*IDS, version=3, unique_id="c", rocksdb=True, lineages=lineages)
    assert names_of(chain) == ["1_a.zip", "2_b.changelog", "3_c.changelog"]
    torn = {"3_c.changelog": [LineageItem(1, "a")]}
    with refuses(FormatError, "half-written"):
        plan(*IDS, version=3, unique_id="c", rocksdb=True, lineages=torn)


def test_where_a_lineage_cannot_be_read_the_commit_log_tells() -> None:
    chain = plan(*IDS, version=3, unique_id="c", rocksdb=True, committed={2: "x", 1: "a"})
    assert names_of(chain) == ["1_a.zip", "2_x.changelog", "3_c.changelog"]
    with refuses(FormatError, "unreadable-lineage"):
        plan(*IDS, version=3, unique_id="c", rocksdb=True, committed={})
