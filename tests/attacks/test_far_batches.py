"""A file in a checkpoint's log whose number no batch can have: the newest batch is another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.checkpoint.compactible import parse_log_name
from streambank.checkpoint.grammar import Kind, classify
from streambank.checkpoint.position import batches_in, is_batch
from streambank.core.errors import NotFoundError
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint

LARGEST = 2**63 - 1
BEYOND = ["9999999999999999999", str(LARGEST + 1), "9" * 20, "9" * 5000, "007", "٣"]


@pytest.fixture
def live(tmp_path: Path) -> LiveCheckpoint:
    found = LiveCheckpoint(open_store(tmp_path / "checkpoint"))
    for _ in range(4):
        found.plan()
        found.commit()
    return found


def take_of(live: LiveCheckpoint, tmp_path: Path) -> TakeRequest:
    return TakeRequest(
        live.store, Repository.open(open_store(tmp_path / "repository"), create=True), "orders"
    )


def plant(live: LiveCheckpoint, name: str, *logs: str) -> None:
    for log in logs:
        live.store.write(f"{log}/{name}", live.store.read(f"{log}/3"))


def test_what_spark_takes_for_a_batch() -> None:
    assert [is_batch(one) for one in ("0", "41", str(LARGEST))] == [True] * 3
    assert not any(map(is_batch, (*BEYOND, "", "1.compact", "-1", "+1")))
    assert parse_log_name(f"{LARGEST}.compact") is not None
    assert parse_log_name(f"{LARGEST + 1}.compact") is None
    for name in BEYOND:
        for path in (f"offsets/{name}", f"commits/{name}", f"sources/0/{name}"):
            assert classify(path).kind in (Kind.UNKNOWN, Kind.SOURCE_OTHER)


@pytest.mark.parametrize("name", BEYOND[:2])
@pytest.mark.parametrize("logs", [("offsets",), ("offsets", "commits")])
def test_a_number_that_spark_passes_over_keeps_no_savepoint_from_being_taken(
    live: LiveCheckpoint, tmp_path: Path, name: str, logs: tuple[str, ...]
) -> None:
    plant(live, name, *logs)
    found = batches_in(live.store)
    assert (found.planned, found.committed) == (3, 3)
    taken = take(take_of(live, tmp_path))
    assert taken.batch == 3 and taken.replans == 0
    assert any(f"offsets/{name}" in one for one in taken.warnings), "what is not understood is named"


@pytest.mark.parametrize("logs", [("offsets",), ("offsets", "commits")])
@pytest.mark.parametrize("name", ["999999", str(LARGEST)])
def test_a_number_that_spark_takes_is_damage_by_name_at_once(
    live: LiveCheckpoint, tmp_path: Path, name: str, logs: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    plant(live, name, *logs)
    with pytest.raises(NotFoundError) as caught:
        take(take_of(live, tmp_path))
    error = caught.value
    assert error.code == "missing-log-entry" and name in error.message
    assert "Batch 3 is" in error.hint and "can be saved by its number" in error.hint
    assert not any("changed while" in one for one in caplog.messages), "they did not"
    request = take_of(live, tmp_path)
    assert take(TakeRequest(request.checkpoint, request.repository, "orders", batch=3)).batch == 3
