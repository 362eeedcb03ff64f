"""Unknown versions in small files: refused by name at a take, found in what was taken earlier."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streambank.checkpoint import closure, sources
from streambank.checkpoint.grammar import Kind, classify
from streambank.core.errors import FormatError
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.checkpoint.recorded import PLANNED, checkpoint
from tests.support.refuses import refuses

KAFKA = b'\0v99999\n{"topic":{"1":1,"0":0}}'


def transform(folder: Path) -> tuple[Path, str]:
    """A checkpoint whose operator metadata names its schema as Spark did before the release of 4.0."""
    found = checkpoint("4.3.0/rocksdb-transform")
    found.into(open_store(str(folder / "ck")))
    paths = [path for path in found.files if classify(path).kind is Kind.OPERATOR_V2]
    for each in paths:
        first, _, text = found.files[each].decode().partition("\n")
        document = json.loads(text)
        for store in document["stateStoreInfo"]:
            named = store.pop("stateSchemaFilePaths")
            store["stateSchemaFilePath"] = json.dumps(named)
        (folder / "ck" / each).write_text(f"{first}\n{json.dumps(document)}")
    return folder / "ck", max(paths)


def kafka(folder: Path) -> tuple[Path, str]:
    """A checkpoint of a query on Kafka whose first offsets are of a version yet to come."""
    store = open_store(str(folder / "ck"))
    LiveCheckpoint(store).run(2)
    offset = '{"topic":{"1":5,"0":7}}'
    for batch in (0, 1):
        lines = store.read(f"offsets/{batch}").decode().splitlines()
        store.write(f"offsets/{batch}", "\n".join([*lines[:2], offset]).encode())
    for name in store.names("sources/0"):
        store.delete(f"sources/0/{name}")
    store.write("sources/0/0", KAFKA)
    return folder / "ck", "sources/0/0"


@pytest.mark.parametrize(
    ("make", "says"),
    [(transform, "names no schema of the store default"), (kafka, "has version 99999")],
)
def test_an_unknown_version_is_refused_by_name_and_found_in_what_was_taken_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: object, says: str
) -> None:
    place, path = make(tmp_path)  # type: ignore[operator]  # one of the two
    repository = Repository.open(open_store(str(tmp_path / "repository")), create=True)
    store = open_store(str(place))
    with refuses(FormatError, "unknown-version", match=says) as refused:
        take(TakeRequest(store, repository, "orders"))
    assert refused.value.message.startswith(path)

    with monkeypatch.context() as earlier:
        earlier.setattr(closure, "require_schemas", lambda *_: None)
        earlier.setattr(sources, "check_initial_offsets", lambda *_: None)
        taken = take(TakeRequest(store, repository, "orders"))

    assert verify(repository, "orders", taken.savepoint, "quick").ok
    report = verify(repository, "orders", taken.savepoint, "full")
    (finding,) = [one for one in report.findings if one.code == "unknown-version"]
    assert (finding.severity, finding.file, report.restorable) == ("error", path, False)
    plan = plan_restore(
        RestoreRequest(
            repository,
            taken.savepoint,
            job="orders",
            into=open_store(str(tmp_path / "restored")),
            source="accept",
            sink="accept",
        )
    )
    assert any(says in one and "Spark will refuse it" in one for one in plan.warnings)


@pytest.mark.parametrize(
    "data",
    [
        b'\0v1\n{"topic":{"0":1}}',
        b'\0{"topic":{"0":1}}',
        b"v1\n1795256654585",
        b"v7\nwhat another source keeps",
        b"",
    ],
)
def test_first_offsets_that_spark_reads_and_those_of_other_sources_are_taken(data: bytes) -> None:
    sources.check_initial_offsets(data, "sources/0/0")


@pytest.mark.parametrize("data", [KAFKA, b"v2\n1795256654585"])
def test_first_offsets_of_a_version_to_come_are_not(data: bytes) -> None:
    with refuses(FormatError, "unknown-version"):
        sources.check_initial_offsets(data, "sources/0/0")


def test_every_recorded_checkpoint_is_planned_as_before() -> None:
    for name in PLANNED:
        assert checkpoint(name).plan().files
