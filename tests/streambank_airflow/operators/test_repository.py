"""Replicate, expire, sweep and sampled verification as tasks, on repositories without a job that runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, AirflowSkipException
from airflow.sdk import DAG, BaseOperator

from streambank.core.errors import NotFoundError, StorageError
from streambank.repository.repository import Repository
from streambank.savepoint.verify import verify
from streambank.storage import open_store
from streambank_airflow.operators.repository import (
    ExpireReplicasOperator,
    ExpireSavepointsOperator,
    RepairSavepointsOperator,
    ReplicateSavepointsOperator,
    SweepRepositoryOperator,
)
from streambank_airflow.operators.savepoint import (
    PinSavepointOperator,
    UndeleteSavepointOperator,
    VerifySavepointOperator,
)
from tests.support.airflow_face.metadata_db import run_dag, task_states, xcom
from tests.support.repository.repositories import FILES, flip, save
from tests.support.sinks.ice_job import IceJob
from tests.support.storage.contents import keys

pytestmark = pytest.mark.usefixtures("airflow_database")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """The repository that the default connection names: four savepoints of one job, one of another."""
    place = tmp_path / "repository"
    extra = {"repository": str(place)}
    monkeypatch.setenv(
        "AIRFLOW_CONN_STREAMBANK_DEFAULT", json.dumps({"conn_type": "streambank", "extra": extra})
    )
    opened = Repository.open(open_store(place), create=True)
    for batch in range(1, 5):
        save(opened, {**FILES, "offsets/3": b"%d" % batch * 100}, batch=batch)
    save(opened, job="other")
    return opened


def task_of(kind: type[BaseOperator], **arguments: Any) -> DAG:
    with DAG("one_task", schedule=None, render_template_as_native_obj=True) as dag:
        kind(**{"task_id": "task", "job": "flights", **arguments})
    return dag


def result_of(kind: type[BaseOperator], **arguments: Any) -> Any:
    run = run_dag(task_of(kind, **arguments))
    assert task_states(run) == {"task": "success"}
    result = xcom(run, "task")
    assert not [value for value in result.values() if isinstance(value, dict | list)]
    return result


def failure_of(kind: type[BaseOperator], capfd: pytest.CaptureFixture[str], **arguments: Any) -> str:
    assert task_states(run_dag(task_of(kind, **arguments))) == {"task": "failed"}
    return capfd.readouterr().out


def damage_packs(repository: Repository) -> None:
    for key in keys(repository.store, "packs"):
        flip(repository.store, key)


def listed(repository: Repository, job: str) -> list[str]:
    return [each.savepoint for each in repository.manifests(job)]


def test_every_replica_gets_the_jobs_savepoints_and_a_second_run_moves_nothing(
    repository: Repository, tmp_path: Path
) -> None:
    places = [str(tmp_path / "one"), str(tmp_path / "two")]

    first = result_of(ReplicateSavepointsOperator, to=places)
    second = result_of(ReplicateSavepointsOperator, to=places)

    assert (first["ok"], first["replicas"], first["savepoints"], first["copied"]) == (True, 2, 8, 8)
    assert first["moved_bytes"] > 0
    assert (second["there"], second["copied"], second["moved_bytes"]) == (8, 0, 0)
    assert str(tmp_path) not in str(second)
    for place in places:
        replica = Repository.open(open_store(place))
        assert listed(replica, "flights") == listed(repository, "flights")
        assert listed(replica, "other") == []
        assert all(verify(replica, "flights", each, "full").ok for each in listed(replica, "flights"))


def test_a_replica_that_is_none_fails_the_task_and_the_other_is_served(
    repository: Repository, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/somebody's").write_text("file", encoding="utf-8")

    said = failure_of(ReplicateSavepointsOperator, capfd, to=[str(tmp_path / "taken"), str(tmp_path / "two")])

    assert "[not-empty]" in said
    replica = Repository.open(open_store(tmp_path / "two"))
    assert listed(replica, "flights") == listed(repository, "flights")


def test_what_a_retry_may_heal_is_left_to_it(repository: Repository) -> None:
    task = ReplicateSavepointsOperator(task_id="task", job="flights")
    lasting = NotFoundError("It is gone.", code="gone")
    passing = StorageError("The network is down.", code="unreachable")

    task.raise_for([])
    with pytest.raises(AirflowFailException, match="It is gone"):
        task.raise_for([("a", lasting)])
    with pytest.raises(AirflowException, match="network") as caught:
        task.raise_for([("a", lasting), ("b", passing)])
    assert not isinstance(caught.value, AirflowFailException)


def test_a_damaged_savepoint_is_not_replicated_and_the_task_says_so(
    repository: Repository, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    damage_packs(repository)

    said = failure_of(ReplicateSavepointsOperator, capfd, to=str(tmp_path / "one"))

    assert "Hint:" in said
    assert listed(Repository.open(open_store(tmp_path / "one")), "flights") == []


@pytest.mark.parametrize(
    ("kind", "code"),
    [(ReplicateSavepointsOperator, "no-replica-named"), (ExpireSavepointsOperator, "empty-policy")],
)
def test_without_a_declaration_the_task_has_to_say_it(
    repository: Repository, kind: type[BaseOperator], code: str, capfd: pytest.CaptureFixture[str]
) -> None:
    before = keys(repository.store)

    assert f"[{code}]" in failure_of(kind, capfd)

    assert keys(repository.store) == before


def test_rules_of_a_task_go_by_its_time_zone_or_the_declared_one(
    repository: Repository, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    jobs = tmp_path / "jobs.toml"
    jobs.write_text(
        'repository = "repository"\n[jobs.flights]\napplication = "a.py"\ncheckpoint = "c"\n'
        'time_zone = "Asia/Tokyo"\n'
    )
    how = {"jobs_file": str(jobs), "keep_daily": 2, "plan_only": True}
    result_of(ExpireSavepointsOperator, **how)
    assert " (Asia/Tokyo)" in capfd.readouterr().out
    result_of(ExpireSavepointsOperator, **how, time_zone="Europe/Berlin")
    assert " (Europe/Berlin)" in capfd.readouterr().out
    assert "Did you mean Europe/Berlin?" in failure_of(
        ExpireSavepointsOperator, capfd, **how, time_zone="Europe/Berln"
    )
    assert "time_zone needs a retention rule" in failure_of(
        ExpireSavepointsOperator, capfd, time_zone="Europe/Berlin"
    )


def test_rules_of_a_task_expire_its_own_job_and_no_other(repository: Repository) -> None:
    ids = listed(repository, "flights")

    planned = result_of(ExpireSavepointsOperator, keep_last="{{ 1 + 1 }}", plan_only=True)
    assert (planned["kept"], planned["dropped"], planned["dry_run"]) == (2, 2, True)
    assert listed(repository, "flights") == ids

    done = result_of(ExpireSavepointsOperator, keep_last=2)
    assert (done["kept"], done["dropped"], done["ok"]) == (2, 2, True)
    assert listed(repository, "flights") == ids[2:]
    assert len(listed(repository, "other")) == 1


def declared(folder: Path, replicate: str) -> str:
    file = folder / "streaming_jobs.toml"
    file.write_text(
        f'repository = "repository"\n[jobs.flights]\napplication = "app.py"\ncheckpoint = "ck"\n{replicate}',
        encoding="utf-8",
    )
    return str(file)


def test_replicas_drop_what_neither_the_repository_lists_nor_their_rules_keep(
    repository: Repository, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ids, places = listed(repository, "flights"), ["one", "two"]
    tables = '[jobs.flights.replicate]\nto = ["one", "two"]\nretention.keep_last = 3\n'
    file = declared(tmp_path, tables)
    result_of(ReplicateSavepointsOperator, jobs_file=file)
    kept = result_of(ExpireReplicasOperator, jobs_file=file)
    assert (kept["replicas"], kept["kept"], kept["dropped"]) == (2, 8, 0)
    result_of(ExpireSavepointsOperator, keep_last=2)

    planned = result_of(ExpireReplicasOperator, jobs_file=file, plan_only=True)
    assert [listed(Repository.open(open_store(tmp_path / each)), "flights") for each in places] == [ids] * 2
    done = result_of(ExpireReplicasOperator, jobs_file=file)

    assert (planned["dry_run"], planned["dropped"], done["kept"], done["dropped"]) == (True, 2, 6, 2)
    for place in places:
        assert listed(Repository.open(open_store(tmp_path / place)), "flights") == ids[1:]
    assert "source: file://" in capfd.readouterr().out


@pytest.mark.storm
def test_a_replica_that_cannot_be_read_fails_the_task_and_the_other_has_its_turn(
    repository: Repository, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ids = listed(repository, "flights")
    result_of(ReplicateSavepointsOperator, to=[str(tmp_path / "two")])
    result_of(ExpireSavepointsOperator, keep_last=2)
    file = declared(tmp_path, '[jobs.flights.replicate]\nto = ["one", "two"]\nretention.keep_last = 3\n')
    assert "[no-repository]" in failure_of(ExpireReplicasOperator, capfd, jobs_file=file)
    assert listed(Repository.open(open_store(tmp_path / "two")), "flights") == ids[1:]
    undeclared = declared(tmp_path, '[jobs.flights.replicate]\nto = ["two"]\n')
    assert "[empty-policy]" in failure_of(ExpireReplicasOperator, capfd, jobs_file=undeclared)


def test_a_promise_without_a_rule_is_refused(
    repository: Repository, capfd: pytest.CaptureFixture[str]
) -> None:
    assert "min_verified needs a retention rule" in failure_of(
        ExpireSavepointsOperator, capfd, min_verified=3
    )
    assert len(listed(repository, "flights")) == 4


def test_a_sweep_deletes_nothing_before_its_grace(
    repository: Repository, capfd: pytest.CaptureFixture[str]
) -> None:
    result_of(ExpireSavepointsOperator, keep_last=1)
    content = keys(repository.store, "packs") + keys(repository.store, "objects")

    result = result_of(SweepRepositoryOperator)

    assert (result["ok"], result["grace_s"], result["deleted_files"], result["removed"]) == (
        True,
        86400,
        0,
        0,
    )
    assert keys(repository.store, "packs") + keys(repository.store, "objects") == content
    assert "[grace-too-short]" in failure_of(SweepRepositoryOperator, capfd, grace_s="59m")


def test_sampled_verifications_go_on_where_the_last_one_ended(repository: Repository) -> None:
    first = result_of(VerifySavepointOperator, level="sampled", share="60%")
    second = result_of(VerifySavepointOperator, level="sampled", share="60%")

    assert (first["ok"], first["level"], first["findings"], first["damaged"]) == (True, "sampled", 0, 0)
    assert (first["savepoints"], first["runs"], first["share"]) == (4, 2, 0.6)
    assert first["objects"] + second["objects"] >= first["all_objects"] > first["objects"]
    assert all(each.verified_ok for each in repository.manifests("flights"))
    assert [each.verified_ok for each in repository.manifests("other")] == [None]


def test_a_sample_that_finds_damage_fails_unless_told_otherwise(
    repository: Repository, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    damage_packs(repository)

    assert "4 of 4 savepoints are damaged" in failure_of(
        VerifySavepointOperator, capfd, level="sampled", share="100%"
    )
    result = result_of(VerifySavepointOperator, level="sampled", share="100%", fail_on_findings=False)

    assert (result["ok"], result["damaged"]) == (False, 4)
    assert result["findings"] >= 4


def test_an_unknown_level_verifies_nothing(repository: Repository, capfd: pytest.CaptureFixture[str]) -> None:
    assert "[bad-choice]" in failure_of(VerifySavepointOperator, capfd, level="{{ 'deepest' }}")
    assert [each.verified_ok for each in repository.manifests("flights")] == [None] * 4


@pytest.mark.parametrize(
    "kind", [ReplicateSavepointsOperator, ExpireSavepointsOperator, SweepRepositoryOperator]
)
def test_what_a_form_does_not_want_is_skipped(repository: Repository, kind: Any) -> None:
    with pytest.raises(AirflowSkipException):
        kind(task_id="task", job="flights", only_if="False").execute({})


def test_what_is_damaged_is_repaired_from_a_replica(
    repository: Repository, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    replica, empty = str(tmp_path / "replica"), str(tmp_path / "empty")
    result_of(ReplicateSavepointsOperator, to=replica)
    Repository.open(open_store(empty), create=True)
    assert result_of(RepairSavepointsOperator, sources=[replica])["repaired"] == 0
    damage_packs(repository)
    ids = listed(repository, "flights")
    assert not verify(repository, "flights", ids[0], "full").ok

    assert "No replica of the savepoints of flights is declared" in failure_of(
        RepairSavepointsOperator, capfd
    )
    assert "stay damaged" in failure_of(RepairSavepointsOperator, capfd, sources=[empty])
    planned = result_of(RepairSavepointsOperator, sources=replica, plan_only=True)
    assert planned["repaired"] and planned["dry_run"] and planned["ok"]
    assert not verify(repository, "flights", ids[0], "full").ok, "a plan changes nothing"

    done = result_of(RepairSavepointsOperator, sources=replica)

    assert (done["ok"], done["repaired"], done["verified"]) == (True, planned["repaired"], 4)
    assert all(verify(repository, "flights", each, "full").ok for each in ids)


def test_a_pinned_savepoint_stays_and_an_expired_one_comes_back(
    repository: Repository, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second, *_ = listed(repository, "flights")
    pinned = result_of(PinSavepointOperator, savepoint=first, note="for the audit")
    assert pinned == {"job": "flights", "savepoint": first, "pinned": True}
    result_of(ExpireSavepointsOperator, keep_last=1)
    assert first in listed(repository, "flights") and second not in listed(repository, "flights")

    assert result_of(UndeleteSavepointOperator, savepoint=second)["already_listed"] is False
    assert result_of(UndeleteSavepointOperator, savepoint=second)["already_listed"] is True
    assert second in listed(repository, "flights")

    assert result_of(PinSavepointOperator, savepoint=first, pinned="{{ 1 == 2 }}")["pinned"] is False
    result_of(ExpireSavepointsOperator, keep_last=1)
    assert first not in listed(repository, "flights")
    assert "[no-such-savepoint]" in failure_of(PinSavepointOperator, capfd, savepoint="nothing")


@pytest.mark.storm
def test_tags_in_iceberg_go_with_their_savepoints_and_come_back_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_STREAMBANK_DEFAULT", json.dumps({"conn_type": "streambank"}))
    job = IceJob(tmp_path)
    first, _ = job.take()
    job.run()
    job.take()
    given = {"jobs_file": str(job.jobs)}

    result_of(ExpireSavepointsOperator, keep_last=1, min_verified=0, plan_only=True, **given)
    assert job.tagged() == [2, 3]
    assert result_of(ExpireSavepointsOperator, keep_last=1, min_verified=0, **given)["dropped"] == 1
    assert job.tagged() == [3]
    result_of(UndeleteSavepointOperator, savepoint=first, **given)
    assert job.tagged() == [2, 3]
