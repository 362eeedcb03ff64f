"""A restore into a directory, and its modes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streambank.checkpoint.reader import CheckpointReader
from streambank.core.errors import InputError, NotFoundError, RefusedError
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore, restore
from streambank.storage.store import Store
from streambank.work.executor import Pace
from tests.support.checkpoint.live_checkpoint import add_debris
from tests.support.jobs.simulated_job import JOB, SimulatedJob, quick_store
from tests.support.refuses import refuses
from tests.support.storage.contents import contents


class TestIntoADirectory:
    def test_gives_exactly_the_closure_byte_for_byte(self, shop: SimulatedJob) -> None:
        taken = shop.run(8).take()
        closure = CheckpointReader(shop.checkpoint).closure(7, "safe")
        report = shop.restore(taken.savepoint)
        restored = contents(shop.open("restored"))
        assert restored == {path: shop.checkpoint.read(path) for path in closure.paths}
        assert (report.plan.batch, report.layout.files) == (7, len(closure.paths))
        assert CheckpointReader(shop.open("restored")).closure().batch == 7

    def test_leaves_a_report_beside_the_directory(self, shop: SimulatedJob) -> None:
        shop.run(3)
        report = shop.restore(shop.take().savepoint)
        left = json.loads(quick_store(shop.base).read("restored.restored.json"))
        assert left == json.loads(json.dumps(report.to_dict()))
        assert left["location"] == shop.open("restored").uri

    def test_an_unfinished_batch_and_debris_stay_behind(self, shop: SimulatedJob) -> None:

        shop.run(5)
        shop.live.plan()
        add_debris(shop.checkpoint, 5)
        shop.restore(shop.take().savepoint)
        paths = set(contents(shop.open("restored")))
        assert "offsets/5" not in paths
        assert not [path for path in paths if "/." in path]

    def test_a_target_with_files_is_refused_and_untouched(self, shop: SimulatedJob) -> None:
        taken = shop.run(3).take()
        target = shop.open("restored")
        target.write("precious", b"1")
        with refuses(RefusedError, "target-not-empty"):
            shop.restore(taken.savepoint)
        assert contents(target) == {"precious": b"1"}
        with pytest.raises(RefusedError):
            restore(RestoreRequest(shop.repository, taken.savepoint, into=shop.checkpoint))

    @pytest.mark.parametrize(
        ("place", "code"),
        [
            ("repository/x", "inside-repository"),
            ("link/x", "inside-repository"),
            ("ck/x", "inside-checkpoint"),
        ],
    )
    def test_a_target_in_the_repository_or_in_the_saved_checkpoint_is_refused(
        self, tmp_path: Path, place: str, code: str
    ) -> None:
        shop = SimulatedJob(tmp_path).run(2)
        (tmp_path / "link").symlink_to(tmp_path / "repository")
        saved = shop.take().savepoint
        request = RestoreRequest(shop.repository, saved, into=shop.open(place), opener=quick_store)
        for verb in (restore, plan_restore):
            with refuses(InputError, code):
                verb(request)
        assert not (tmp_path / place).exists()

    def test_no_such_savepoint(self, shop: SimulatedJob) -> None:
        shop.run(3).take()
        with pytest.raises(NotFoundError):
            shop.restore("b000099-ffffffffffff")
        assert contents(shop.open("restored")) == {}

    def test_needs_one_target(self, shop: SimulatedJob) -> None:
        with pytest.raises(InputError):
            restore(RestoreRequest(shop.repository, "x"))
        with pytest.raises(InputError):
            restore(RestoreRequest(shop.repository, "x", into=shop.open("a"), generation=shop.control()))
        with pytest.raises(InputError):
            shop.restore("x", mode="steal")
        with pytest.raises(InputError):
            shop.restore("x", sink="ignore")

    def test_a_first_batch_can_be_restored(self, shop: SimulatedJob) -> None:
        shop.run(1)
        shop.restore(shop.take().savepoint)
        assert CheckpointReader(shop.open("restored")).closure().batch == 0


class TestModes:
    def test_fork_gets_a_new_query_id_and_shares_no_sink(self, shop: SimulatedJob) -> None:
        taken = shop.run(5).take()
        with refuses(RefusedError, "fork-shares-sink"):
            shop.restore(taken.savepoint, mode="fork")
        report = shop.restore(taken.savepoint, mode="fork", sink="accept")
        assert report.layout.query_id != shop.live.query_id
        assert CheckpointReader(shop.open("restored")).query_id() == report.layout.query_id
        assert report.layout.rewritten == ("metadata",)
        with pytest.raises(InputError):
            shop.restore(taken.savepoint, "elsewhere", mode="fork", sink="rollback")
        with pytest.raises(InputError):
            restore(RestoreRequest(shop.repository, taken.savepoint, generation=shop.control(), mode="fork"))

    def test_claim_unpins(self, shop: SimulatedJob) -> None:
        taken = shop.run(5).take(pin=True)
        shop.restore(taken.savepoint)
        assert shop.repository.pinned(JOB, taken.savepoint)
        shop.restore(taken.savepoint, "second", mode="claim")
        assert not shop.repository.pinned(JOB, taken.savepoint)

    def test_link_shares_bytes_and_warns(self, tmp_path: Path) -> None:
        shop = SimulatedJob(tmp_path, state_bytes=512 << 10)
        taken = shop.run(6).take()
        report = shop.restore(taken.savepoint, link=True)
        assert report.layout.linked_files == 2
        assert any("share their bytes" in warning for warning in report.warnings)
        linked = tmp_path / "restored" / "state/0/0/5.snapshot"
        assert linked.stat().st_nlink == 2
        assert linked.read_bytes() == (tmp_path / "ck" / "state/0/0/5.snapshot").read_bytes()


def test_what_is_half_done_is_no_checkpoint(tmp_path: Path) -> None:
    """While the files are written, `metadata` is a note that no reader takes for a query id."""
    shop = SimulatedJob(tmp_path)
    taken = shop.run(3).take()
    target: Store = shop.open("restored")
    seen: list[bytes] = []
    shop.restore(taken.savepoint, pace=Pace(progress=lambda step: seen.append(target.read("metadata"))))
    assert seen
    for note in seen:
        assert "id" not in json.loads(note)
        assert "Do not start a query here" in json.loads(note)["says"]
    assert json.loads(target.read("metadata"))["id"] == shop.live.query_id
