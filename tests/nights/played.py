"""The nights: what happens in each, what a person does about it, and what must hold at its end.

Objectives, error codes and states are looked at, never sentences. What goes before the harm is no part of the
night's record.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial

from demo.pictures.chromium import chromium
from tests.nights import disasters
from tests.nights.disasters import ASIDE
from tests.nights.hands import AtThePage
from tests.nights.record import FOLDER, Night
from tests.nights.scene import Scene
from tests.nights.site import Site, wait
from tests.nights.watching import watched

SOON = 'sla.alive = {breach = "1m"}'
"""A minute instead of five: how long a job may be down or unwatched."""
LATE_S = 150


def play(site: Site, name: str, *, with_page: bool = False) -> Night:
    """Play a night to its end, whatever comes of it; what did.

    Args:
        with_page: Have Streambank's page open, and let the person trigger and answer there.
    """
    title, happens = NIGHTS[name]
    scene = Scene(site, Night(name, title, with_page=with_page))
    begun = time.monotonic()
    try:
        with ExitStack() as stack:
            site.airflow.wait_until_healthy()
            if with_page:
                stack.enter_context(at_the_page(scene))
            happens(scene)
    except Exception as error:
        scene.night.failure = f"{type(error).__name__}: {error}"
    finally:
        scene.close()
        scene.night.took_s = time.monotonic() - begun
    return scene.night


@contextmanager
def at_the_page(scene: Scene) -> Iterator[None]:
    """A person who is signed in, with the page open in three windows, and acts in a fourth one."""
    client = scene.site.airflow.client
    client.call("GET", "/api/v2/version")  # it signs in
    with chromium(scene.site.folder / f"browser-{scene.name}") as window:
        window.call("Network.setCookie", name="_token", value=client.token, url=client.url)
        FOLDER.mkdir(parents=True, exist_ok=True)
        pictures = FOLDER / f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{scene.night.name}"
        with watched(window, client.url, scene.name, pictures) as page:
            hands = AtThePage(window, client.url, scene.name)
            scene.hands, scene.page = hands, page
            try:
                yield
            except BaseException:
                pictures.with_name(f"{pictures.name}-failed.png").write_bytes(window.picture())
                raise
            finally:
                scene.night.said, scene.night.clicks = page.said, hands.clicks
            page.check_read()


def driver_killed(scene: Scene) -> None:
    scene.declare()
    run = scene.run()
    scene.harm()

    scene.kill_driver()

    scene.recovered_once()
    scene.until_kept(run)
    scene.must_be_alerted("restart", "team")


def checkpoint_deleted(scene: Scene) -> None:
    """Given up, never started from nothing; alerted; restored by one run."""
    scene.declare()
    run = scene.run()
    scene.savepoint()
    scene.feed_through(2)
    scene.harm()

    shutil.rmtree(scene.checkpoint)
    scene.feed()

    scene.must_end("run", run, "failed")
    scene.must_say("run", run, "checkpoint-lost")
    scene.must_be("failed", scene.scheduled("sla"))
    restore = scene.trigger("restore")
    scene.answer("restore", restore, ASIDE)
    scene.must_end("restore", restore, "success")
    scene.recovered_once()
    scene.must_be_alerted("checkpoint-lost", "team", "pager")


def checkpoint_deleted_at_rest(scene: Scene) -> None:
    """A start refuses it the same way, before there is a driver."""
    scene.declare()
    scene.run()
    scene.stop()
    scene.savepoint()
    scene.harm()

    shutil.rmtree(scene.checkpoint)
    scene.feed()

    run = scene.trigger("run")
    scene.must_end("run", run, "failed")
    scene.must_say("run", run, "checkpoint-lost")
    scene.must_be_tried_once("run", run, "start")
    scene.must_be_alerted("checkpoint-lost", "team", "pager")
    assert not scene.checkpoint.exists(), "something began again"
    restore = scene.trigger("restore")
    scene.answer("restore", restore)
    scene.must_end("restore", restore, "success")
    scene.recovered_once()


def state_file_truncated(scene: Scene) -> None:
    """Seen by `doctor` before anything starts, no start tries it again and again, and a restore heals it."""
    scene.declare()
    scene.run()
    scene.feed_through(2)
    scene.savepoint()
    scene.stop()
    scene.savepoint()
    states = (scene.checkpoint / "state" / "0" / "0").glob("[0-9]*.delta")
    newest = max(states, key=lambda path: int(path.stem))
    scene.harm()

    newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
    scene.feed()

    sla = scene.scheduled("sla")
    scene.must_say("sla", sla.run_id, "checkpoint-damaged")
    run = scene.trigger("run")
    scene.must_end("run", run, "failed")
    scene.must_say("run", run, "checkpoint-damaged")
    scene.must_be_tried_once("run", run, "start")
    scene.must_be_alerted("checkpoint-damaged", "team", "pager")
    restore = scene.trigger("restore")
    scene.answer("restore", restore)
    scene.must_end("restore", restore, "success")
    scene.recovered_once()


def poison_row(scene: Scene) -> None:
    """Given up after three drivers; red; alerted; a repair and one click bring it back."""
    scene.declare()
    run = scene.run()
    scene.harm()

    repair = scene.feed_poison()

    scene.must_end("run", run, "failed")
    scene.must_be("failed", scene.scheduled("sla"))
    repair()
    scene.night.acts.append("repair the row")
    scene.clear("run", run)
    scene.recovered_once()
    scene.must_be_alerted("giving-up", "team", "pager")


def wrong_input(scene: Scene) -> None:
    """Refused by the form, or by the plan: before anything is touched."""
    scene.declare()
    scene.run()
    scene.savepoint()
    before = scene.found()
    generation = scene.control.generation()
    scene.harm()

    for name, answer in (
        ("sink", "rolback"),
        ("mode", "clone"),
        ("start", "perhaps"),
        ("new_sinks", "nowhere"),
    ):
        scene.must_not_take("restore", {name: answer})
    for name, answer in (("savepoint", "b999999"), ("savepoint", "../../etc")):
        restore = scene.trigger("restore", {"stop_running": True, "sink": "rollback", name: answer})
        scene.must_end("restore", restore, "failed")
        seen = scene.look_at("restore", restore)
        assert [*seen.failed] == ["plan"] and seen.codes, seen.failed
    savepoint = scene.trigger("savepoint", {"batch": 10**6})
    scene.must_end("savepoint", savepoint, "failed")

    assert (scene.found(), scene.control.generation()) == (before, generation), "something was touched"
    assert scene.drivers() == 2, "there is not one driver: its Python and its JVM"
    scene.recovered_once()


def triggerer_and_driver_killed(scene: Scene) -> None:
    scene.declare()
    scene.run()
    airflow = scene.site.airflow
    scene.harm()

    airflow.kill("triggerer", with_children=True)
    scene.kill_driver()
    time.sleep(5)  # it is gone for a while
    airflow.start("triggerer")

    scene.recovered_once()
    scene.must_be_alerted("restart", "team")


def scheduler_killed_in_a_restore(scene: Scene) -> None:
    """The restore is done by another try, or fails with a reason and is cleared."""
    scene.declare()
    scene.run()
    scene.savepoint()
    scene.feed_through(2)
    scene.stop()
    airflow, dag_id = scene.site.airflow, scene.dag("restore")
    scene.harm()

    restore = scene.trigger("restore", {"sink": "rollback"})
    scene.answer("restore", restore)
    assert airflow.wait_for(dag_id, restore, "restore", "running", lambda: None), "it was never seen running"
    airflow.kill("scheduler", with_children=True)
    time.sleep(5)
    airflow.start("scheduler")
    airflow.wait_until_healthy()

    if scene.end_of("restore", restore) == "failed":
        assert scene.look_at("restore", restore).codes, scene.why("restore", restore)
        scene.clear("restore", restore)
        scene.must_end("restore", restore, "success")
    scene.recovered_once()


def repository_gone(scene: Scene) -> None:
    """Nothing starts from nothing, everything that looks is red, and with the repository all is as it was."""
    scene.declare()
    scene.run()
    scene.feed_through(3)
    scene.savepoint()
    scene.stop()
    disk, away = (scene.repository, scene.records), scene.repository.with_name("away")
    away.mkdir()
    before = scene.found()
    scene.harm()

    for place in disk:
        place.rename(away / place.name)
    scene.repository.mkdir()
    scene.feed(3)

    for verb in ("savepoint", "sla"):
        run = scene.scheduled(verb)
        assert run.state == "failed", f"{verb} is {run.state}"
        scene.must_say(verb, run.run_id, "repository-lost")
    run_id = scene.trigger("run")
    scene.site.airflow.wait_for_end(scene.dag("run"), run_id, lambda: _nothing_starts(scene, before))
    scene.must_say("run", run_id, "repository-lost", "sink-used")
    scene.must_be_tried_once("run", run_id, "start")
    scene.must_be_alerted("repository-lost", "team", "pager")

    for place in disk:
        shutil.rmtree(place, ignore_errors=True)
        (away / place.name).rename(place)
    scene.night.acts.append("bring the repository back")
    scene.trigger("run")
    scene.recovered_once()


def _nothing_starts(scene: Scene, before: list[int] | None) -> None:
    assert scene.found() == before, "something was written"


def sink_ahead(scene: Scene) -> None:
    """A restore while the job lives and its sink is ahead: one run, whose question offers the choices."""
    scene.declare()
    scene.run()
    scene.savepoint()
    scene.feed_through(3)
    scene.harm()

    restore = scene.trigger("restore")
    options = scene.answer("restore", restore, ASIDE)
    scene.must_be_alerted("approval-waits", "team", "approver")
    assert len(options) > 2, f"there is no choice but {options}"
    scene.must_end("restore", restore, "success")

    scene.recovered_once()
    assert len(scene.runs("restore")) == 1, scene.runs("restore")


def run_paused(scene: Scene) -> None:
    """A reflex, and then the driver dies: red within minutes, and back once the DAG goes on."""
    scene.declare(SOON)
    scene.run()
    scene.harm()

    scene.pause("run")
    scene.kill_driver()
    scene.feed()

    scene.until_broken("alive")
    scene.must_be_alerted("alive", "team", "pager")
    assert not scene.drivers(), "somebody started it"
    scene.unpause("run")
    scene.recovered_once()
    wait(lambda: scene.scheduled("sla").state == "success", "sla is green again", 240, every_s=10)


def keep_running_marked(scene: Scene) -> None:
    """Marked as a success while the driver lives: nobody watches, and that is red, too."""
    scene.declare(SOON)
    run = scene.run()
    scene.harm()

    scene.mark("run", run, "keep_running", "success")
    scene.must_end("run", run, "success")
    scene.until_broken("alive")
    scene.kill_driver()
    scene.until_broken("alive")
    scene.must_be_alerted("alive", "team", "pager")

    scene.trigger("run")
    scene.recovered_once()


def keep_running_cleared(scene: Scene) -> None:
    """Its next try watches the same driver, and restarts the job as the one before would have."""
    scene.declare()
    run = scene.run()
    first = scene.control.watches.view()
    scene.harm()

    scene.clear("run", run, "keep_running")
    scene.until_watched(first.number + 1 if first else 1)
    scene.kill_driver()

    scene.recovered()
    scene.until_kept(run)
    assert scene.drivers() == 2, "there is not one driver: its Python and its JVM"
    scene.each_row_once()


def restore_cleared_in_part(scene: Scene) -> None:
    """A restore that waits is marked as failed, and cleared: no job is stopped that is not restored then."""
    scene.declare()
    scene.run()
    scene.savepoint()
    scene.feed_through(2)
    scene.harm()

    restore = scene.trigger("restore", {"sink": "rollback", "stop_running": True})
    scene.question("restore", restore)
    scene.mark_run("restore", restore, "failed")
    scene.clear("restore", restore)

    if scene.answer_to_the_end("restore", restore) == "failed":
        assert scene.drivers() == 2, f"the job is stopped: {scene.why('restore', restore)}"
        tasks = scene.site.airflow.states(scene.dag("restore"), restore)
        scene.clear("restore", restore, *tasks)
        found = scene.answer_to_the_end("restore", restore)
        assert found == "success", f"restore is {found}: {scene.why('restore', restore)}"
    scene.recovered_once()


def late_pages(scene: Scene) -> None:
    """Two restores fail, a third one heals the job, a fourth waits: one page, about that one."""
    scene.declare(f'restore.deadline = "{LATE_S}s"')
    scene.run()
    scene.savepoint()
    scene.harm()

    failed = [scene.trigger("restore", {"savepoint": f"b9{number}"}) for number in range(2)]
    for run in failed:
        scene.must_end("restore", run, "failed")
    healing = scene.trigger("restore", {"sink": "rollback", "stop_running": True})
    scene.answer("restore", healing)
    scene.must_end("restore", healing, "success")
    scene.recovered()
    waiting = scene.trigger("restore", {"sink": "rollback", "stop_running": True})
    scene.question("restore", waiting)
    for run in (*failed, waiting):
        _see_deadline_missed(scene, run)

    scene.must_be_alerted("late-restore", "team", "pager")
    late = [str(one["run"]) for one in scene.alerts() if one["kind"] == "late-restore"]
    assert {*late} == {waiting} and len(late) == 2, f"{waiting} waits; {late} were said to be late"
    scene.answer("restore", waiting, "reject")
    scene.each_row_once()


def _see_deadline_missed(scene: Scene, run: str) -> None:
    """Wait until Airflow has noticed that a run missed its deadline, and has called back."""
    question = (
        "SELECT callback.state FROM deadline JOIN dag_run ON dag_run.id = deadline.dagrun_id "
        "JOIN callback ON callback.id = deadline.callback_id "
        "WHERE dag_run.dag_id = ? AND dag_run.run_id = ? AND deadline.missed"
    )

    def called() -> bool:
        rows = scene.site.airflow.rows(question, scene.dag("restore"), run)
        return any(str(state).lower() in ("success", "failed") for (state,) in rows)

    wait(called, f"the deadline of {run} is missed", LATE_S + 120)


def four_at_once(scene: Scene) -> None:
    """Stop, run, restore and savepoint in the same second: none is lost, and what came last counts."""
    scene.declare()
    watching = scene.run()
    scene.savepoint()
    scene.feed_through(2)
    scene.harm()

    stop = scene.trigger("stop", {"savepoint": False})
    run = scene.trigger("run", {"note": "no, run"})
    restore = scene.trigger("restore", {"sink": "rollback", "stop_running": True})
    savepoint = scene.trigger("savepoint", {"note": "before it"})

    scene.must_end("stop", stop, "success")
    scene.must_end("savepoint", savepoint, "success")
    states = partial(scene.site.airflow.states, scene.dag("run"), run)
    wait(lambda: states().get("start") in ("success", "skipped"), "the run has begun")
    scene.question("restore", restore)
    meant = scene.control.desired()
    assert meant is not None, "nobody said what is meant to be"
    if meant.state == "stopped":
        wait(lambda: not scene.drivers(), "what is stopped is stopped")
        scene.must_end("run", watching, "success")
    else:
        wait(lambda: scene.drivers() == 2, "one driver runs: its Python and its JVM")
    scene.answer("restore", restore)
    scene.must_end("restore", restore, "success")
    scene.recovered()
    assert scene.drivers() == 2, "there is not one driver: its Python and its JVM"
    scene.each_row_once()


def crashes_that_heal(scene: Scene) -> None:
    """Ten recovered crashes in a day are no good day, though none of them is the second in a row."""
    scene.declare()
    scene.run()
    scene.harm()

    took = []
    for _ in range(10):
        begun = time.monotonic()
        scene.kill_driver()
        scene.recovered()
        took.append(time.monotonic() - begun)
    scene.night.recovery_s = max(took)

    red = scene.scheduled("sla")
    scene.must_be_broken(red, "restart_rate")
    scene.must_be_alerted("restart_rate", "team", "pager")
    scene.each_row_once()


NIGHTS: dict[str, tuple[str, Callable[[Scene], None]]] = {
    "a": ("kill -9 of the driver", driver_killed),
    "b": ("checkpoint deleted while the job runs", checkpoint_deleted),
    "b2": ("checkpoint deleted while nothing runs", checkpoint_deleted_at_rest),
    "c": ("state file truncated while the job is stopped", state_file_truncated),
    "d": ("crash loop: a poison row", poison_row),
    "e": ("wrong input", wrong_input),
    "g": ("triggerer and driver killed -9", triggerer_and_driver_killed),
    "h": ("scheduler and its workers killed -9 during a restore", scheduler_killed_in_a_restore),
    "i": ("repository gone, an empty folder in its place", repository_gone),
    "j": ("restore of a living job whose sink is ahead", sink_ahead),
    "k1": ("run DAG paused, driver killed", run_paused),
    "k2": ("keep_running marked success, driver killed", keep_running_marked),
    "k3": ("keep_running cleared, driver killed", keep_running_cleared),
    "k4": ("a restore that waits marked failed, and cleared in part", restore_cleared_in_part),
    "l": ("restores that end before their deadline, and one that waits for an answer", late_pages),
    "m": ("stop, run, restore and savepoint at once", four_at_once),
    "n": ("ten recovered crashes in a day", crashes_that_heal),
    "o": ("checkpoint deleted, newest savepoint damaged, a replica is whole", disasters.repository_damaged),
    "o2": ("the same without a replica", disasters.repository_damaged_alone),
    "p": ("storage of the primary killed -9 and its disk deleted", disasters.primary_down),
    "q": ("wrong code deployed: other keys of the state", disasters.wrong_code),
    "q2": ("wrong code deployed: fails on new rows", disasters.wrong_code_undone),
    "r": ("a suspended driver wakes up beside its replacement", disasters.two_drivers),
    "s": ("records of the job deleted while it runs", disasters.records_lost),
    "t": ("Airflow's database put back from a backup, then the driver killed", disasters.database_put_back),
}
"""By name: what happens, and how it is played; in the order of the table."""
