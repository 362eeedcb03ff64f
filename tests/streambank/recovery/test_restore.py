from __future__ import annotations

import json
from pathlib import Path

import pytest

from streambank.checkpoint.reader import CheckpointReader
from streambank.errors import (
    ConflictError,
    InputError,
    NotFoundError,
    RefusedError,
    StreambankError,
)
from streambank.job.control import JobControl
from streambank.job.processes import this_process
from streambank.recovery.restore import plan_restore, restore
from streambank.savepoint.take import take
from streambank.sinks.file_sink import FileSinkCapture
from streambank.sinks.file_standing import ASIDE_DIRECTORY
from streambank.sinks.unguarded import sinks_from_descriptions
from streambank.storage.base import Store
from tests.support.file_sinks import FileSinkWriter
from tests.support.live_checkpoint import LiveCheckpoint, add_debris
from tests.support.workshop import BY, JOB, Workshop, closure_of, quick_store


@pytest.fixture(params=["local", "memory"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Workshop:
    return Workshop(tmp_path if request.param == "local" else f"memory://{tmp_path.name}")


class TestIntoADirectory:
    def test_gives_exactly_the_closure_byte_for_byte(self, shop: Workshop) -> None:
        shop.run(8)
        taken = shop.take()
        closure = CheckpointReader(shop.checkpoint).closure(7, "safe")
        report = shop.restore(taken.savepoint)
        restored = closure_of(shop.open("restored"))
        assert restored == {path: shop.checkpoint.read(path) for path in closure.paths}
        assert (report.batch, report.layout.files) == (7, len(closure.paths))
        assert CheckpointReader(shop.open("restored")).closure().batch == 7

    def test_leaves_a_report_beside_the_directory(self, shop: Workshop) -> None:
        shop.run(3)
        report = shop.restore(shop.take().savepoint)
        left = json.loads(quick_store(shop.base).read("restored.restored.json"))
        assert left == json.loads(json.dumps(report.to_dict()))
        assert left["location"] == shop.open("restored").uri

    def test_an_unfinished_batch_and_debris_stay_behind(self, shop: Workshop) -> None:

        shop.run(5)
        shop.live.plan()
        add_debris(shop.checkpoint, 5)
        shop.restore(shop.take().savepoint)
        paths = set(closure_of(shop.open("restored")))
        assert "offsets/5" not in paths
        assert not [path for path in paths if "/." in path]

    def test_a_target_with_files_is_refused_and_untouched(self, shop: Workshop) -> None:
        shop.run(3)
        taken = shop.take()
        target = shop.open("restored")
        target.write("precious", b"1")
        with pytest.raises(RefusedError) as caught:
            shop.restore(taken.savepoint)
        assert caught.value.code == "target-not-empty"
        assert closure_of(target) == {"precious": b"1"}
        with pytest.raises(RefusedError):
            restore(shop.repository, taken.savepoint, into=shop.checkpoint)

    def test_no_such_savepoint(self, shop: Workshop) -> None:
        shop.run(3)
        shop.take()
        with pytest.raises(NotFoundError):
            shop.restore("b000099-ffffffffffff")
        assert closure_of(shop.open("restored")) == {}

    def test_needs_one_target(self, shop: Workshop) -> None:
        with pytest.raises(InputError):
            restore(shop.repository, "x")
        with pytest.raises(InputError):
            restore(shop.repository, "x", into=shop.open("a"), generation=shop.control())
        with pytest.raises(InputError):
            shop.restore("x", mode="steal")
        with pytest.raises(InputError):
            shop.restore("x", sink="ignore")

    def test_a_first_batch_can_be_restored(self, shop: Workshop) -> None:
        shop.run(1)
        shop.restore(shop.take().savepoint)
        assert CheckpointReader(shop.open("restored")).closure().batch == 0


class TestLatestGood:
    def test_is_the_newest(self, shop: Workshop) -> None:
        shop.run(3)
        shop.take()
        shop.run(1)
        newest = shop.take()
        report = shop.restore("latest-good")
        assert (report.savepoint, report.skipped) == (newest.savepoint, ())

    def test_walks_back_past_damaged_ones_and_says_which(self, shop: Workshop) -> None:
        shop.run(3)
        good = shop.take()
        before = {info.path for info in shop.repository_store.list("packs")}
        shop.run(2)
        damaged = shop.take()
        for info in list(shop.repository_store.list("packs")):
            if info.path not in before:
                data = bytearray(shop.repository_store.read(info.path))
                data[3] ^= 1
                shop.repository_store.write(info.path, bytes(data))
        shop.run(1)
        listed = shop.take(batch=2)
        assert listed.already_there
        manifest = f"savepoints/{JOB}/{damaged.savepoint}.json"
        plan = plan_restore(
            shop.repository, "latest-good", into=shop.open("restored"), sink="rollback", opener=quick_store
        )
        assert plan.savepoint == good.savepoint
        assert [one.savepoint for one in plan.skipped] == [damaged.savepoint]
        assert plan.skipped[0].why
        assert shop.repository_store.exists(manifest)
        report = shop.restore("latest-good", sink="rollback")
        assert report.savepoint == good.savepoint
        # what was found is recorded, so that no one counts on the damaged one
        summaries = {one.savepoint: one for one in shop.repository.manifests(JOB)}
        assert summaries[damaged.savepoint].verified_ok is False
        assert summaries[good.savepoint].verified_ok is True

    def test_is_the_newest_by_its_data_not_by_when_it_was_taken(self, shop: Workshop) -> None:
        shop.run(6)
        newest = shop.take()
        shop.take(batch=2)
        assert shop.restore("latest-good").savepoint == newest.savepoint
        # what goes on from a restore is newer than what it was restored from, whatever its batches are called
        again = LiveCheckpoint(shop.open("second"), query_id=shop.live.query_id, seed=1).run(4)
        from_there = take(again.store, shop.repository, JOB)
        assert from_there.batch < newest.batch
        assert shop.restore("latest-good", "restored-again").savepoint == from_there.savepoint

    def test_none_that_verifies(self, shop: Workshop) -> None:
        shop.run(3)
        taken = shop.take()
        shop.repository_store.write(f"savepoints/{JOB}/{taken.savepoint}.json", b"{}")
        with pytest.raises(NotFoundError) as caught:
            shop.restore("latest-good")
        assert caught.value.code == "no-good-savepoint"
        assert closure_of(shop.open("restored")) == {}

    def test_of_several_jobs_needs_a_name(self, shop: Workshop) -> None:

        shop.run(3)
        shop.take()
        take(shop.checkpoint, shop.repository, "other")
        with pytest.raises(InputError) as caught:
            shop.restore("latest-good")
        assert caught.value.code == "which-job"
        assert shop.restore("latest-good", job="other").job == "other"


class TestSinks:
    def test_going_back_is_refused_by_default(self, shop: Workshop) -> None:
        shop.run(5)
        taken = shop.take()
        shop.run(3)
        before = closure_of(shop.sink_store)
        with pytest.raises(RefusedError) as caught:
            shop.restore(taken.savepoint)
        assert caught.value.code == "sink-would-lose-rows"
        assert "--sink rollback" in caught.value.hint
        assert f"3 files with {5 + 6 + 7} rows" in caught.value.message
        assert closure_of(shop.sink_store) == before
        assert closure_of(shop.open("restored")) == {}

    def test_rollback_sets_later_output_aside(self, shop: Workshop) -> None:
        shop.run(5)
        assert shop.sink is not None
        taken = shop.take()
        rows = shop.sink.read()
        shop.run(12)
        report = shop.restore(taken.savepoint, sink="rollback")
        assert shop.sink.read() == rows
        assert report.rolled_back[0]["files_aside"] == 12
        assert any(info.path.startswith(ASIDE_DIRECTORY) for info in shop.sink_store.list())
        assert plan_restore(shop.repository, taken.savepoint, into=shop.open("again")).possible

    def test_accept_leaves_everything_and_is_recorded(self, shop: Workshop) -> None:
        shop.run(5)
        taken = shop.take()
        shop.run(3)
        before = closure_of(shop.sink_store)
        report = shop.restore(taken.savepoint, sink="accept")
        assert closure_of(shop.sink_store) == before
        assert report.to_dict()["sink"] == "accept"
        assert report.sinks[0]["standing"] == "ahead"

    def test_a_sink_that_lost_files_is_refused_also_for_rollback(self, shop: Workshop) -> None:
        shop.run(5)
        taken = shop.take()
        shop.run(1)
        lost = next(info.path for info in shop.sink_store.list() if info.path.startswith("part-"))
        shop.sink_store.delete(lost)
        for choice in ("refuse", "rollback"):
            with pytest.raises(RefusedError, match="lacks 1 data files"):
                shop.restore(taken.savepoint, sink=choice)
        assert closure_of(shop.open("restored")) == {}
        shop.restore(taken.savepoint, sink="accept")

    def test_the_plan_says_what_would_be_lost(self, shop: Workshop) -> None:
        shop.run(5)
        taken = shop.take()
        shop.run(3)
        plan = plan_restore(shop.repository, taken.savepoint, into=shop.open("restored"))
        assert not plan.possible
        assert plan.batch == 4
        assert plan.sinks[0]["later_rows"] == 18
        assert "lose rows" in plan.sink_effect()
        assert [error.code for error in plan.refusals] == ["sink-would-lose-rows"]
        with pytest.raises(RefusedError):
            plan.check()
        assert closure_of(shop.open("restored")) == {}
        assert json.loads(json.dumps(plan.to_dict()))["possible"] is False

    def test_a_moved_sink(self, tmp_path: Path) -> None:
        shop = Workshop(tmp_path)
        shop.run(5)
        taken = shop.take()
        (tmp_path / "out").rename(tmp_path / "moved")
        with pytest.raises(RefusedError):
            shop.restore(taken.savepoint)
        moved = {str(tmp_path / "out"): str(tmp_path / "moved")}
        report = shop.restore(taken.savepoint, sink="rollback", moved_sinks=moved)
        assert report.rolled_back[0]["log_written"] == ["0", "1", "2", "3", "4"]
        assert "/moved/part-" in (tmp_path / "moved" / "_spark_metadata" / "4").read_text()

    def test_unguarded_sinks_are_named(self, shop: Workshop) -> None:

        shop.run(3)
        taken = take(
            shop.checkpoint, shop.repository, JOB, sinks=sinks_from_descriptions(["ForeachBatchSink"])
        )
        report = shop.restore(taken.savepoint)
        assert report.sinks[0]["guarded"] is False
        assert "not guarded" in str(report.sinks[0]["says"])


class TestNewOutput:
    def test_a_fork_gets_a_new_output_with_a_log_that_goes_on(self, shop: Workshop) -> None:
        shop.run(5)
        taken = shop.take()
        new = shop.open("fork-out")
        plan = plan_restore(
            shop.repository,
            taken.savepoint,
            into=shop.open("restored"),
            mode="fork",
            new_sinks={shop.sink_store.uri: new.uri},
        )
        assert plan.possible
        assert plan.warnings == ()
        assert plan.sinks[0]["new_path"] == new.uri
        assert f"goes on in {new.uri}" in plan.sink_effect()
        assert closure_of(new) == {}
        before = closure_of(shop.sink_store)
        report = shop.restore(taken.savepoint, mode="fork", new_sinks={shop.sink_store.uri: new.uri})
        assert closure_of(shop.sink_store) == before
        assert closure_of(new) == {f"_spark_metadata/{batch}": b"v1" for batch in range(5)}
        assert report.to_dict()["new_outputs"] == [
            {
                "path": new.uri,
                "instead_of": shop.sink_store.uri,
                "batch": 4,
                "log_written": ["0", "1", "2", "3", "4"],
            }
        ]

    @pytest.mark.parametrize("choice", ["refuse", "rollback", "accept"])
    def test_the_old_output_stays_as_it_is_whatever_the_choice(self, shop: Workshop, choice: str) -> None:
        shop.run(5)
        taken = shop.take()
        shop.run(3)
        before = closure_of(shop.sink_store)
        report = shop.restore(
            taken.savepoint, sink=choice, new_sinks={shop.sink_store.uri: shop.open("new").uri}
        )
        assert closure_of(shop.sink_store) == before
        assert report.rolled_back == ()
        assert len(report.new_outputs) == 1

    def test_a_directory_that_is_not_empty_is_refused_and_untouched(self, shop: Workshop) -> None:
        shop.run(3)
        taken = shop.take()
        new = shop.open("new")
        new.write("part-0.json", b"{}")
        with pytest.raises(RefusedError, match=r"part-0\.json") as caught:
            shop.restore(taken.savepoint, mode="fork", new_sinks={shop.sink_store.uri: new.uri})
        assert caught.value.code == "new-sink-not-empty"
        assert closure_of(new) == {"part-0.json": b"{}"}
        assert closure_of(shop.open("restored")) == {}

    def test_a_fork_does_not_go_on_in_the_output_of_its_origin(self, shop: Workshop) -> None:
        shop.run(3)
        taken = shop.take()
        with pytest.raises(RefusedError) as caught:
            shop.restore(taken.savepoint, mode="fork", new_sinks={shop.sink_store.uri: shop.sink_store.uri})
        assert caught.value.code == "fork-shares-sink"

    def test_what_makes_no_sense_is_said(self, shop: Workshop) -> None:
        shop.run(3)
        taken = shop.take()
        with pytest.raises(InputError) as caught:
            shop.restore(taken.savepoint, new_sinks={"/elsewhere": shop.open("new").uri})
        assert caught.value.code == "unknown-sink"
        assert shop.sink_store.uri in caught.value.hint

    def test_two_sinks_do_not_go_on_in_one_directory(self, shop: Workshop) -> None:
        shop.run(3)
        other = FileSinkWriter(shop.open("out2"))
        for batch in range(3):
            other.write(batch, [{"batch": batch}])
        stores = (shop.sink_store, other.store)
        sinks = [FileSinkCapture(store.uri, store) for store in stores]
        taken = take(shop.checkpoint, shop.repository, JOB, sinks=sinks)
        with pytest.raises(InputError) as caught:
            shop.restore(taken.savepoint, new_sinks={store.uri: shop.open("new").uri for store in stores})
        assert caught.value.code == "two-sinks-one-directory"
        report = shop.restore(taken.savepoint, new_sinks={other.store.uri: shop.open("new").uri})
        assert [sink["new_path"] for sink in report.sinks] == [None, shop.open("new").uri]

    def test_an_emptied_output_is_begun_anew_where_that_is_accepted(self, shop: Workshop) -> None:
        shop.run(5)
        taken = shop.take()
        for path in closure_of(shop.sink_store):
            shop.sink_store.delete(path)
        with pytest.raises(RefusedError):
            shop.restore(taken.savepoint)
        report = shop.restore(taken.savepoint, sink="accept")
        assert closure_of(shop.sink_store) == {f"_spark_metadata/{batch}": b"v1" for batch in range(5)}
        assert report.new_outputs[0]["path"] == shop.sink_store.uri

    def test_a_log_with_a_gap_is_accepted_with_a_warning(self, shop: Workshop) -> None:
        shop.run(5)
        taken = shop.take()
        shop.sink_store.delete("_spark_metadata/4")
        before = closure_of(shop.sink_store)
        report = shop.restore(taken.savepoint, sink="accept")
        assert closure_of(shop.sink_store) == before
        assert "does not reach batch 4" in report.warnings[-1]


class TestModes:
    def test_fork_gets_a_new_query_id_and_shares_no_sink(self, shop: Workshop) -> None:
        shop.run(5)
        taken = shop.take()
        with pytest.raises(RefusedError) as caught:
            shop.restore(taken.savepoint, mode="fork")
        assert caught.value.code == "fork-shares-sink"
        report = shop.restore(taken.savepoint, mode="fork", sink="accept")
        assert report.query_id != shop.live.query_id
        assert CheckpointReader(shop.open("restored")).query_id() == report.query_id
        assert report.layout.rewritten == ("metadata",)
        with pytest.raises(InputError):
            shop.restore(taken.savepoint, "elsewhere", mode="fork", sink="rollback")
        with pytest.raises(InputError):
            restore(shop.repository, taken.savepoint, generation=shop.control(), mode="fork")

    def test_claim_unpins(self, shop: Workshop) -> None:
        shop.run(5)
        taken = shop.take(pin=True)
        shop.restore(taken.savepoint)
        assert shop.repository.pinned(JOB, taken.savepoint)
        shop.restore(taken.savepoint, "second", mode="claim")
        assert not shop.repository.pinned(JOB, taken.savepoint)

    def test_link_shares_bytes_and_warns(self, tmp_path: Path) -> None:
        shop = Workshop(tmp_path, state_bytes=512 << 10)
        shop.run(6)
        taken = shop.take()
        report = shop.restore(taken.savepoint, link=True)
        assert report.layout.linked_files == 2
        assert any("share their bytes" in warning for warning in report.warnings)
        linked = tmp_path / "restored" / "state/0/0/5.snapshot"
        assert linked.stat().st_nlink == 2
        assert linked.read_bytes() == (tmp_path / "ck" / "state/0/0/5.snapshot").read_bytes()


class TestGenerations:
    def test_switches_to_the_next_one(self, shop: Workshop) -> None:
        shop.run(5)
        taken = shop.take()
        control = shop.control()
        report = restore(shop.repository, taken.savepoint, generation=control, by=BY, opener=quick_store)
        current = control.generation()
        assert current is not None
        assert (current.number, current.from_savepoint) == (2, taken.savepoint)
        assert current.location == report.layout.target == f"{shop.checkpoint.uri}.g0002"
        assert CheckpointReader(quick_store(current.location)).closure().batch == 4
        assert control.generations().all()[0].location == shop.checkpoint.uri
        left = control.store.read("restores/0000000001.json")
        assert json.loads(left)["savepoint"] == taken.savepoint
        again = restore(shop.repository, taken.savepoint, generation=control, by=BY, opener=quick_store)
        assert again.generation == 3

    def test_refused_while_a_driver_lives(self, shop: Workshop) -> None:
        shop.run(5)
        taken = shop.take()
        control = shop.control()
        lease = control.lease.acquire([this_process("python")])
        targets: list[dict[str, object]] = [{"generation": control}, {"into": shop.open("restored")}]
        for target in targets:
            with pytest.raises(RefusedError) as caught:
                restore(shop.repository, taken.savepoint, opener=quick_store, **target)  # type: ignore[arg-type]  # one of two
            assert caught.value.code == "lease-held"
            plan = plan_restore(shop.repository, taken.savepoint, opener=quick_store, **target)  # type: ignore[arg-type]  # one of two
            assert [error.code for error in plan.refusals] == ["lease-held"]
        assert control.generation() is None
        assert closure_of(shop.open("restored")) == {}
        lease.release()
        restore(shop.repository, taken.savepoint, generation=control, opener=quick_store)

    def test_a_driver_cannot_start_meanwhile(self, shop: Workshop) -> None:
        shop.run(5)
        taken = shop.take()
        control = shop.control()
        refused: list[str] = []

        def start_a_driver(step: object) -> None:
            if not refused:
                try:
                    shop.control().lease.acquire([this_process("python")])
                except RefusedError as error:
                    refused.append(error.code)

        restore(
            shop.repository,
            taken.savepoint,
            generation=control,
            opener=quick_store,
            progress=start_a_driver,
        )
        assert refused == ["lease-held"]

    def test_two_restores_at_once_make_one_generation(self, shop: Workshop) -> None:
        shop.run(5)
        taken = shop.take()
        codes: list[str] = []

        def second(step: object) -> None:
            if not codes:
                try:
                    restore(shop.repository, taken.savepoint, generation=shop.control(), opener=quick_store)
                except StreambankError as error:
                    codes.append(error.code)

        restore(
            shop.repository,
            taken.savepoint,
            generation=shop.control(),
            opener=quick_store,
            progress=second,
        )
        assert codes == ["operation-in-progress"]
        assert [one.number for one in shop.control().generations().all()] == [1, 2]

    def test_another_jobs_savepoint_is_refused(self, shop: Workshop) -> None:

        shop.run(3)
        taken = shop.take()
        other = JobControl(shop.repository_store.child("jobs/other"), "other")
        with pytest.raises(InputError) as caught:
            restore(shop.repository, taken.savepoint, generation=other)
        assert caught.value.code == "another-job"

    def test_the_leftovers_of_a_restore_that_died_are_taken_over(self, shop: Workshop) -> None:
        shop.run(3)
        taken = shop.take()
        died = quick_store(f"{shop.checkpoint.uri}.g0002")
        note = {"owner": {"host": "elsewhere"}, "files": ["commits/2", "metadata"]}
        died.write("metadata", json.dumps({"streambank_restore": note}).encode())
        died.write("commits/2", b"half")
        report = restore(shop.repository, taken.savepoint, generation=shop.control(), opener=quick_store)
        assert (report.generation, report.layout.cleared_files) == (2, 2)
        assert CheckpointReader(died).closure().batch == 2


class TestRestoresAtOnce:
    def test_the_same_directory_belongs_to_one(self, shop: Workshop) -> None:
        shop.run(3)
        taken = shop.take()
        codes: list[str] = []

        def second(step: object) -> None:
            if not codes:
                try:
                    shop.restore(taken.savepoint)
                except StreambankError as error:
                    codes.append(error.code)

        shop.restore(taken.savepoint, progress=second)
        assert codes == ["restore-in-progress"]
        assert CheckpointReader(shop.open("restored")).closure().batch == 2

    def test_a_note_of_another_host_is_not_judged(self, shop: Workshop) -> None:
        shop.run(3)
        taken = shop.take()
        target = shop.open("restored")
        note = {"owner": {"host": "elsewhere"}, "files": ["metadata"]}
        target.write("metadata", json.dumps({"streambank_restore": note}).encode())
        with pytest.raises(ConflictError, match="may be at work") as caught:
            shop.restore(taken.savepoint)
        assert caught.value.code == "restore-in-progress"

    def test_foreign_files_beside_a_note_are_never_removed(self, shop: Workshop) -> None:
        shop.run(3)
        taken = shop.take()
        target = shop.open("restored")
        note = {"owner": {"host": "elsewhere"}, "files": ["metadata"]}
        target.write("metadata", json.dumps({"streambank_restore": note}).encode())
        target.write("precious", b"1")
        with pytest.raises(RefusedError, match="precious"):
            shop.restore(taken.savepoint)
        assert target.read("precious") == b"1"


def test_what_is_half_done_is_no_checkpoint(tmp_path: Path) -> None:
    """While the files are written, `metadata` is a note that no reader takes for a query id."""
    shop = Workshop(tmp_path)
    shop.run(3)
    taken = shop.take()
    target: Store = shop.open("restored")
    seen: list[bytes] = []
    shop.restore(taken.savepoint, progress=lambda step: seen.append(target.read("metadata")))
    assert seen
    for note in seen:
        assert "id" not in json.loads(note)
        assert "Do not start a query here" in json.loads(note)["says"]
    assert json.loads(target.read("metadata"))["id"] == shop.live.query_id


def test_after_a_rollback_the_old_checkpoint_is_warned_about(tmp_path: Path) -> None:
    shop = Workshop(tmp_path)
    shop.run(4)
    taken = shop.take()
    shop.run(1)
    report = shop.restore(taken.savepoint, sink="rollback")
    assert any(shop.checkpoint.uri in warning for warning in report.warnings)
