"""More nights, as in `played`: stores and code that fail, and two drivers of one job."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from demo.places import ROOT
from streambank.control.processes import ProcessId
from tests.nights import elsewhere
from tests.nights.scene import Scene
from tests.nights.site import wait

ASIDE = r".*(aside|roll)"
"""The answer that takes back what was written after a savepoint."""
UPGRADE_S = 900.0
"""How long an upgrade may take on a busy machine, with its rehearsal and the way back."""
AWS = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION")


def repository_damaged(scene: Scene) -> None:
    """Bit rot in the newest savepoint, seen when it is needed; its replica has every byte."""
    replica = scene.folder / "replica"
    scene.declare(tables=f'[jobs.{scene.name}.replicate]\nto = ["{replica}"]')
    newest = _lose_checkpoint_and_newest_savepoint(scene)

    before, generation = scene.found(), scene.control.generation()
    refused = scene.trigger("restore", {"savepoint": newest})
    scene.must_end("restore", refused, "failed")
    scene.must_say("restore", refused, "savepoint-damaged")
    assert [*scene.look_at("restore", refused).failed] == ["plan"], "it was asked for approval"
    assert (scene.found(), scene.control.generation()) == (before, generation), "something was touched"
    restore = scene.trigger("restore", {"repository": "nearest"})
    scene.answer("restore", restore, ASIDE)
    scene.must_end("restore", restore, "success")
    assert scene.restored()["savepoint"] == newest, scene.restored()
    scene.recovered_once()


def repository_damaged_alone(scene: Scene) -> None:
    """The same without a replica: the savepoint before it."""
    scene.declare()
    newest = _lose_checkpoint_and_newest_savepoint(scene)

    restore = scene.trigger("restore")
    scene.answer("restore", restore, ASIDE)
    scene.must_end("restore", restore, "success")
    report = scene.restored()
    assert report["savepoint"] != newest
    assert [one["savepoint"] for one in report["skipped"]] == [newest], report["skipped"]
    scene.recovered_once()


def _lose_checkpoint_and_newest_savepoint(scene: Scene) -> str:
    """Take two savepoints; then damage what only the newest needs, and delete the checkpoint; its id."""
    run = scene.run()
    scene.savepoint()
    known = {*scene.repository.rglob("*")}
    scene.feed_through(3)
    scene.savepoint()
    scene.feed_through(2)
    new = [path for path in scene.repository.rglob("*") if path.is_file() and path not in known]
    (newest,) = (path.stem for path in new if _in(path, "savepoints") and path.suffix == ".json")
    damaged = [path for path in new if _in(path, "packs") or _in(path, "objects")]
    assert damaged, new
    scene.harm()

    for path in damaged:
        _flip_a_byte(path)
    shutil.rmtree(scene.checkpoint)
    scene.feed()

    scene.must_end("run", run, "failed")
    scene.must_say("run", run, "checkpoint-lost")
    scene.must_be_alerted("checkpoint-lost", "team", "pager")
    return newest


def _in(path: Path, folder: str) -> bool:
    return folder in path.parts


def _flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0xFF
    path.chmod(0o644)
    path.write_bytes(data)


def records_lost(scene: Scene) -> None:
    """The control records are gone: that never reads as a job that never was. A restore begins new ones."""
    scene.declare()
    run = scene.run()
    scene.savepoint()
    scene.feed_through(2)
    before, driver = scene.found(), scene.watched.driver()
    scene.harm()

    shutil.rmtree(scene.records)
    wait(lambda: not _living(driver), "the driver ends, whose records are gone", 120)
    scene.feed()

    scene.must_end("run", run, "failed")
    scene.must_say("run", run, "repository-lost")
    scene.must_be_alerted("repository-lost", "team", "pager")
    for verb in ("savepoint", "sla"):
        seen = scene.scheduled(verb)
        scene.must_say(verb, seen.run_id, "repository-lost")
    again = scene.trigger("run")
    scene.must_end("run", again, "failed")
    scene.must_say("run", again, "repository-lost")
    scene.must_be_tried_once("run", again, "start")
    assert scene.found() == before, "something began again"
    restore = scene.trigger("restore")
    scene.answer("restore", restore, ASIDE)
    scene.must_end("restore", restore, "success")
    scene.recovered_once()
    scene.savepoint()


def database_put_back(scene: Scene) -> None:
    """Airflow's database comes back from a backup: the run that watched last is in it no more.

    The run that watches by the backup finds the records of a newer one, which gives no signs any more.
    """
    scene.declare()
    old, airflow, backup = scene.run(), scene.site.airflow, scene.folder / "airflow.db"
    airflow.back_up(backup)
    scene.stop()
    new = scene.run()
    newest = scene.control.watches.view()
    assert newest is not None and newest.by["run_id"] == new
    scene.harm()

    airflow.put_back(backup)

    assert airflow.run_state(scene.dag("run"), old) == "running", "the backup has it as the watcher"
    scene.must_be_alerted("not-watched", "team", "pager", timeout_s=300)
    scene.until_watched(newest.number + 1)
    scene.kill_driver()
    scene.recovered_once()
    scene.must_be_alerted("restart", "team")


def wrong_code(scene: Scene) -> None:
    """Code that cannot go on with the state: found in the rehearsal, and the driver never notices."""
    scene.declare(verbs=("upgrade",))
    scene.run()
    scene.feed_through(3)
    driver = scene.watched.driver()
    scene.harm()

    _deploy(scene, '.dropDuplicates(["id"])', '.dropDuplicates(["id", "amount"])')
    upgrade = scene.trigger("upgrade", {"watch": "20s"})
    scene.feed()
    scene.must_end("upgrade", upgrade, "failed", UPGRADE_S)
    assert scene.look_at("upgrade", upgrade).codes, scene.why("upgrade", upgrade)
    scene.must_be_alerted("upgrade-failed", "team", "pager")
    assert [*scene.watched.driver()] == [*driver], "the job was stopped"
    scene.never_down()

    scene.kill_driver()  # with the wrong code still deployed: no restart brings it in
    scene.recovered_once()


def wrong_code_undone(scene: Scene) -> None:
    """Code that fails on new data alone, which no rehearsal has: the upgrade undoes itself."""
    scene.declare(verbs=("upgrade",))
    run = scene.run()
    scene.feed_through(3)
    driver = scene.watched.driver()
    scene.harm()

    fails = f"if(id >= {len(scene.fed)}, raise_error('an order that the new code does not know'), amount)"
    _deploy(
        scene, "    .dropDuplicates(", f'    .withColumn("amount", expr("{fails}"))\n    .dropDuplicates('
    )
    upgrade = scene.trigger("upgrade", {"watch": "1m"})
    wait(lambda: _other_than(driver, scene), "the new code has started", UPGRADE_S)
    scene.feed()
    scene.must_end("upgrade", upgrade, "failed", UPGRADE_S)
    scene.must_say("upgrade", upgrade, "new-code-failed")
    scene.must_be_alerted("upgrade-failed", "team", "pager")
    scene.recovered()
    scene.until_kept(run)
    scene.each_row_once()


def _deploy(scene: Scene, old: str, new: str) -> None:
    text = scene.application.read_text(encoding="utf-8")
    assert text.count(old) == 1, old
    scene.application.write_text(text.replace(old, new), encoding="utf-8")


def _other_than(driver: Sequence[ProcessId], scene: Scene) -> bool:
    now = scene.watched.driver()
    return bool(now) and not {one.pid for one in now} & {one.pid for one in driver}


def _living(driver: Sequence[ProcessId]) -> list[ProcessId]:
    return [one for one in driver if one.is_living()]


def two_drivers(scene: Scene) -> None:
    """A driver whose host was suspended wakes up beside its replacement, and ends itself."""
    scene.declare()
    run = scene.run()
    first, epoch = scene.watched.driver(), scene.epoch()
    scene.harm()

    for one in first:
        os.kill(one.pid, signal.SIGSTOP)
    try:
        with _another_host(scene):
            wait(lambda: scene.epoch() > epoch, "the other host has taken over", 240)
            scene.feed_through(2)
            assert len(_living(first)) == 2, "the suspended driver is gone, so that nothing can fight"
            scene.feed()
            for one in first:
                os.kill(one.pid, signal.SIGCONT)
            wait(lambda: not _living(first), "the driver that has lost its lease ends itself", 60)
            assert scene.epoch() == epoch + 1, "the newer driver has lost its lease"
            scene.feed_through()
            scene.each_row_once()
            scene.must_end("stop", scene.trigger("stop", {"savepoint": False}), "success")
            scene.must_end("run", run, "success")
    finally:
        for one in _living(first):
            os.kill(one.pid, signal.SIGKILL)
    scene.trigger("run")
    scene.recovered()
    assert scene.drivers() == 2, "there is not one driver: its Python and its JVM"
    scene.each_row_once()


@contextmanager
def _another_host(scene: Scene) -> Iterator[None]:
    with (scene.folder / "elsewhere.log").open("wb") as log:
        host = subprocess.Popen(
            [*elsewhere.COMMAND, str(scene.jobs_file), scene.name],
            cwd=ROOT,
            env=scene.site.airflow.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
    finally:
        host.kill()  # and with it, by --kill-child, its namespace: every process there
        host.wait()


def primary_down(scene: Scene) -> None:
    """The storage of the primary is gone with all that is on it, and the job goes on at its standby."""
    site, name = scene.site, scene.name
    primary, standby = site.serve("site-a"), site.serve("site-b")
    assert primary.endpoint != standby.endpoint
    scene.declare(
        f'control = "s3://site-a/{name}/control"',
        verbs=("failover",),
        repository=f"s3://site-a/{name}/savepoints",
        checkpoint="a/checkpoint",
        env=AWS,
        tables=f"""
[jobs.{name}.replicate]
to = ["s3://site-b/{name}/savepoints"]

[jobs.{name}.standby]
checkpoint = "b/checkpoint"
repository = "s3://site-b/{name}/savepoints"
control = "s3://site-b/{name}/control"
""",
    )
    run = scene.run()
    scene.savepoint()
    scene.feed_through(2)
    driver = scene.watched.driver()
    scene.harm()

    os.kill(primary.pid, signal.SIGKILL)
    shutil.rmtree(scene.folder / "a")
    wait(lambda: not _living(driver), "the driver ends, whose records do not answer", 240)
    scene.feed()

    sla = scene.scheduled("sla")
    scene.must_be("failed", sla)
    scene.must_be_alerted("history", "team", "pager")
    refused = scene.trigger("failover", {"sink": "rollback"})
    scene.must_end("failover", refused, "failed", UPGRADE_S)
    scene.must_say("failover", refused, "site-not-fenced")
    failover = scene.trigger("failover", {"is_down": "primary", "sink": "rollback"})
    scene.answer("failover", failover)
    scene.must_end("failover", failover, "success", UPGRADE_S)
    scene.at = "standby"
    scene.recovered()
    assert scene.drivers() == 2, "there is not one driver: its Python and its JVM"
    wait(lambda: scene.end_state("run", run) is not None, "the run that watched the primary ends", UPGRADE_S)
    scene.each_row_once()
