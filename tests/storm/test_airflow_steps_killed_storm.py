"""Airflow's processes killed in each step of a drill, an upgrade and a fail-over: a retry ends well.

These are one task each, whose steps are seen in its log. At the end of each cell the DAG's run has succeeded,
by a retry or once it was cleared, one driver runs, and the output has each row once. Steps of a restore are
tasks, and in `test_airflow_killed_storm.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streambank.control.drills import last_passed
from streambank.core.errors import StreambankError
from streambank.sites.records import Sites
from streambank.storage import local_path
from streambank.upgrade.record import newest_upgrade
from tests.nights.record import Night
from tests.nights.scene import RUN_S, Scene
from tests.nights.site import Site, open_site, wait

pytestmark = [
    pytest.mark.spark,
    pytest.mark.airflow,
    pytest.mark.server,
    pytest.mark.storm,
    pytest.mark.timeout(3600),
]

STEPS = {
    "drill": (
        "choosing and verifying",
        "restoring into scratch",
        "opening the state",
        "starting the application on the copy",
        "comparing with the live query",
        "removing the copy",
    ),
    "upgrade": (
        "rehearsing the new code",
        "stopping the old code",
        "starting the new code",
        "waiting for the first batch",
        "watching the new code",
    ),
    "failover": (
        "stopping job",
        "taking a last savepoint",
        "recording that job",
        "restoring at",
        "recording that the",
        "starting job",
    ),
}
"""What the log of each verb's task says when a step begins."""
FORMS: Mapping[str, Mapping[str, Any]] = {
    "drill": {"batches": 1},
    "upgrade": {"watch": "15s"},
    "failover": {},
}
VICTIMS = ("worker", "scheduler and workers")
TRIGGERER = "triggerer"
"""Killed in a step of each verb, while it watches the job: no step runs in it."""
STEP_S = 600.0
TRIES = 3
"""How often a run is begun again whose task had ended before its worker could be killed."""
STANDBY = """
[jobs.{name}.replicate]
to = ["b/savepoints"]

[jobs.{name}.standby]
checkpoint = "b/checkpoint"
repository = "b/savepoints"
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with open_site(Path(tmp_path_factory.mktemp("steps")) / "site") as site:
        yield site


@pytest.fixture(scope="module")
def scenes(site: Site) -> Iterator[Callable[[str], Scene]]:
    """A running job for each verb, which all cells of the verb share."""
    found: dict[str, Scene] = {}

    def scene_of(verb: str) -> Scene:
        if verb not in found:
            found[verb] = scene = Scene(site, Night(verb, "killed"))
            if verb == "failover":
                scene.at = "primary"
                tables = STANDBY.format(name=scene.name)
                scene.declare(
                    verbs=[verb], repository="a/savepoints", checkpoint="a/checkpoint", tables=tables
                )
            else:
                scene.declare(verbs=[verb])
            scene.run()
            scene.savepoint()
            scene.feed_through(3)
        return found[verb]

    yield scene_of
    for scene in found.values():
        scene.close()


def _cells() -> Iterator[tuple[str, str, str]]:
    for verb, steps in STEPS.items():
        yield from ((verb, step, victim) for step in steps for victim in VICTIMS)
        yield verb, next(step for step in steps if step.startswith("starting")), TRIGGERER


@pytest.mark.parametrize(("verb", "step", "victim"), list(_cells()))
def test_a_retry_ends_well(
    scenes: Callable[[str], Scene], site: Site, verb: str, step: str, victim: str
) -> None:
    site.airflow.wait_until_healthy()
    scene = scenes(verb)
    driver = scene.watched.driver()
    for _ in range(TRIES):
        if verb == "upgrade":
            _deploy(scene)
        run = scene.trigger(verb, FORMS[verb])
        wait(lambda run=run: _has_begun(scene, verb, run, step), f"{verb} begins {step!r}", STEP_S, 0.05)  # type: ignore[misc]  # default
        if victim == TRIGGERER or site.airflow.states(scene.dag(verb), run)[verb] == "running":
            break
        _ends_well(scene, verb, run)
    else:
        raise AssertionError(f"{verb} was never seen in {step!r}")
    _kill(site, victim, verb)

    _ends_well(scene, verb, run)

    if verb == "drill":
        assert [*scene.watched.driver()] == [*driver], "the job was disturbed"
        # The copy of a drill that was killed goes with a later drill, once its time is over.
        passed = last_passed(scene.control)
        assert passed is not None
        assert not Path(str(local_path(passed["scratch"]))).exists(), "its copy is left"
    elif verb == "upgrade":
        newest = newest_upgrade(scene.control)
        assert newest is not None and newest.state == "upgraded", newest
    else:
        other = "standby" if scene.at == "primary" else "primary"
        decided = Sites(scene.control).newest()
        assert decided is not None and (decided.state, decided.site) == ("active", other)
        scene.at = other
        wait(lambda: _is_watched(scene), f"a run watches the {other}", RUN_S)
    assert scene.drivers() == 2, "there is not one driver: its Python and its JVM"
    scene.feed_through()
    scene.each_row_once()


def _deploy(scene: Scene) -> None:
    """A version that does the same: another program all the same."""
    with scene.application.open("a", encoding="utf-8") as file:
        file.write(f"# {time.time_ns()}\n")


def _has_begun(scene: Scene, verb: str, run: str, step: str) -> bool:
    """Whether a step has begun, or the run is over; what is asked before is answered."""
    airflow = scene.site.airflow
    airflow.approve(scene.dag(verb), run)
    folder = airflow.places.airflow / "logs" / f"dag_id={scene.dag(verb)}" / f"run_id={run}"
    said = [path.read_text(encoding="utf-8") for path in (folder / f"task_id={verb}").glob("*.log")]
    return any(f": {step}" in text for text in said) or scene.end_state(verb, run) is not None


def _end(scene: Scene, verb: str, run: str) -> str:
    """How a run ends, whose question may be asked again once its scheduler was killed."""
    return scene.site.airflow.wait_for_end(
        scene.dag(verb), run, partial(scene.site.airflow.approve, scene.dag(verb), run), 2 * RUN_S
    )


def _kill(site: Site, victim: str, verb: str) -> None:
    """Kill a part of Airflow, and start it again a moment later."""
    if victim == "worker":
        assert site.airflow.kill_worker(verb), "no worker was there"
        return
    name, _, more = victim.partition(" and ")
    killed = site.airflow.kill(name, with_children=bool(more))
    assert len(killed) > 1 or not more, "no worker was there"
    time.sleep(2)  # it is gone for a while
    site.airflow.start(name)
    site.airflow.wait_until_healthy()


def _ends_well(scene: Scene, verb: str, run: str) -> None:
    if _end(scene, verb, run) == "failed":
        why = scene.why(verb, run)
        print(f"{verb} failed:\n{why}")
        assert len(why.splitlines()) > 1, "it failed without a word"
        scene.clear(verb, run)
        assert _end(scene, verb, run) == "success", scene.why(verb, run)


def _is_watched(scene: Scene) -> bool:
    try:
        newest = scene.control.watches.view()
    except StreambankError:
        return False
    return newest is not None and not newest.end
