"""What an upgrade would change, and what it is refused for, before anything is touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streambank.code.chosen import CHOSEN
from streambank.core.errors import ConflictError, InputError, RefusedError
from streambank.storage import open_store
from streambank.upgrade.plan import UpgradeRequest, cleaned_sources, settings_without_effect
from streambank.upgrade.record import newest_upgrade, upgrading
from streambank.upgrade.upgrade import undo_upgrade, upgrade
from tests.support.checkpoint.recorded import checkpoint
from tests.support.cli import streambank
from tests.support.jobs.declared import declare
from tests.support.jobs.managed_job import BY, Managed
from tests.support.jobs.upgraded_job import deploy, kinds, request_of, upgraded
from tests.support.waiting import poll


def test_a_plan_says_what_changes_and_touches_nothing(managed: Managed) -> None:
    before = kinds(managed)
    planned = upgrade(request_of(managed, plan_only=True))
    assert (planned.state, planned.changes, planned.no_way_back) == ("nothing-to-do", (), "")
    deploy(managed)
    planned = upgrade(request_of(managed, args=("x",), conf={"spark.a": "1"}, plan_only=True))
    assert planned.state == "planned"
    assert [one.split(" ")[0:2] for one in planned.changes] == [
        ["the", "program"],
        ["there", "are"],
        ["the", "setting"],
    ]
    (note,) = planned.notes
    assert "only for this user on this host" in note and "(code-not-proven)" in note
    assert upgrade(request_of(managed, plan_only=True)).notes == (), "what is declared needs no proof"
    assert newest_upgrade(managed.control) is None
    assert managed.control.signed(CHOSEN).numbers() == []
    assert kinds(managed) == before


def test_a_setting_that_the_checkpoint_keeps_is_said_to_change_nothing(tmp_path: Path) -> None:
    more = '[jobs.flights.spark]\n"spark.sql.shuffle.partitions" = "8"\n"spark.executor.memory" = "8g"\n'
    job = declare(tmp_path, more=more)
    control = job.records()
    assert settings_without_effect(job, control, {}) == (), "it has never run"
    checkpoint("4.3.0/rocksdb-window").into(open_store(job.checkpoint))
    control.generations().ensure_first(job.checkpoint, by=BY)
    (note,) = settings_without_effect(job, control, {})
    assert "declared as 8, and the checkpoint keeps 2" in note
    assert "`streambank job rescale flights --partitions 8`" in note
    assert settings_without_effect(job, control, job.spark) == (), "the running driver has it, too"


def test_a_plan_says_that_cleaned_files_may_close_the_way_back(tmp_path: Path) -> None:
    code = UpgradeRequest(declare(tmp_path)).new_code()
    assert cleaned_sources(code) == ()
    application = Path(code.application)
    application.write_text('spark.readStream.option("cleanSource", "delete")\n')
    (note,) = cleaned_sources(code)
    assert note.startswith(f"{application} sets cleanSource to delete in line 1: ")
    assert "is not undone by itself (source-would-lose-files)" in note


def test_a_plan_says_that_the_new_code_cannot_be_rehearsed(managed: Managed) -> None:
    deploy(managed)
    poll(lambda: managed.control.query_facts() is not None)
    assert upgrade(request_of(managed, plan_only=True)).notes == ()
    facts = managed.control.query_facts() or {}
    managed.control.record_query(None, {**facts, "output": {"kind": "foreachBatch"}})
    (note,) = upgrade(request_of(managed, plan_only=True)).notes
    assert "needs --unrehearsed: Query main is a copy" in note and "foreachBatch" in note


def test_what_runs_already_is_not_upgraded(managed: Managed) -> None:
    assert upgraded(managed).state == "nothing-to-do"
    managed.stop()
    with pytest.raises(RefusedError) as refused:
        upgraded(managed)
    assert refused.value.code == "nothing-to-upgrade"
    answer = streambank("upgrade", "flights", "--jobs", managed.jobs_file, "--undo")
    assert (answer.code, "no upgrade that could be undone" in answer.err) == (3, True)


def test_without_a_way_back_it_is_refused_unless_that_is_accepted(managed: Managed) -> None:
    (launch,) = (managed.folder / "repository.control/flights/launches").glob("*.json")
    by_an_older_version = {**json.loads(launch.read_text()), "code": None}
    launch.write_text(json.dumps(by_an_older_version))
    deploy(managed)
    planned = upgrade(request_of(managed, plan_only=True))
    assert "an older version" in planned.no_way_back
    with pytest.raises(RefusedError) as refused:
        upgraded(managed)
    assert refused.value.code == "no-way-back"
    assert managed.control.signed(CHOSEN).numbers() == []
    done = upgraded(managed, no_way_back=True)
    assert (done.state, done.before) == ("upgraded", None)
    report = undo_upgrade(request_of(managed))
    assert report.state == "not-undone"
    assert "the way back is not open" in report.error
    assert managed.driver_lives()


def test_one_upgrade_at_a_time(managed: Managed) -> None:
    deploy(managed)
    with upgrading(managed.control, BY), pytest.raises(ConflictError) as refused:
        upgraded(managed)
    assert refused.value.code == "upgrade-in-progress"


@pytest.mark.parametrize("setting", ["spark.hadoop.fs.s3a.secret.key", "spark.master"])
def test_settings_that_an_upgrade_cannot_take(tmp_path: Path, setting: str) -> None:
    with pytest.raises(InputError) as refused:
        UpgradeRequest(declare(tmp_path), conf={setting: "x"}).new_code()
    assert refused.value.code == "bad-option"
    assert "'x'" not in refused.value.message


def test_what_is_chosen_is_found_from_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[UpgradeRequest] = []

    def seen(request: UpgradeRequest, **_named: object) -> None:
        asked.append(request)
        raise InputError("Seen.")

    monkeypatch.setattr("streambank.upgrade.upgrade.upgrade", seen)
    monkeypatch.chdir(tmp_path)
    declare(tmp_path)
    for python in ("env/bin/python", "python3"):
        given = ("--python", python, "--spark-home", "spark", "--application", "v2/app.py")
        streambank("upgrade", "flights", "--jobs", tmp_path / "streaming_jobs.toml", *given)
    first, second = asked
    assert (first.python, second.python) == (str(tmp_path / "env/bin/python"), "python3")
    assert first.spark_home == str(tmp_path / "spark")
    assert first.application == str(tmp_path / "v2/app.py")


@pytest.mark.parametrize(
    "options",
    [("--conf", "spark.a"), ("--sink", "accept"), ("--compare", "all"), ("--undo", "--sink", "perhaps")],
)
def test_options_that_make_no_sense(tmp_path: Path, options: tuple[str, ...]) -> None:
    declare(tmp_path)
    answer = streambank("upgrade", "flights", "--jobs", tmp_path / "streaming_jobs.toml", *options)
    assert answer.code == 2, answer
