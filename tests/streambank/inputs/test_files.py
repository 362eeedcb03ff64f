"""Files that a query read after a savepoint, and that are gone."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path

import pytest

from streambank.core.choices import SourceChoice
from streambank.core.errors import RefusedError
from streambank.inputs.clean_source import cleaning_of
from streambank.inputs.files import MOST_FILES, FilesStanding, input_changed, look_at_files
from streambank.inputs.sources import Sources
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore, restore
from streambank.repository.manifest import Manifest
from streambank.storage import open_store
from streambank.storage.store import Store
from tests.support.jobs.simulated_job import SimulatedJob, quick_store
from tests.support.refuses import refuses
from tests.support.repository.repositories import manifest_of


def saved(offset: str | None = '{"logOffset": 1}', kind: str = "file") -> Manifest:
    return manifest_of(sources=({"source": "0", "kind": kind, "offset": offset},))


def empty_log() -> Store:
    return open_store(f"memory://{uuid.uuid4().hex}")


def log(folder: Path, *batches: int, scheme: str = "file://") -> Store:
    """A checkpoint whose source log names a file of each batch, in an empty folder."""
    store = empty_log()
    for batch in batches:
        write(store, str(batch), [(batch, f"{scheme}{folder}/{batch}%20.json")])
    return store


def write(store: Store, name: str, entries: list[tuple[int, str]]) -> None:
    lines = [json.dumps({"path": path, "timestamp": 1, "batchId": batch}) for batch, path in entries]
    store.write(f"sources/0/{name}", "\n".join(["v1", *lines]).encode())


def test_those_that_are_there_are_read_again(tmp_path: Path) -> None:
    for batch in range(5):
        (tmp_path / f"{batch} .json").write_text("{}")
    (found,) = look_at_files(saved(), log(tmp_path, 0, 1, 2, 3, 4).uri)
    assert (found.safe, found.read, found.gone, found.sentence()) == (True, 3, (), "")
    assert found.to_dict()["replay"]["state"] == "not-known"


def test_those_that_are_gone_are_named_and_earlier_ones_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "3 .json").write_text("{}")
    (found,) = look_at_files(saved(), log(tmp_path, 0, 1, 2, 3).uri)
    assert (found.safe, found.read, found.gone) == (False, 2, (f"file://{tmp_path}/2%20.json",))
    assert "1 is not there any more, such as" in found.sentence()
    assert found.to_dict()["replay"]["state"] == "gone"
    (none,) = look_at_files(saved('{"logOffset": 3}'), log(tmp_path, 0, 1, 2, 3).uri)
    assert (none.safe, none.read) == (True, 0)
    (every,) = look_at_files(saved(None), log(tmp_path, 0, 1, 2, 3).uri)
    assert len(every.gone) == 3, "nothing was read by the savepoint"


def test_a_compacted_log_is_read(tmp_path: Path) -> None:
    store = log(tmp_path, 3)
    write(store, "2.compact", [(batch, f"file://{tmp_path}/{batch}") for batch in range(3)])
    (found,) = look_at_files(saved(), store.uri)
    assert found.read == 2
    assert found.gone[0] == f"file://{tmp_path}/2"


def test_of_many_a_share_is_looked_for(tmp_path: Path) -> None:
    store = empty_log()
    write(store, "0", [(2, f"file://{tmp_path}/{number}") for number in range(500)])
    (found,) = look_at_files(saved(None), store.uri)
    assert (found.read, found.checked, len(found.gone)) == (500, MOST_FILES, MOST_FILES)
    assert f"Of {MOST_FILES} of them" in found.sentence()


@pytest.mark.parametrize(
    ("store", "why"),
    [
        (empty_log(), "not at memory"),
        (log(Path("/x"), 0, 1, 2, scheme="s3://bucket"), "names no such location"),
    ],
)
def test_what_is_not_known_is_said(store: Store, why: str) -> None:
    (found,) = look_at_files(saved(), store.uri)
    assert (found.safe, found.sentence(), found.to_dict()["files_to_read_again"]) == (None, "", None)
    assert why in found.not_known


def test_a_location_that_the_job_names_is_looked_at() -> None:
    store = log(Path("/x"), 2, scheme="memory://in")
    write(store, "0", [])
    write(store, "1", [])
    open_store("memory://in/x").write("2 .json", b"")
    (found,) = look_at_files(saved(), store.uri, ["memory://in"])
    assert (found.safe, found.read) == (True, 1)


@pytest.mark.parametrize("live", ["gs-without-a-package://bucket/orders", "", "file:///nowhere/at/all"])
def test_a_checkpoint_that_cannot_be_opened_here_is_a_doubt(live: str) -> None:
    """In a disaster the machine may reach a replica alone."""
    (found,) = look_at_files(saved(), live)
    assert found.safe is None and found.not_known


def test_a_directory_that_is_not_there_may_not_be_seen_from_here(tmp_path: Path) -> None:
    (found,) = look_at_files(saved(), log(tmp_path / "not-mounted", 0, 1, 2, 3).uri)
    assert found.safe is None and "may not see it" in found.not_known


def test_other_sources_are_none_of_its_business(tmp_path: Path) -> None:
    assert look_at_files(saved(kind="initial"), log(tmp_path, 2).uri) == ()
    assert FilesStanding("0").safe is True


def test_files_stay_unless_the_application_sets_clean_source(tmp_path: Path) -> None:
    (tmp_path / "2 .json").write_text("{}")
    application = tmp_path / "flights.py"

    def state(text: str) -> tuple[str, str]:
        application.write_text(text)
        cleaning = cleaning_of(application)
        (found,) = look_at_files(saved(), log(tmp_path, 0, 1, 2).uri, cleaning=cleaning)
        replay = found.replay()
        assert (replay.until is not None) == (replay.state == "until")
        return replay.state, replay.why

    assert state("spark.readStream.json('in')")[0] == "for-ever"
    assert state("spark.readStream.option('cleanSource', 'off').json('in')")[0] == "for-ever"
    assert state("\nspark.readStream.option('cleanSource', 'archive').json('in')") == (
        "until",
        "the application sets cleanSource to archive in line 2, so files go after their batch",
    )
    assert state("no python")[0] == "not-known"
    (tmp_path / "2 .json").unlink()
    assert state("spark.readStream.json('in')")[0] == "gone"


def test_a_log_that_takes_too_long_leaves_it_unknown(tmp_path: Path) -> None:
    (found,) = look_at_files(saved(), log(tmp_path, 0, 1, 2).uri, patience_s=0.0)
    assert (found.safe, found.replay().state) == (None, "not-known")
    assert "could not be checked within 0 s" in found.not_known


def test_a_restore_without_them_is_refused_unless_that_is_accepted(
    shop: SimulatedJob, tmp_path: Path
) -> None:
    """Spark would go on without their rows, and not say so."""
    shop.live.inputs = tmp_path.as_uri()
    for batch in range(5):
        (tmp_path / f"{batch}.json").write_text("{}")
    taken = shop.run(3).take()
    shop.run(2)

    def request(source: SourceChoice = "refuse") -> RestoreRequest:
        return RestoreRequest(
            shop.repository,
            taken.savepoint,
            into=shop.open("back"),
            sink="accept",
            source=source,
            opener=quick_store,
        )

    assert plan_restore(request()).possible, "they are there"
    gone = tmp_path / "3.json"
    gone.unlink()
    plan = plan_restore(request())
    assert [one.code for one in plan.refusals] == ["source-would-lose-files"]
    (source,) = plan.sources
    assert (source["kind"], source["safe"], source["files_to_read_again"]) == ("file", False, 2)
    assert f"such as {gone.as_uri()}" in plan.source_effect()
    assert plan.possible_choices.source == ("accept",)
    with refuses(RefusedError, "source-would-lose-files", hint="--source accept"):
        restore(request())
    report = restore(request("accept"))
    assert report.plan.source_effect().endswith("This is accepted.")
    assert any(gone.as_uri() in warning for warning in report.warnings)


class TestChanged:
    """Files that were written again since they were read."""

    @pytest.mark.parametrize(
        ("read_ms", "now_ms", "changed"),
        [
            (1_700_000_000_345, 1_700_000_000_345, False),
            (1_700_000_000_345, 1_700_000_000_346, True),
            (1_700_000_000_000, 1_700_000_000_345, False),  # a storage of whole seconds
            (1_700_000_000_000, 1_700_000_001_000, True),
            (1_700_000_000_345, 1_700_000_000_000, False),  # copied with its time, cut to seconds
            (1_700_000_000_345, 1_600_000_000_000, True),  # another, older file in its place
            (0, 1_700_000_000_000, False),  # a storage without times
            (1, 1_700_000_000_000, False),
        ],
    )
    def test_by_its_time(self, tmp_path: Path, read_ms: int, now_ms: int, changed: bool) -> None:
        found = self.standing(tmp_path, read_ms, now_ms)
        assert bool(found.changed) == changed and found.gone == ()
        assert found.safe is not changed

    def test_it_needs_an_acceptance(self, tmp_path: Path) -> None:
        found = self.standing(tmp_path, 1_700_000_000_000, 1_700_000_009_000)
        sources = Sources((), files=(found,))
        (refusal,) = sources.refusals("refuse")
        assert refusal.code == "source-files-changed" and "--source accept" in refusal.hint
        assert "1 was changed since, such as file://" in refusal.message
        assert list(sources.refusals("accept")) == []
        (said,) = sources.warnings("accept")
        assert "computes other rows" in said
        assert found.to_dict()["files_changed"] == list(found.changed)

    def test_gone_and_changed_are_both_said(self, tmp_path: Path) -> None:
        store = empty_log()
        path = tmp_path / "2.json"
        path.write_text("{}")
        os.utime(path, (1_700_000_009, 1_700_000_009))
        lines = [
            {"path": f"file://{path}", "timestamp": 1_700_000_000_000, "batchId": 2},
            {"path": f"file://{tmp_path}/3.json", "timestamp": 1_700_000_000_000, "batchId": 2},
        ]
        store.write("sources/0/0", "\n".join(["v1", *map(json.dumps, lines)]).encode())
        (found,) = look_at_files(saved(None), store.uri)
        assert "1 is not there any more" in found.sentence() and "1 was changed since" in found.sentence()
        assert {one.code for one in Sources((), files=(found,)).refusals("refuse")} == {
            "source-files-changed",
            "source-would-lose-files",
        }
        assert "2 files after the savepoint" in found.sentence()
        assert input_changed(saved(None), store.uri, ()).startswith("its input is not what the live query")

    def standing(self, folder: Path, read_ms: int, now_ms: int) -> FilesStanding:
        path = folder / "2.json"
        path.write_text("{}")
        os.utime(path, ns=(now_ms * 1_000_000, now_ms * 1_000_000))
        store = empty_log()
        line = {"path": f"file://{path}", "timestamp": read_ms, "batchId": 2}
        store.write("sources/0/0", f"v1\n{json.dumps(line)}".encode())
        (found,) = look_at_files(saved(None), store.uri)
        return found
