"""A restore of a savepoint that knows no sink, and a file sink that is named when it is restored."""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streambank.core.choices import RestoreMode
from streambank.core.errors import InputError, RefusedError
from streambank.recovery.plan import RestorePlan
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore
from streambank.recovery.sinks import afterwards
from streambank.recovery.sinks.afterwards import as_told, named_afterwards
from streambank.repository.manifest import decode, encode
from streambank.savepoint.take import TakeRequest, TakeResult, take
from streambank.sinks.unguarded import sinks_from_descriptions
from tests.support.checkpoint.file_sink import FileSinkWriter
from tests.support.jobs.simulated_job import JOB, SimulatedJob, quick_store
from tests.support.refuses import refuses
from tests.support.storage.contents import contents


@pytest.fixture
def shop(tmp_path: Path) -> SimulatedJob:
    """A query at batch 4 that writes files."""
    return SimulatedJob(tmp_path).run(5)


def bare(shop: SimulatedJob) -> TakeResult:
    """A savepoint that knows no sink."""
    return take(TakeRequest(shop.checkpoint, shop.repository, JOB))


def planned(shop: SimulatedJob, taken: TakeResult, **options: Any) -> RestorePlan:
    into = shop.open("restored")
    return plan_restore(
        RestoreRequest(shop.repository, taken.savepoint, into=into, opener=quick_store, **options)
    )


def refused(shop: SimulatedJob, taken: TakeResult, **options: Any) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        shop.restore(taken.savepoint, **options)
    assert not list(shop.open("restored").list())
    assert caught.value.exit_code == 8
    return caught.value


def lose(shop: SimulatedJob) -> None:
    """`rm -rf` of the checkpoint."""
    for one in list(shop.checkpoint.list()):
        shop.checkpoint.delete(one.path)


class TestNoSinkKnown:
    def test_a_take_says_so_and_the_manifest_too(self, shop: SimulatedJob) -> None:
        taken = bare(shop)
        assert taken.warnings == (
            "No sink is known: a restore cannot protect the output; add --file-sink DIR",
        )
        assert bare(shop).already_there and bare(shop).warnings == taken.warnings
        manifest = shop.repository.load(JOB, taken.savepoint)
        assert manifest.to_dict()["sinks_known"] is False
        shop.run(1)
        named = shop.repository.load(JOB, shop.take().savepoint)
        assert named.to_dict()["sinks_known"] is True

    def test_a_sink_that_keeps_nothing_is_known(self, shop: SimulatedJob) -> None:
        sinks = sinks_from_descriptions(["org.apache.spark.sql.execution.streaming.ConsoleTable$"])
        taken = take(TakeRequest(shop.checkpoint, shop.repository, JOB, sinks=sinks))
        shop.run(2)
        assert taken.warnings == () and planned(shop, taken).possible

    @pytest.mark.parametrize("lost", [False, True])
    def test_below_the_newest_batch_it_is_refused_until_somebody_decides(
        self, shop: SimulatedJob, lost: bool
    ) -> None:
        taken = bare(shop)
        shop.run(3)
        if lost:
            lose(shop)
        error = refused(shop, taken)
        assert error.code == "no-sink-known"
        assert "CANNOT_READ_DELTA_FILE_NOT_EXISTS" in error.message and "fails at each start" in error.message
        assert ("has batch 7" if lost else "batches 5 to 7") in error.message
        assert "--file-sink DIR" in error.hint and "--sink accept" in error.hint
        assert shop.restore(taken.savepoint, sink="accept").plan.sink == "accept"

    def test_without_state_the_loss_is_named(self, shop: SimulatedJob) -> None:
        lose_state(shop)
        taken = bare(shop)
        shop.live.next_batch += 1
        shop.checkpoint.write("offsets/5", shop.checkpoint.read("offsets/4"))
        error = refused(shop, taken)
        assert "lost for good" in error.message and "DELTA_FILE" not in error.message

    def test_a_log_near_it_that_is_ahead_counts(self, shop: SimulatedJob) -> None:
        """The checkpoint went back without its output: its newest batch is not the log's."""
        taken = bare(shop)
        shop.run(2)
        for name in ("offsets/5", "commits/5", "offsets/6", "commits/6"):
            shop.checkpoint.delete(name)
        error = refused(shop, taken)
        assert f"that of {shop.sink_store.uri} has batch 6" in error.message
        assert f"perhaps {shop.sink_store.uri}" in error.hint

    def test_at_the_newest_batch_it_is_not(self, shop: SimulatedJob) -> None:
        report = shop.restore(bare(shop).savepoint)
        assert "has not gone on after it" in report.sink_effect

    @pytest.mark.parametrize("ahead", [0, 2])
    def test_a_rollback_that_rolls_nothing_back_is_refused(self, shop: SimulatedJob, ahead: int) -> None:
        taken = bare(shop)
        shop.run(ahead)
        assert refused(shop, taken, sink="rollback").code == "no-sink-known"
        assert planned(shop, taken).possible_choices.sink == (("accept",) if ahead else ("refuse", "accept"))

    def test_a_fork_shares_whatever_there_is(self, shop: SimulatedJob) -> None:
        """A file sink does not compare query ids."""
        mode: RestoreMode = "fork"
        error = refused(shop, bare(shop), mode=mode)
        assert "does not compare query ids" in error.message and "--new-sink DIR=NEW" in error.hint
        assert planned(shop, bare(shop), mode=mode, sink="accept").possible

    def test_a_new_output_needs_the_old_one(self, shop: SimulatedJob) -> None:
        out = shop.sink_store.uri
        taken = bare(shop)
        with refuses(InputError, "unknown-sink", hint=f"--file-sink {out}"):
            planned(shop, taken, new_sinks={out: f"{out}2"})
        shop.run(2)
        report = shop.restore(taken.savepoint, file_sinks=(out,), new_sinks={out: f"{out}2"})
        assert report.new_outputs[0]["batch"] == 4

    def test_an_older_savepoint_that_does_not_say_it_is_read_as_not_known(self, shop: SimulatedJob) -> None:
        taken = bare(shop)
        manifest = shop.repository.load(JOB, taken.savepoint)
        fields = {k: v for k, v in manifest.to_dict().items() if k not in ("sinks_known", "sink_candidates")}
        old = decode(b"".join(encode(replace(manifest, sinks_known=False))))
        assert "sinks_known" not in fields and old.sinks_known is False
        shop.run(1)
        assert refused(shop, taken).code == "no-sink-known"


def lose_state(shop: SimulatedJob) -> None:
    for one in list(shop.checkpoint.list("state")):
        shop.checkpoint.delete(one.path)


class TestNamedAfterwards:
    def test_a_rollback(self, tmp_path: Path) -> None:
        shop = SimulatedJob(tmp_path)
        shop.sink = FileSinkWriter(shop.sink_store, keep_old=True)
        shop.run(5)
        taken, before = bare(shop), shop.sink.read()
        shop.run(12)
        lose(shop)
        sinks = (shop.sink_store.uri,)
        error = refused(shop, taken, file_sinks=sinks)
        assert error.code == "sink-would-lose-rows" and "is at batch 16" in error.message
        report = shop.restore(taken.savepoint, file_sinks=sinks, sink="rollback")
        assert report.rolled_back[0]["files_aside"] == 12
        assert shop.sink.read() == before
        again = shop.restore(taken.savepoint, "again", file_sinks=sinks, sink="rollback")
        assert again.rolled_back[0]["files_aside"] == 0

    def test_a_log_that_was_compacted_since_tells_nothing(self, shop: SimulatedJob) -> None:
        taken = bare(shop)
        shop.run(6)  # entries up to batch 8 are in 9.compact now, and gone
        error = refused(shop, taken, file_sinks=(shop.sink_store.uri,), sink="rollback")
        assert error.code == "sink-log-not-retained" and "no longer tells" in error.message

    def old_entries(self, tmp_path: Path) -> tuple[SimulatedJob, TakeResult]:
        """A savepoint of batch 12 without a sink, whose log was compacted since and keeps old entries."""
        shop = SimulatedJob(tmp_path)
        shop.sink = FileSinkWriter(shop.sink_store, keep_old=True)
        shop.run(13)
        taken = bare(shop)
        shop.run(8)
        return shop, taken

    def test_of_old_entries_some_are_deleted_before_others(self, tmp_path: Path) -> None:
        """Spark deletes them by their age: the first that is left is not the first of the sink."""
        shop, taken = self.old_entries(tmp_path)
        for name in (*map(str, range(11)), "9.compact"):
            shop.sink_store.delete(f"_spark_metadata/{name}")
        before = contents(shop.sink_store)
        error = refused(shop, taken, file_sinks=(shop.sink_store.uri,), sink="rollback")
        assert error.code == "sink-log-not-retained" and contents(shop.sink_store) == before

    def test_a_rollback_reads_the_log_that_it_writes(self, tmp_path: Path) -> None:
        """What the log has dropped by age is left out of an entry that is there already."""
        shop, taken = self.old_entries(tmp_path)
        newest = "_spark_metadata/19.compact"
        head, *lines = shop.sink_store.read(newest).decode().split("\n")
        gone = [one for one in lines if int(one.split("-a")[1][:4]) < 5]
        shop.sink_store.write(newest, "\n".join([head, *(one for one in lines if one not in gone)]).encode())
        for one in gone:
            shop.sink_store.delete(json.loads(one)["path"].rpartition("/")[2])
        report = shop.restore(taken.savepoint, file_sinks=(shop.sink_store.uri,), sink="rollback")
        assert report.rolled_back[0]["files_forgotten"] == len(gone) == 5
        assert shop.sink is not None
        assert {row["batch"] for row in shop.sink.read()} == {*range(5, 13)}

    def test_a_log_that_does_not_reach_the_batch(self, shop: SimulatedJob) -> None:
        other = FileSinkWriter(shop.open("other"))
        other.write(0, [{}])
        with refuses(InputError, "not-this-sink"):
            planned(shop, bare(shop), file_sinks=(other.store.uri,))

    @pytest.mark.parametrize("lost", [False, True])
    def test_the_log_of_another_query(self, shop: SimulatedJob, lost: bool) -> None:
        other = FileSinkWriter(shop.open("other"))
        for batch in range(7):
            other.write(batch, [{"of": "another"}])
        taken, before = bare(shop), contents(other.store)
        shop.run(1)
        if lost:
            lose(shop)
        error = refused(shop, taken, file_sinks=(other.store.uri,), sink="rollback")
        assert error.code == "not-this-sink" and contents(other.store) == before

    def test_batches_that_ran_again_since(self, shop: SimulatedJob) -> None:
        """Their entries have the numbers of the savepoint's batches, and other rows."""
        taken = bare(shop)
        path = Path(shop.sink_store.uri.removeprefix("file://")) / "_spark_metadata" / "4"
        os.utime(path)
        lose(shop)
        assert refused(shop, taken, file_sinks=(shop.sink_store.uri,)).code == "not-this-sink"

    def test_one_that_the_savepoint_names_already(self, shop: SimulatedJob) -> None:
        taken = shop.take()
        shop.run(1)
        report = shop.restore(taken.savepoint, file_sinks=(shop.sink_store.uri,), sink="rollback")
        assert len(report.plan.sinks) == len(report.rolled_back) == 1


class TestOnAService:
    """As on S3: no path of this machine."""

    @pytest.fixture
    def remote(self, monkeypatch: pytest.MonkeyPatch) -> SimulatedJob:
        monkeypatch.setattr(afterwards, "SERVICE_SLACK_NS", 0)  # all of it takes less than two seconds
        return SimulatedJob(f"memory://{uuid.uuid4()}").run(6)

    @pytest.mark.parametrize("again", [False, True])
    def test_batches_that_ran_again_since(self, remote: SimulatedJob, again: bool) -> None:
        taken = bare(remote)
        if again:
            for batch in (3, 4, 5):
                remote.sink_store.delete(f"_spark_metadata/{batch}")
            for batch in (3, 4, 5):
                FileSinkWriter(remote.sink_store, timeline="b").write(batch, [{}])
        sinks = (remote.sink_store.uri,)
        if again:
            assert refused(remote, taken, file_sinks=sinks, sink="rollback").code == "not-this-sink"
        else:
            assert remote.restore(taken.savepoint, file_sinks=sinks).plan.sinks[0]["safe"] is True

    @pytest.mark.parametrize(("same_line", "found"), [(True, 1), (None, 0), (False, 0)])
    def test_where_no_time_tells_the_records_do(
        self, remote: SimulatedJob, same_line: bool | None, found: int
    ) -> None:
        manifest = remote.repository.load(JOB, bare(remote).savepoint)
        elsewhere = replace(manifest, checkpoint="s3://of-another-clock/ck", files=())
        uri = remote.sink_store.uri
        assert len([one for one in [as_told(elsewhere, f"FileSink[{uri}]", same_line)] if one]) == found
        if same_line is False:
            with refuses(RefusedError, "not-this-sink"):
                named_afterwards(elsewhere, [uri], same_line)
        else:
            assert len(named_afterwards(elsewhere, [uri], same_line)) == 1
