"""What a restore does about output that is not where the savepoint is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streambank.core.errors import ConflictError, RefusedError
from streambank.recovery.approval import choices_of
from streambank.recovery.request import RestoreRequest, TogetherRequest
from streambank.recovery.restore import plan_restore
from streambank.recovery.together import plan_together
from streambank.savepoint.take import TakeRequest, take
from streambank.sinks.file.comparison import ASIDE_DIRECTORY
from streambank.sinks.unguarded import sinks_from_descriptions
from tests.support.jobs.simulated_job import JOB, SimulatedJob
from tests.support.refuses import refuses
from tests.support.storage.contents import contents


class TestSinks:
    def test_going_back_is_refused_by_default(self, shop: SimulatedJob) -> None:
        taken = shop.run(5).take()
        shop.run(3)
        before = contents(shop.sink_store)
        with refuses(RefusedError, "sink-would-lose-rows") as caught:
            shop.restore(taken.savepoint)
        assert "--sink rollback" in caught.value.hint
        assert f"3 files with {5 + 6 + 7} rows" in caught.value.message
        assert contents(shop.sink_store) == before
        assert contents(shop.open("restored")) == {}

    def test_a_batch_that_was_saved_without_its_sink_is_not_said_to_have_it(self, shop: SimulatedJob) -> None:
        shop.run(5)
        without = take(TakeRequest(shop.checkpoint, shop.repository, JOB))
        with pytest.raises(ConflictError) as caught:
            shop.take()
        assert caught.value.code == "taken-without-sink" and without.savepoint in caught.value.message
        assert take(TakeRequest(shop.checkpoint, shop.repository, JOB)).already_there
        shop.run(1)
        assert shop.take().savepoint == shop.take().savepoint

    def test_rollback_sets_later_output_aside(self, shop: SimulatedJob) -> None:
        shop.run(5)
        assert shop.sink is not None
        taken = shop.take()
        rows = shop.sink.read()
        shop.run(12)
        report = shop.restore(taken.savepoint, sink="rollback")
        assert shop.sink.read() == rows
        assert report.rolled_back[0]["files_aside"] == 12
        assert any(info.path.startswith(ASIDE_DIRECTORY) for info in shop.sink_store.list())
        assert plan_restore(
            RestoreRequest(shop.repository, taken.savepoint, into=shop.open("again"))
        ).possible

    def test_accept_leaves_everything_and_is_recorded(self, shop: SimulatedJob) -> None:
        taken = shop.run(5).take()
        shop.run(3)
        before = contents(shop.sink_store)
        report = shop.restore(taken.savepoint, sink="accept")
        assert contents(shop.sink_store) == before
        assert report.to_dict()["sink"] == "accept"
        assert report.plan.sinks[0]["standing"] == "ahead"

    def test_a_sink_that_lost_files_is_refused_also_for_rollback(self, shop: SimulatedJob) -> None:
        taken = shop.run(5).take()
        shop.run(2)
        lost = min(info.path for info in shop.sink_store.list() if info.path.startswith("part-"))
        shop.sink_store.delete(lost)
        for choice in ("refuse", "rollback"):
            with pytest.raises(RefusedError, match=r"lacks 1 data file of batches up to 4 \(part-") as caught:
                shop.restore(taken.savepoint, sink=choice)
            assert "Spark would skip what the query writes again" in caught.value.message
            assert "rows of 2 files with 11 rows" in caught.value.message
            assert "--sink rollback-accept" in caught.value.hint
        assert contents(shop.open("restored")) == {}
        shop.restore(taken.savepoint, "accepted", sink="accept")
        report = shop.restore(taken.savepoint, sink="rollback-accept")
        assert report.rolled_back[0]["files_aside"] == 2
        says = str(report.plan.sinks[0]["says"])
        assert "lose rows of 2 files" in says and "lacks 1 data file" in says
        assert shop.sink is not None and shop.sink.latest() == 4

    def test_the_plan_says_what_would_be_lost(self, shop: SimulatedJob) -> None:
        taken = shop.run(5).take()
        shop.run(3)
        plan = plan_restore(RestoreRequest(shop.repository, taken.savepoint, into=shop.open("restored")))
        assert not plan.possible
        assert plan.batch == 4
        assert plan.sinks[0]["later_rows"] == 18
        assert "lose rows" in plan.sink_effect()
        assert [error.code for error in plan.refusals] == ["sink-would-lose-rows"]
        with pytest.raises(RefusedError):
            plan.check()
        assert contents(shop.open("restored")) == {}
        assert json.loads(json.dumps(plan.to_dict()))["possible"] is False

    def test_a_moved_sink(self, tmp_path: Path) -> None:
        shop = SimulatedJob(tmp_path)
        taken = shop.run(5).take()
        (tmp_path / "out").rename(tmp_path / "moved")
        with pytest.raises(RefusedError):
            shop.restore(taken.savepoint)
        moved = {str(tmp_path / "out"): str(tmp_path / "moved")}
        report = shop.restore(taken.savepoint, sink="rollback", moved_sinks=moved)
        assert report.rolled_back[0]["log_written"] == ["0", "1", "2", "3", "4"]
        assert "/moved/part-" in (tmp_path / "moved" / "_spark_metadata" / "4").read_text()

    def test_unguarded_sinks_are_named(self, shop: SimulatedJob) -> None:

        shop.run(3)
        taken = take(
            TakeRequest(
                shop.checkpoint, shop.repository, JOB, sinks=sinks_from_descriptions(["ForeachBatchSink"])
            )
        )
        report = shop.restore(taken.savepoint)
        assert report.plan.sinks[0]["guarded"] is False
        assert "not guarded" in str(report.plan.sinks[0]["says"])


def test_after_a_rollback_the_old_checkpoint_is_warned_about(tmp_path: Path) -> None:
    shop = SimulatedJob(tmp_path)
    taken = shop.run(4).take()
    shop.run(1)
    report = shop.restore(taken.savepoint, sink="rollback")
    assert any(shop.checkpoint.uri in warning for warning in report.warnings)


class TestPossibleChoices:
    """What a person may be offered, whatever was chosen for the plan."""

    def test_of_a_file_sink_that_is_ahead(self, shop: SimulatedJob) -> None:
        taken = shop.run(5).take()
        assert self.choices(shop, taken.savepoint) == ("refuse", "rollback", "accept")
        shop.run(3)
        for chosen in ("refuse", "rollback", "accept"):
            assert self.choices(shop, taken.savepoint, sink=chosen) == ("rollback", "accept")
        declared = self.choices(shop, taken.savepoint, sink="rollback-accept")
        assert declared == ("rollback", "rollback-accept", "accept")

    def test_an_approval_says_which_one_ends_in_a_query_that_fails(self, shop: SimulatedJob) -> None:
        taken = shop.run(5).take()
        shop.run(3)
        request = RestoreRequest(shop.repository, taken.savepoint, into=shop.open("restored"))
        offered = choices_of(plan_together(TogetherRequest(request)), may_stop=False)
        assert [one.sink for one in offered if "CANNOT_LOAD_STATE_STORE" in one.means] == ["accept"]

    def test_of_a_file_sink_that_lost_files(self, shop: SimulatedJob) -> None:
        taken = shop.run(5).take()
        shop.sink_store.delete(next(one.path for one in shop.sink_store.list() if "part-" in one.path))
        assert self.choices(shop, taken.savepoint) == ("rollback-accept", "accept")
        shop.run(2)
        assert self.choices(shop, taken.savepoint) == ("rollback-accept", "accept")

    def test_of_an_output_directory_that_is_gone(self, shop: SimulatedJob) -> None:
        taken = shop.run(5).take()
        for one in list(shop.sink_store.list()):
            shop.sink_store.delete(one.path)
        assert self.choices(shop, taken.savepoint) == ("accept",)

    def test_of_a_fork(self, shop: SimulatedJob) -> None:
        shop.run(5)
        assert self.choices(shop, shop.take().savepoint, mode="fork") == ("accept",)

    def test_a_job_that_lives_is_left_aside(self, shop: SimulatedJob) -> None:
        taken = shop.run(5).take()
        shop.run(1)
        control = shop.control()
        with control.lease.held("run", by={}):
            plan = plan_restore(RestoreRequest(shop.repository, taken.savepoint, generation=control))
        assert [one.code for one in plan.refusals] == ["lease-held", "sink-would-lose-rows"]
        assert [one.code for one in plan.other_refusals] == ["lease-held"]
        assert plan.possible_choices.sink == ("rollback", "accept")
        assert plan.possible_choices.source == ("refuse", "accept")
        assert plan.to_dict()["possible_choices"] == {
            "sink": ["rollback", "accept"],
            "source": ["refuse", "accept"],
        }

    def choices(self, shop: SimulatedJob, savepoint: str, **options: object) -> tuple[str, ...]:
        plan = plan_restore(RestoreRequest(shop.repository, savepoint, into=shop.open("restored"), **options))  # type: ignore[arg-type]  # options are those of a plan
        return plan.possible_choices.sink
