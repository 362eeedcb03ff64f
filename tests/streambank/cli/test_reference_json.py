"""The examples of docs/reference/json.md are what the commands answer: key by key, type by type."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.recovery import together
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint, add_debris
from tests.support.checkpoint.recorded import unpack
from tests.support.checkpoint.with_garbage import write_with_garbage
from tests.support.cli import streambank, succeed
from tests.support.jobs.copied_job import CopiedJob
from tests.support.jobs.declared import declare, end_drivers, fake_launcher, write_jobs
from tests.support.jobs.left_behind import go_on, next_generation, save
from tests.support.json_examples import examples, mismatches
from tests.support.paths import ROOT
from tests.support.sla.growing_state import grow


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A real answer to stand beside each example."""
    monkeypatch.setattr("streambank.compaction.quiet_check.WATCH_S", 0.0)
    live = LiveCheckpoint(open_store(tmp_path / "checkpoint"), retain=4).run(5)
    given: dict[str, Any] = {}
    repository = ("-r", tmp_path / "repository")
    take = ("take", tmp_path / "checkpoint", *repository, "--job", "orders", "--json")
    first = succeed(*take).document["savepoint"]
    live.run(2)
    given["take"] = succeed(*take, "--note", "hello").document
    given["import"] = imported(tmp_path)
    given["fork"] = forked(tmp_path / "forked")
    given["job clean"] = cleaned(tmp_path / "cleaned")
    live.plan()
    add_debris(live.store, 6)
    records = ROOT / "tests/data/progress/4.3.0/driver-killed"
    given["inspect"] = streambank("inspect", tmp_path / "checkpoint", "--history", records, "--json").document
    newest = given["take"]["savepoint"]
    given["verify"] = succeed("verify", newest, *repository, "--level", "full", "--json").document
    given["pin"] = succeed("pin", newest, *repository, "--json").document
    given["list"] = succeed("list", *repository, "--json").document
    given["show"] = succeed("show", newest, *repository, "--json").document
    given["doctor"] = streambank("doctor", tmp_path / "checkpoint", "--json").document
    given["advise"] = succeed("advise", "--keys", 5_000_000, "--latency", "1s", "--json").document
    windows = ("--window", "10m", "--watermark", "1m", "--events-per-second", 50, "--keys", 1000)
    given["plan-memory"] = succeed("plan-memory", *windows, "--executors", 2, "--json").document
    given["programs"] = succeed("programs", "run_query", "--json").document
    recorded = unpack("4.3.0/rocksdb-window", tmp_path / "recorded") / "checkpoint"
    given["skew"] = succeed("skew", recorded, "--json").document
    into = ("--into", tmp_path / "checkpoint", "--json")
    given["restore --dry-run"] = streambank("restore", first, *repository, *into, "--dry-run").document
    given["Errors"] = streambank("restore", first, *repository, *into).document
    given["verify --all --sample"] = succeed(
        "verify", "--all", *repository, "--sample", "60%", "--json"
    ).document
    given |= replicas(tmp_path, first)
    given |= compacted(tmp_path)
    keep = ("--keep-last", 1, "--min-verified", 0, "--json")
    given["expire"] = succeed("expire", *repository, *keep).document
    given["list --expired"] = succeed("list", *repository, "--expired", "--json").document
    given["sweep"] = succeed("sweep", *repository, "--json").document
    given["undelete"] = succeed("undelete", first, *repository, "--json").document
    given["key"] = succeed("key", tmp_path / "keys", "--json").document
    monkeypatch.setenv("STREAMBANK_SIGNING_KEYS", str(tmp_path / "keys"))
    given["sign"] = succeed("sign", newest, *repository, "--json").document
    monkeypatch.delenv("STREAMBANK_SIGNING_KEYS")
    shutil.rmtree(tmp_path / "repository/signatures")
    manifest = tmp_path / f"repository/savepoints/orders/{newest}.json"
    manifest.write_bytes(manifest.read_bytes()[:-9])
    back = ("--job", "orders", "--into", tmp_path / "back", "--sink", "accept", "--json")
    given["restore"] = succeed("restore", "latest-good", *repository, *back).document
    given["verify --all"] = streambank("verify", "--all", *repository, "--json").document
    given["reindex"] = damage_and_reindex(tmp_path / "repository")
    file = write_jobs(tmp_path, name="flights", more="")
    monkeypatch.setenv("STREAMBANK_JOBS", str(file))
    for module in ("start", "stop", "status"):
        monkeypatch.setattr(f"streambank.job.{module}.launcher_for", lambda job: fake_launcher(tmp_path))
    given["job start"] = succeed("job", "start", "flights", "--json").document
    given["job restart"] = succeed("job", "restart", "flights", "--json").document
    given["job status"] = succeed("job", "status", "flights", "--json").document
    given["job list"] = succeed("job", "list", "--json").document
    given["job overview"] = succeed("job", "overview", "flights", "--part", "recoveries", "--json").document
    given["sla"] = assessed(load_jobs(file).job("flights"))
    broken = ("job", "break", "flights", "--why", "a test", "--even-live", "--json")
    given["job break"] = succeed(*broken).document
    end_drivers(load_jobs(file).job("flights").records())
    given["job stop"] = succeed("job", "stop", "flights", "--json").document
    given["job history"] = succeed("job", "history", "flights", "--json").document
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STREAMBANK_SIGNING_KEYS", str(tmp_path / "keys"))
        given["job sign-records"] = succeed("job", "sign-records", "flights", "--json").document
        given["job move-records"] = succeed(
            "job", "move-records", "flights", "--to", tmp_path / "moved", "--json"
        ).document
    given["job savepoint"] = savepoint_of_two(tmp_path)
    given["job restore"] = restored_in_two(tmp_path / "pair.toml")
    given["sinks"] = succeed("sinks", "pair", "--jobs", tmp_path / "pair.toml", "--json").document
    yield given


def imported(folder: Path) -> Any:
    """Of a copy whose newest batch is not whole."""
    shutil.copytree(folder / "checkpoint", folder / "copy")
    (folder / "copy/commits/5").unlink()
    (folder / "copy/state/0/0/7.delta").unlink()
    place = ("-r", folder / "imported", "--job", "orders")
    return succeed("import", folder / "copy", *place, "--json").document


def cleaned(folder: Path) -> Any:
    """Of a job with an earlier generation."""
    folder.mkdir()
    job = declare(folder, batches=3)
    next_generation(job, save(job))
    go_on(job)
    jobs = ("--jobs", folder / "streaming_jobs.toml", "--keep", 1, "--keep-for", "1ms")
    return succeed("job", "clean", "flights", *jobs, "--execute", "--json").document


def assessed(job: Job) -> Any:
    """A day in which the state of a job grew, as records say."""
    grow(job, hours=24, per_hour=5e6)
    return streambank("sla", job.name, "--json").document


def replicas(folder: Path, savepoint: str) -> dict[str, Any]:
    """Two replicas: of one a manifest is cut off that the other lacks, and a pack that both have."""
    one, two = folder / "one", folder / "two"
    source = ("-r", folder / "repository")
    succeed("replicate", savepoint, *source, "--to", two)
    succeed("replicate", *source, "--to", one)
    for folder_of, place in (("packs", one), ("savepoints", one)):
        spoilt = max(path for path in (place / folder_of).rglob("*") if path.is_file())
        spoilt.write_bytes(spoilt.read_bytes()[:-9])
    where = ("-r", one, "--replica", two, "--replica", folder / "three", "--cost", "--json")
    given = {"status": streambank("status", *where).document}
    given["replicate"] = streambank("replicate", "-r", one, "--to", folder / "four", "--json").document
    given["repair"] = streambank("repair", "-r", one, "--from", two, "--json").document
    return given


def compacted(folder: Path) -> dict[str, Any]:
    """A dry run that is refused, a compaction there and back with something lost, and one for good."""
    place = folder / "compacted"
    store = write_with_garbage(open_store(place)).store
    store.write("notes.txt", b"of somebody")
    stopped = (place, "--stopped", "--json")
    planned = streambank("compact", *stopped, "--dry-run").document
    done = succeed("compact", *stopped, "--quiet", "0s", "--quarantine", folder / "q").document
    (folder / "q/files/offsets/0").unlink()
    store.write("state/0/0/6.delta", b"of another attempt")
    given = {"compact": {**done, "refusals": planned["refusals"]}}
    given["compact --undo"] = streambank("compact", *stopped, "--undo", folder / "q").document
    last = ("--quiet", "0s", "--quarantine", folder / "q2")
    succeed("compact", *stopped, *last)
    given["compact --purge"] = succeed("compact", "--purge", folder / "q2", "--json").document
    return given


def damage_and_reindex(repository: Path) -> Any:
    """One index file and one pack are cut off."""
    for folder in ("index", "packs"):
        spoilt = min(path for path in (repository / folder).rglob("*") if path.is_file())
        spoilt.write_bytes(spoilt.read_bytes()[:-9])
    return streambank("reindex", "-r", repository, "--json").document


def savepoint_of_two(folder: Path) -> Any:
    file = folder / "pair.toml"
    file.write_text(
        'repository = "repository"\n\n[jobs.pair]\napplication = "app.py"\n'
        'checkpoint = "pair"\nqueries = ["left", "right"]\n'
        '[[jobs.pair.sinks]]\nkind = "idempotent-by-key"\nquery = "left"\n'
    )
    for query in ("left", "right"):
        LiveCheckpoint(open_store(folder / "pair" / query)).run(3)
    return succeed("job", "savepoint", "pair", "--jobs", file, "--json").document


def restored_in_two(file: Path) -> Any:
    """A restore of both queries that was cut off after the first."""

    def dies(request: RestoreRequest, **options: Any) -> Any:
        if request.job == "pair/right":
            raise KeyboardInterrupt
        return restore(request, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(together, "restore", dies)
        streambank("job", "restore", "pair", "--jobs", file, "--sink", "accept")
    return succeed("job", "restore", "pair", "--jobs", file, "--sink", "accept", "--json").document


def forked(folder: Path) -> Any:
    """A copy of a job's state."""
    folder.mkdir()
    return succeed("fork", "orders", "staging", "--jobs", CopiedJob(folder).jobs, "--json").document


ELSEWHERE = ("state ", "rescale", "job compact", "undelete-files", "drill", "upgrade", "failover")


def test_every_example_is_what_the_command_answers(answers: dict[str, Any]) -> None:
    # Elsewhere: `state` and `rescale` (tests/streambank_spark/commands/test_reference_json.py), `drill`
    # (tests/streambank/drills/test_drill.py), `upgrade` (tests/streambank/upgrade/test_upgrade.py),
    # `failover` (tests/streambank/cli/verbs/recovery/test_failover.py),
    # `undelete-files` (tests/streambank/retention/).
    shown = {heading: each for heading, each in examples().items() if not heading.startswith(ELSEWHERE)}
    assert shown.keys() == answers.keys()
    wrong = {
        heading: found
        for heading, example in shown.items()
        if (found := list(mismatches(example, answers[heading], heading)))
    }
    assert not wrong, json.dumps(wrong, indent=1)


def test_nothing_that_has_a_shape_is_hidden_behind_null_or_an_empty_list(answers: dict[str, Any]) -> None:
    """The comparison sees through neither, so what an example shows has to be met by something real."""
    assert answers["list --expired"]
    assert answers["inspect"]["findings"] and answers["inspect"]["sources"] and answers["inspect"]["closure"]
    assert answers["verify --all"]["findings"] and answers["verify --all"]["savepoints"]
    assert answers["reindex"]["damaged_index_files"] and answers["reindex"]["damaged_packs"]
    (replica,) = answers["replicate"]["replicas"]
    assert any(each["errors"] for each in replica["savepoints"])
    repair = answers["repair"]
    assert repair["repaired"] and repair["not_repaired"] and repair["verified"]
    places = answers["status"]["places"]
    assert places[0]["jobs"][0]["damaged"] and places[0]["jobs"][0]["savepoints"]
    assert places[2]["error"] and answers["verify --all --sample"]["savepoints"]
    assert answers["restore --dry-run"]["refusals"] and answers["restore"]["skipped"]
    assert answers["job status"]["queries"] and answers["job savepoint"]["queries"]
    assert answers["skew"]["stores"][0]["partitions"][0]["rows"] and answers["skew"]["stores"][0]["chance"]
    assert any(verdict["growth"] and verdict["growth"]["backtest"] for verdict in answers["sla"]["verdicts"])
    assert answers["job break"]["broken"] is True
    assert answers["import"]["passed_over"] and answers["job clean"]["directories"][0]["state"] == "removed"
    assert answers["sinks"]["queries"][0]["sinks"][0]["says"]
    assert any(one["facts"] and one["by"] for one in answers["job history"])
    assert answers["compact"]["refusals"] and answers["compact"]["moved"] and answers["compact"]["notes"]
    assert answers["compact --undo"]["left"] and answers["compact --undo"]["missing"]


def test_every_verb_with_json_has_an_example() -> None:
    headings = " ".join(examples())
    for verb in (
        "advise",
        "plan-memory",
        "inspect",
        "take",
        "list",
        "show",
        "verify",
        "reindex",
        "restore",
        "pin",
        "doctor",
        "programs",
        "fork",
        "skew",
        "sla",
        "compact",
        "sinks",
    ):
        assert verb in headings
    for verb in (
        "verify --all --sample",
        "replicate",
        "repair",
        "status",
        "compact --undo",
        "compact --purge",
    ):
        assert verb in headings
    of_jobs = "start list history overview status clean stop savepoint restore break move-records"
    for verb in (*of_jobs.split(), "sign-records"):
        assert f"job {verb}" in headings


def test_the_comparison_sees_a_difference() -> None:
    example = {"a": 1, "b": [{"c": "x"}], "queries": {"main": {"n": 1}}}
    assert list(mismatches(example, {"a": 2.5, "b": [], "queries": {"other": {"n": 2}}})) == []
    found = sorted(mismatches(example, {"a": "1", "b": [{"c": True}], "queries": {"other": {"m": 2}}}))
    assert found == [
        ".a is number in the example, and str in the answer",
        ".b[].c is str in the example, and bool in the answer",
        ".queries.*.m is only in the answer",
        ".queries.*.n is only in the example",
    ]
