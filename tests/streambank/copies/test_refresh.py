"""A copy of a job's state, made beside the job: what is chosen, what is written, what is refused."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from streambank.checkpoint.position import batches_of
from streambank.control.control import JobControl
from streambank.control.copies import copied, settle_refresh
from streambank.control.generations import Generations
from streambank.control.marker import Marker, read_marker, records_root, write_marker
from streambank.control.records import RecordStream
from streambank.copies.refresh import RefreshRequest, plan_refresh
from streambank.core.errors import (
    ConflictError,
    InputError,
    IntegrityError,
    NotFoundError,
    RefusedError,
    StreambankError,
)
from streambank.core.signing import VARIABLE, new_key
from streambank.driver.preflight import DeclaredQuery, records_lost
from streambank.driver.prepare import prepare_launch
from streambank.job.history import job_history
from streambank.job.sign_records import sign_records
from streambank.job.start import start_job
from streambank.kafka.recording import KafkaReader, SourceRecorder
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.sla.assess import assess_job
from streambank.storage import open_store
from streambank.storage.locations import local_path
from streambank.storage.store import Store
from tests.support.cli import streambank, succeed
from tests.support.jobs.copied_job import STAGING, CopiedJob, numbered
from tests.support.jobs.declared import fake_launcher
from tests.support.jobs.simulated_job import BY
from tests.support.kafka.fake_broker import SERVERS, FakeBroker, write_checkpoint
from tests.support.refuses import refuses
from tests.support.repository.damaged_job import flip, keys
from tests.support.storage.contents import contents
from tests.support.storage.faulty_store import killed_at


def copied_job(folder: Path, more: str = STAGING) -> CopiedJob:
    return CopiedJob(folder, more)


def refused(copied_job: CopiedJob, code: str, kind: type[StreambankError] = RefusedError) -> StreambankError:
    """What a refresh says, and what its plan says, which leaves nothing behind."""
    with pytest.raises(kind) as caught:
        copied_job.refresh()
    assert caught.value.code == code
    assert not copied(copied_job.on().records())
    return caught.value


def test_a_copy_has_a_new_id_its_own_output_and_the_state_of_the_savepoint(tmp_path: Path) -> None:
    made = copied_job(tmp_path)
    before = made.live_files()
    plan = plan_refresh(RefreshRequest(made.job, "staging", by=BY))
    assert not plan.refusals and not (tmp_path / "staging").exists(), "a plan writes nothing"
    report = made.refresh(why="nightly")
    assert made.live_files() == before
    (query,) = report.queries
    assert (query.savepoint, query.batch, query.generation) == (made.saved, 2, 2)
    assert query.location == (tmp_path / "staging/ck.g0002").as_uri()
    assert query.outputs == {(tmp_path / "out").as_uri(): (tmp_path / "staging/out.g0002").as_uri()}
    assert batches_of(query.location).committed == 2
    known = json.loads((tmp_path / "staging/ck.g0002/metadata").read_text())
    assert known["id"] == query.query_id != made.live.query_id
    log = sorted(path.name for path in (tmp_path / "staging/out.g0002/_spark_metadata").iterdir())
    assert log[-1] == "2", "Spark goes on from a log that reaches the savepoint's batch"
    generation = made.on().records().generation()
    assert generation is not None and generation.location == query.location


def test_the_launch_writes_where_the_copy_does_and_takes_the_lease_of_the_copy(tmp_path: Path) -> None:
    made = copied_job(tmp_path)
    made.refresh()
    copy = made.on()
    launch = prepare_launch(copy, copy.records(), by=BY, args=(str(tmp_path / "out"),))
    query = launch.queries["main"]
    assert launch.job == "orders-staging" and query.checkpoint.endswith("staging/ck.g0002")
    assert query.redirect is not None
    assert query.redirect.outputs == {(tmp_path / "out").as_uri(): (tmp_path / "staging/out.g0002").as_uri()}
    with copy.records().lease.held("run", by=BY):
        error = None
        try:
            made.refresh()
        except RefusedError as caught:
            error = caught
        assert error is not None and error.code == "copy-in-use"
        assert "`streambank job stop orders@staging`" in error.hint
        plan = plan_refresh(RefreshRequest(made.job, "staging", by=BY))
        assert [one.code for one in plan.refusals] == ["copy-in-use"]
    made.refresh()


def test_a_copy_that_was_never_made_is_not_started(tmp_path: Path) -> None:
    """It would begin from nothing, and look like a copy."""
    copy = copied_job(tmp_path).on()
    with refuses(RefusedError, "copy-not-made", hint="streambank fork orders staging"):
        prepare_launch(copy, copy.records(), by=BY)


def test_a_copy_whose_first_refresh_was_killed_was_never_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its directory is there: that is not what is left of lost records."""
    made = copied_job(tmp_path)

    with killed_at(monkeypatch, "streambank.copies.refresh.commit_refresh"):
        made.refresh()
    assert (tmp_path / "staging/ck.g0002/metadata").exists()
    copy = made.on()
    with refuses(RefusedError, "copy-not-made"):
        start_job(copy, by=BY, wait=False, launcher=fake_launcher(tmp_path))
    generations = RecordStream(copy.records().store, "generation/main")
    for number in generations.numbers():
        copy.records().store.delete(generations.key(number))
    with pytest.raises(RefusedError) as caught:
        start_job(copy, by=BY, wait=False, launcher=fake_launcher(tmp_path))
    assert caught.value.code == "copy-not-made", "with no records at all, too"


def test_a_refresh_whose_generation_is_not_recorded_yet_is_not_launched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start makes up for it first; without that the launch would begin from nothing."""
    made = copied_job(tmp_path)

    with killed_at(monkeypatch, Generations, "switch"):
        made.refresh()
    copy = made.on()
    records = copy.records()
    with refuses(RefusedError, "copy-not-made"):
        prepare_launch(copy, records, by=BY)
    with records.operation("start", by=BY) as operation:
        settle_refresh(records, operation=operation)
    assert prepare_launch(copy, records, by=BY).queries["main"].checkpoint.endswith("staging/ck.g0002")


def test_another_checkpoint_with_the_same_records_is_refused(tmp_path: Path) -> None:
    more = f'{STAGING}control = "records"\n'
    made = copied_job(tmp_path, more)
    made.refresh()
    made.declare(more.replace("staging/ck", "other/ck"))
    with refuses(RefusedError, "checkpoint-changed"):
        made.refresh()
    with pytest.raises(RefusedError):
        plan_refresh(RefreshRequest(made.job, "staging", by=BY))
    assert not (tmp_path / "other").exists()
    assert numbered(tmp_path / "staging") == {"ck.g0002", "out.g0002"}


def test_the_marker_of_another_job_is_refused_and_stays(tmp_path: Path) -> None:
    """That job could neither start nor be saved any more."""
    made = copied_job(tmp_path)
    base = made.on().queries["main"]
    (tmp_path / "staging/ck").mkdir(parents=True)
    (tmp_path / "staging/ck/metadata").write_text('{"id": "x"}')
    other = JobControl(open_store((tmp_path / "elsewhere/other").as_uri()), "other")
    other.generations().ensure_first(base, by=BY)
    write_marker(base, Marker("other", "main", 1, base, (tmp_path / "elsewhere").as_uri(), query_id="x"))
    error = refused(made, "checkpoint-of-another-job")
    assert "[jobs.orders.copies.staging]" in error.hint and "ck.streambank.json" in error.hint
    plan = plan_refresh(RefreshRequest(made.job, "staging", by=BY))
    assert [one.code for one in plan.refusals] == ["checkpoint-of-another-job"]
    assert records_lost(DeclaredQuery("other", "main", base, other)) is None
    assert made.on().records().generation() is None, "the copy has not begun there"


def test_a_copy_that_runs_by_other_records_is_refused(tmp_path: Path) -> None:
    """Another jobs file declares the same copy."""
    made = copied_job(tmp_path)
    made.refresh()
    first = made.on().records()
    made.declare(f'{STAGING}control = "elsewhere"\n')
    with first.lease.held("run", by=BY):
        refused(made, "checkpoint-of-another-job")
    made.refresh()


def test_a_copy_whose_records_are_lost_is_made_again(tmp_path: Path) -> None:
    made = copied_job(tmp_path)
    made.refresh()
    shutil.rmtree(records_root(made.on().records()).removeprefix("file://"))
    assert made.refresh().queries[0].generation == 3
    marker = read_marker(made.on().queries["main"])
    assert marker is not None and marker.generation == 3


def test_other_outputs_than_those_it_was_made_for_are_refused(tmp_path: Path) -> None:
    made = copied_job(tmp_path)
    made.refresh()
    made.declare(STAGING.replace("staging/out", "elsewhere/out"))
    copy = made.on()
    with refuses(RefusedError, "copy-not-made", hint="streambank fork orders staging"):
        prepare_launch(copy, copy.records(), by=BY)
    made.refresh()
    prepare_launch(made.on(), made.on().records(), by=BY)


def test_a_restore_on_the_copy_goes_on_in_the_outputs_of_its_refresh(tmp_path: Path) -> None:
    """A savepoint says nothing of where a table or a topic went, so the restore does not, either."""
    made = copied_job(tmp_path, STAGING.replace('"./out" = "staging/out"', 'sums = "staging/sums"'))
    made.control().record_query(None, {"output": {"kind": "kafka", "name": "sums"}})
    made.refresh()
    made.restore_on_copy()
    copy = made.on()
    redirect = prepare_launch(copy, copy.records(), by=BY).queries["main"].redirect
    assert redirect is not None and redirect.outputs["sums"] == (tmp_path / "staging/sums.g0002").as_uri()


def test_a_file_sink_without_a_saved_log_is_refused(tmp_path: Path) -> None:
    made = copied_job(tmp_path)
    out = (tmp_path / "out").as_uri()
    made.control().record_query(
        None, {"output": {"kind": "files"}, "sink_path": out, "query_id": made.live.query_id}
    )
    take(TakeRequest(made.checkpoint, made.repository, "orders"))
    error = refused(made, "sink-not-saved")
    assert "streambank job savepoint orders" in error.hint and out in error.message
    plan = plan_refresh(RefreshRequest(made.job, "staging", by=BY))
    assert [one.code for one in plan.refusals] == ["sink-not-saved"]
    made.refresh(savepoint=made.saved)


def test_input_that_the_copy_would_read_next_and_is_gone_is_refused(tmp_path: Path) -> None:
    made = CopiedJob(tmp_path, inputs=tmp_path / "in")
    (query,) = plan_refresh(RefreshRequest(made.job, "staging", by=BY)).queries
    assert query.source_effect == "The files that were read after the savepoint are there: 2 to read."
    assert query.to_dict()["sources"][0]["safe"] is True
    assert query.replayable_effect == "Nothing limits how long the input can be read again."
    gone = tmp_path / "in/4.json"
    gone.unlink()
    error = refused(made, "source-would-lose-files")
    assert gone.as_uri() in error.message and "--source accept" in error.hint
    plan = plan_refresh(RefreshRequest(made.job, "staging", by=BY))
    assert [one.code for one in plan.refusals] == ["source-would-lose-files"]
    assert gone.as_uri() in plan.queries[0].source_effect
    answer = streambank("fork", "orders", "staging", "--jobs", made.jobs, "--dry-run")
    assert answer.code == 8 and answer.out.count(gone.as_uri()) == 1, answer
    done = streambank("fork", "orders", "staging", "--jobs", made.jobs, "--source", "accept", "--json")
    assert done.code == 0 and done.document["queries"][0]["source_effect"].endswith("This is accepted.")
    assert any(gone.as_uri() in warning for warning in done.document["warnings"])


def test_a_copy_can_declare_that_it_goes_on_without_lost_input(tmp_path: Path) -> None:
    made = CopiedJob(tmp_path, f'{STAGING}source = "accept"\n', inputs=tmp_path / "in")
    (tmp_path / "in/4.json").unlink()
    assert any("4.json" in warning for warning in made.refresh().warnings)
    with pytest.raises(RefusedError):
        made.refresh(source="refuse")


def test_a_copy_of_the_state_alone_reads_nothing(tmp_path: Path) -> None:
    made = CopiedJob(
        tmp_path, STAGING.replace('outputs = { "./out" = "staging/out" }', ""), inputs=tmp_path / "in"
    )
    (tmp_path / "in/4.json").unlink()
    (query,) = made.refresh().queries
    assert (query.sources, query.source_effect, query.replayable_effect) == ((), "", "")


def test_records_that_kafka_lets_go_while_a_copy_is_filled_are_refused(tmp_path: Path) -> None:
    """A refresh may take hours, and the first look is at its beginning."""
    broker = FakeBroker()
    broker.put("flights", (0, 150), (0, 130))
    made = copied_job(tmp_path)
    checkpoint = open_store(str(write_checkpoint(tmp_path / "kafka", '{"flights":{"0":100,"1":120}}')))
    readers = SourceRecorder(broker.brokers(), [KafkaReader(SERVERS, {"subscribe": "flights"})])
    request = TakeRequest(checkpoint, made.repository, "orders", sources=readers, new_query=True)
    taken = take(request)

    def opened(where: object) -> Store:
        """The copy's checkpoint, which is opened after the first look at the topic."""
        assert broker.earliest["flights", 0] == 0
        broker.earliest["flights", 0] = 140
        return open_store(str(where))

    with refuses(RefusedError, "source-would-lose-records", match="40 records"):
        made.refresh(savepoint=taken.savepoint, kafka=broker.brokers(), opener=opened)
    assert not copied(made.on().records())


def test_files_that_the_live_query_cleans_while_a_copy_is_filled_are_refused(tmp_path: Path) -> None:
    made = CopiedJob(tmp_path, inputs=tmp_path / "in")
    gone = tmp_path / "in/4.json"

    def opened(where: object) -> Store:
        """The copy's checkpoint, which is opened after the first look at the files."""
        gone.unlink()
        return open_store(str(where))

    with pytest.raises(RefusedError) as caught:
        made.refresh(opener=opened)
    assert caught.value.code == "source-would-lose-files" and gone.as_uri() in caught.value.message
    assert not copied(made.on().records())


def test_a_restore_on_a_copy_takes_no_savepoint_of_the_live_job(tmp_path: Path) -> None:
    made = copied_job(tmp_path)
    made.refresh()
    before, saved = made.live_files(), contents(made.repository_store)
    copy, live = "orders@staging", tmp_path / "repository"
    asked = (
        ("job", "restore", copy),
        ("job", "restore", copy, "--from", live),
        ("restore", "latest-good", "-r", live, "--job", "orders-staging", "--generation"),
        ("restore", made.saved, "-r", live, "--job", "orders-staging", "--generation", "--from", live),
    )
    for command in asked:
        answer = streambank(*command, "--jobs", made.jobs)
        assert answer.code == NotFoundError.exit_code, answer
        assert "There is no " in answer.err and "the verb fork (orders staging)" in answer.err
    assert (made.live_files(), contents(made.repository_store)) == (before, saved)
    generation = made.on().records().generation()
    assert generation is not None and generation.number == 2, "the copy is what it was"


def test_a_savepoint_of_a_copy_from_before_its_first_start_names_its_output(tmp_path: Path) -> None:
    made = copied_job(tmp_path)
    (query,) = made.refresh().queries
    before, command = made.live_files(), ("job", "restore", "orders@staging", "--jobs", made.jobs)
    first = succeed("job", "savepoint", "orders@staging", "--jobs", made.jobs, "--json").document
    (output,) = query.outputs.values()
    repository = Repository.open(open_store(made.on().repository))
    (sink,) = repository.load("orders-staging", first["savepoint"]).sinks
    assert (sink["kind"], sink["path"]) == ("file", output)

    # Its first driver says where it writes, and saves the same batch.
    told = {
        "query_id": query.query_id,
        "sink": f"FileSink[file:{local_path(output)}]",
        "sink_path": output,
        "generation": query.generation,
    }
    made.on().records().record_query(None, told)
    again = succeed("job", "savepoint", "orders@staging", "--jobs", made.jobs, "--json").document
    assert (again["savepoint"], again["already_there"]) == (first["savepoint"], True)
    done = succeed(*command, "--json").document["queries"]["main"]
    assert done["location"] == (tmp_path / "staging/ck.g0003").as_uri()
    assert made.live_files() == before
    redirect = prepare_launch(made.on(), made.on().records(), by=BY).queries["main"].redirect
    assert redirect is not None and list(redirect.outputs.values()) == [output]


def test_old_copies_go_and_never_the_one_in_use(tmp_path: Path) -> None:
    made = copied_job(tmp_path)
    made.refresh()
    made.run(1).take()
    assert made.refresh().removed == (), "two copies stay where nothing is declared"
    made.run(1)
    third = made.refresh()
    assert {Path(one).name for one in third.removed} == {"ck.g0002", "out.g0002"}
    assert numbered(tmp_path / "staging") == {"ck.g0003", "ck.g0004", "out.g0003", "out.g0004"}
    made.declare(f"{STAGING}keep = 1\n")
    made.refresh()
    assert numbered(tmp_path / "staging") == {"ck.g0005", "out.g0005"}


def test_what_lies_beside_a_copy_and_no_refresh_has_made_stays(tmp_path: Path) -> None:
    made = copied_job(tmp_path, f"{STAGING}keep = 1\n")
    other = tmp_path / "staging/ck.g0002"
    other.mkdir(parents=True)
    (other / "notes").write_text("mine")
    assert made.refresh().queries[0].generation == 3, "a number that is taken is left out"
    made.refresh()
    assert (other / "notes").read_text() == "mine"


@pytest.mark.parametrize(
    ("old", "new"),
    [("checkpoint = ", "# "), ('"staging/ck"', '"ck/copy"'), ('"staging/ck"', '"ck.g0002"')],
)
def test_a_copy_within_the_live_checkpoint_is_not_declared(tmp_path: Path, old: str, new: str) -> None:
    made = copied_job(tmp_path)
    made.declare(STAGING.replace(old, new))
    with refuses(InputError, "bad-declaration", match="checkpoint"):
        made.on()


def test_a_copy_within_what_the_records_call_live_is_refused(tmp_path: Path) -> None:
    """The job was restored elsewhere: the declaration alone does not say where it lives now."""
    made = copied_job(tmp_path)
    generations = made.control().generations()
    generations.ensure_first((tmp_path / "ck").as_uri(), by=BY)
    made.control().record_query(None, {"sink_path": (tmp_path / "staging").as_uri()})
    refused(made, "copy-not-apart", InputError)
    assert not (tmp_path / "staging").exists(), "not even that it failed is written there"


def test_a_copy_within_what_the_live_query_has_read_is_refused(tmp_path: Path) -> None:
    """No driver of Streambank has said what the query reads: its source's log does."""
    made = CopiedJob(tmp_path, STAGING.replace('"staging/ck"', '"in/ck"'), tmp_path / "in")
    before = sorted((tmp_path / "in").iterdir())
    refused(made, "inside-input", InputError)
    assert sorted((tmp_path / "in").iterdir()) == before


def test_an_output_without_another_place_is_refused(tmp_path: Path) -> None:
    made = copied_job(tmp_path)
    made.declare(STAGING.replace('"./out" =', '"./elsewhere" ='))
    error = refused(made, "sink-not-redirected")
    assert "[jobs.orders.copies.staging.outputs]" in error.hint and (tmp_path / "out").as_uri() in error.hint


@pytest.mark.parametrize(
    ("output", "outputs", "code"),
    [
        ({"kind": "foreachBatch"}, '"./out" = "staging/out"', "sink-not-redirected"),
        ({"kind": "kafka", "name": "sums"}, '"./out" = "staging/out"', "sink-not-redirected"),
        ({"kind": "delta", "path": "file:///lake"}, '"./out" = "staging/out"', "sink-not-redirected"),
        ({"kind": "kafka", "name": "sums"}, '"./out" = "staging/out", sums = "staging/sums"', None),
        (
            {"kind": "delta", "path": "file:///lake"},
            '"./out" = "staging/out", "/lake" = "staging/lake"',
            None,
        ),
        ({"kind": "console"}, '"./out" = "staging/out"', None),
    ],
)
def test_each_kind_of_output_has_another_place_or_is_refused(
    tmp_path: Path, output: dict[str, str], outputs: str, code: str | None
) -> None:
    made = copied_job(tmp_path)
    made.declare(STAGING.replace('"./out" = "staging/out"', outputs))
    made.control().record_query(None, {"output": output, "query_id": made.live.query_id})
    plan = plan_refresh(RefreshRequest(made.job, "staging", by=BY))
    assert [one.code for one in plan.refusals] == ([] if code is None else [code])


def test_a_copy_of_the_state_alone_needs_no_outputs_and_runs_nothing(tmp_path: Path) -> None:
    made = copied_job(tmp_path, STAGING.replace('outputs = { "./out" = "staging/out" }', ""))
    made.control().record_query(None, {"output": {"kind": "foreachBatch"}})
    report = made.refresh()
    assert report.state_only and report.queries[0].outputs == {}
    copy = made.on()
    with refuses(RefusedError, "copy-of-state"):
        prepare_launch(copy, copy.records(), by=BY)


def test_damage_leaves_the_copy_as_it_was(tmp_path: Path) -> None:
    made = copied_job(tmp_path)
    first = made.refresh().queries[0]
    newer = made.run(1).take().savepoint
    for key in keys(made, "packs"):
        flip(made, key)
    with pytest.raises(IntegrityError):
        made.refresh(savepoint=newer)
    generation = made.on().records().generation()
    assert generation is not None and generation.location == first.location
    assert batches_of(first.location).committed == 2
    kinds = [one.kind for one in job_history(made.job)]
    assert kinds[-2:] == ["refreshed", "refresh-failed"]


def test_it_comes_from_a_replica_where_the_repository_is_gone(tmp_path: Path) -> None:
    made = copied_job(
        tmp_path, f'{STAGING}repository = "nearest"\n[jobs.orders.replicate]\nto = ["replica"]\n'
    )
    answer = streambank("replicate", "-r", tmp_path / "repository", "--to", tmp_path / "replica")
    assert answer.code == 0, answer
    (tmp_path / "repository").rename(tmp_path / "gone")
    report = made.refresh()
    assert report.queries[0].repository == open_store(tmp_path / "replica").uri
    assert any("passed over" in one for one in report.warnings)
    Repository.open(open_store(tmp_path / "replica"))


def test_two_refreshes_at_once_do_not_meet(tmp_path: Path) -> None:
    made = copied_job(tmp_path)
    with made.on().records().operation("restore", by=BY), pytest.raises(ConflictError) as caught:
        made.refresh()
    assert caught.value.code == "operation-in-progress"


def test_the_age_of_a_copy_is_an_objective(tmp_path: Path) -> None:
    made = copied_job(tmp_path, f'{STAGING}[jobs.orders.sla]\ncopy_age = {{breach = "1h"}}\n')

    def verdict(now: datetime | None = None) -> tuple[str, str]:
        found = assess_job(made.job, now=now) if now else assess_job(made.job)
        (one,) = [one for one in found.verdicts if one.objective == "copy_age"]
        return one.level, one.why

    assert verdict()[0] == "breach" and "never made" in verdict()[1]
    made.refresh()
    assert verdict()[0] == "ok"
    later = datetime.now(UTC).replace(year=datetime.now(UTC).year + 1)
    level, why = verdict(later)
    assert level == "breach" and "The savepoint of the copy staging" in why
    made.restore_on_copy()
    assert verdict()[0] == "unknown", "its state is that of another savepoint"
    made.refresh()
    assert verdict()[0] == "ok"
    (tmp_path / "staging/ck.g0004").rename(tmp_path / "gone")
    assert verdict()[0] == "unknown"


def test_a_copy_of_which_nothing_is_known_hides_no_breach_of_another(tmp_path: Path) -> None:
    second = '[jobs.orders.copies.second]\ncheckpoint = "second/ck"\n'
    made = copied_job(tmp_path, f'{STAGING}{second}[jobs.orders.sla]\ncopy_age = {{breach = "1h"}}\n')

    def verdict() -> tuple[str, str]:
        (one,) = [one for one in assess_job(made.job).verdicts if one.objective == "copy_age"]
        return one.level, one.why

    made.refresh()
    assert verdict() == ("breach", "The copy second was never made.")
    made.restore_on_copy()
    assert verdict() == ("breach", "The copy second was never made.")
    made.refresh("second")
    level, why = verdict()
    assert level == "unknown" and "staging" in why
    records = made.on("second").records()
    records.store.write(RecordStream(records.store, "refreshed").key(1), b"{")
    made.refresh()
    level, why = verdict()
    assert level == "unknown" and "second" in why, "and staging is well"
    stream = RecordStream(made.on().records().store, "refreshed")
    for number in stream.numbers():
        stream.store.delete(stream.key(number))
    assert verdict() == ("breach", "The copy staging was never made."), "unreadable records hide it no more"


def test_where_records_are_signed_no_forged_one_makes_another_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = copied_job(tmp_path)
    made.refresh()
    new_key(tmp_path / "keys")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "keys"))
    sign_records(made.on(), by=BY)
    records = made.on().records()

    def settled() -> None:
        with records.operation("start", by=BY) as operation:
            settle_refresh(records, operation=operation)

    settled()
    true = RecordStream(records.store, "refreshed").latest()
    assert true is not None
    query = true.data["queries"]["main"]
    forged = {**query, "generation": {**query["generation"], "generation": 9, "location": "file:///other"}}
    RecordStream(records.store, "refreshed").append({**true.data, "queries": {"main": forged}})
    with refuses(IntegrityError, "not-signed"):
        settled()


def test_the_command_line_plans_and_makes_a_copy(tmp_path: Path) -> None:
    made = copied_job(tmp_path)
    given = ("fork", "orders", "staging", "--jobs", made.jobs)
    plan = streambank(*given, "--dry-run")
    assert plan.code == 0 and "would be made" in plan.out
    done = streambank(*given, "--why", "a look")
    assert done.code == 0 and "streambank job start orders@staging" in done.out, done
    history = streambank("job", "history", "orders", "--jobs", made.jobs)
    assert "refreshed" in history.out and "copy staging" in history.out and "a look" in history.out
    unknown = streambank("fork", "orders", "other", "--jobs", made.jobs)
    assert unknown.code == NotFoundError.exit_code and "staging" in unknown.err
    assert local_path(made.on().checkpoint) == tmp_path / "staging/ck"
