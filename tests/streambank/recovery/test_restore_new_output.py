"""A restored query that goes on in a new output directory."""

from __future__ import annotations

import pytest

from streambank.core.errors import InputError, RefusedError, StorageError
from streambank.doctor.checks.checkpoint import check_sink
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore, restore
from streambank.savepoint.take import TakeRequest, take
from streambank.sinks.file.capture import FileSinkCapture
from streambank.storage.store import Store
from tests.support.checkpoint.file_sink import FileSinkWriter
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.simulated_job import BY, JOB, SimulatedJob, quick_store
from tests.support.refuses import refuses
from tests.support.storage.contents import contents


class TestNewOutput:
    def test_a_fork_gets_a_new_output_with_a_log_that_goes_on(self, shop: SimulatedJob) -> None:
        taken = shop.run(5).take()
        new = shop.open("fork-out")
        plan = plan_restore(
            RestoreRequest(
                shop.repository,
                taken.savepoint,
                into=shop.open("restored"),
                mode="fork",
                new_sinks={shop.sink_store.uri: new.uri},
            )
        )
        assert plan.possible
        assert plan.warnings == ()
        assert plan.sinks[0]["new_path"] == new.uri
        assert f"goes on in {new.uri}" in plan.sink_effect()
        assert contents(new) == {}
        before = contents(shop.sink_store)
        report = shop.restore(taken.savepoint, mode="fork", new_sinks={shop.sink_store.uri: new.uri})
        assert contents(shop.sink_store) == before
        assert contents(new) == {f"_spark_metadata/{batch}": b"v1" for batch in range(5)}
        assert report.to_dict()["new_outputs"] == [
            {
                "path": new.uri,
                "instead_of": shop.sink_store.uri,
                "batch": 4,
                "log_written": ["0", "1", "2", "3", "4"],
            }
        ]

    @pytest.mark.parametrize("choice", ["refuse", "rollback", "accept"])
    def test_the_old_output_stays_as_it_is_whatever_the_choice(self, shop: SimulatedJob, choice: str) -> None:
        taken = shop.run(5).take()
        shop.run(3)
        before = contents(shop.sink_store)
        report = shop.restore(
            taken.savepoint, sink=choice, new_sinks={shop.sink_store.uri: shop.open("new").uri}
        )
        assert contents(shop.sink_store) == before
        assert report.rolled_back == ()
        assert len(report.new_outputs) == 1

    def test_an_old_output_that_does_not_answer_hinders_no_new_one(
        self, shop: SimulatedJob, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        taken = shop.run(5).take()
        fired = []

        def dead(saved: object, store: Store, was_uri: str) -> None:
            fired.append(was_uri)
            raise StorageError("The bucket does not answer.", code="service-busy", hint="Wait.")

        monkeypatch.setattr("streambank.recovery.sinks.sinks.stand", dead)
        with pytest.raises(StorageError):
            shop.restore(taken.savepoint)
        new = shop.open("new")
        report = shop.restore(taken.savepoint, new_sinks={shop.sink_store.uri: new.uri})
        assert set(fired) == {shop.sink_store.uri}
        assert len(contents(new)) == 5
        assert any("not known how far" in one and "does not answer" in one for one in report.warnings)

    def test_a_directory_that_is_not_empty_is_refused_and_untouched(self, shop: SimulatedJob) -> None:
        taken = shop.run(3).take()
        new = shop.open("new")
        new.write("part-0.json", b"{}")
        with refuses(RefusedError, "new-sink-not-empty", match=r"part-0\.json"):
            shop.restore(taken.savepoint, mode="fork", new_sinks={shop.sink_store.uri: new.uri})
        assert contents(new) == {"part-0.json": b"{}"}
        assert contents(shop.open("restored")) == {}

    def test_a_fork_does_not_go_on_in_the_output_of_its_origin(self, shop: SimulatedJob) -> None:
        taken = shop.run(3).take()
        with refuses(RefusedError, "fork-shares-sink"):
            shop.restore(taken.savepoint, mode="fork", new_sinks={shop.sink_store.uri: shop.sink_store.uri})

    def test_what_makes_no_sense_is_said(self, shop: SimulatedJob) -> None:
        taken = shop.run(3).take()
        with refuses(InputError, "unknown-sink") as caught:
            shop.restore(taken.savepoint, new_sinks={"/elsewhere": shop.open("new").uri})
        assert shop.sink_store.uri in caught.value.hint

    def test_two_sinks_do_not_go_on_in_one_directory(self, shop: SimulatedJob) -> None:
        shop.run(3)
        other = FileSinkWriter(shop.open("out2"))
        for batch in range(3):
            other.write(batch, [{"batch": batch}])
        stores = (shop.sink_store, other.store)
        sinks = [FileSinkCapture(store.uri, store) for store in stores]
        taken = take(TakeRequest(shop.checkpoint, shop.repository, JOB, sinks=sinks))
        with refuses(InputError, "two-sinks-one-directory"):
            shop.restore(taken.savepoint, new_sinks={store.uri: shop.open("new").uri for store in stores})
        report = shop.restore(taken.savepoint, new_sinks={other.store.uri: shop.open("new").uri})
        assert [sink["new_path"] for sink in report.plan.sinks] == [None, shop.open("new").uri]

    def test_an_emptied_output_is_begun_anew_where_that_is_accepted(self, shop: SimulatedJob) -> None:
        taken = shop.run(5).take()
        for path in contents(shop.sink_store):
            shop.sink_store.delete(path)
        with pytest.raises(RefusedError):
            shop.restore(taken.savepoint)
        report = shop.restore(taken.savepoint, sink="accept")
        assert contents(shop.sink_store) == {f"_spark_metadata/{batch}": b"v1" for batch in range(5)}
        assert report.new_outputs[0]["path"] == shop.sink_store.uri

    def test_the_next_generation_goes_on_in_a_new_output(self, shop: SimulatedJob) -> None:
        taken = shop.run(5).take()
        shop.run(3)
        before, old, new = contents(shop.sink_store), shop.sink_store.uri, shop.open("new")
        control = shop.control()
        report = restore(
            RestoreRequest(
                shop.repository,
                taken.savepoint,
                generation=control,
                new_sinks={old: new.uri},
                by=BY,
                opener=quick_store,
            )
        )
        generation = control.generation()
        assert generation is not None
        assert (generation.number, generation.new_sinks) == (2, {old: new.uri})
        assert any(f"must write to {new.uri}" in warning for warning in report.warnings)

        live = LiveCheckpoint(quick_store(generation.location), query_id=shop.live.query_id, seed=1)
        live.next_batch = 5
        sink = FileSinkWriter(new, timeline="b")
        for batch in range(5, 13):
            live.plan()
            sink.write(batch, [{"batch": batch}])
            live.commit()
        assert [row["batch"] for row in sink.read()] == list(range(5, 13))
        assert sorted(new.names("_spark_metadata")) == ["10", "11", "12", "9.compact"]
        assert check_sink("new", new, live.store) == []
        assert contents(shop.sink_store) == before

        again = take(TakeRequest(live.store, shop.repository, JOB, sinks=[FileSinkCapture(new.uri, new)]))
        third = restore(
            RestoreRequest(shop.repository, again.savepoint, generation=control, by=BY, opener=quick_store)
        )
        assert (third.plan.generation, third.plan.sinks[0]["standing"], third.plan.sinks[0]["path"]) == (
            3,
            "even",
            new.uri,
        )
        generation = control.generation()
        assert generation is not None
        assert generation.new_sinks == {old: new.uri}  # it is still not to go on there

    def test_a_new_output_that_was_not_begun_has_a_gap(self, shop: SimulatedJob) -> None:
        """What the test above would find if the log of the new output were not written."""
        sink = FileSinkWriter(shop.open("new"))
        sink.write(5, [{"batch": 5}])
        shop.live.next_batch = 5
        shop.live.plan()
        found = check_sink("new", sink.store, shop.checkpoint)
        assert [finding.code for finding in found] == ["sink-log-gap"]
