"""Hot keys by traffic under a real driver: a hot user is seen, and nothing of the query changes."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from streambank.core.names import MAIN
from streambank.core.units import utc_now
from streambank.declaration.state import HotKeysPolicy
from streambank.sla.skew.traffic import hot_key_facts, partition_of
from streambank_spark.private.key_samples import METRIC
from streambank_spark.runner.key_sampling import NOT_SAMPLED, SAMPLED
from tests.support.drivers.real_driver import Driver, Job
from tests.support.spark.sessions import BUILD_CONF

pytestmark = [pytest.mark.storm, pytest.mark.spark]

BATCHES, ROWS, USERS = 3, 4000, 100
PARTITIONS = 4


def feed(folder: Path, *, hot: float, first: int = 0, batches: int = BATCHES) -> Counter[str]:
    """Files of rows, a batch each: a share of them of one user.

    Returns:
        How many rows each user has.
    """
    chance = random.Random(f"{hot}/{first}")
    found: Counter[str] = Counter()
    (folder / "in").mkdir(exist_ok=True)
    for number in range(first, first + batches):
        users = ["hot" if chance.random() < hot else f"user{chance.randrange(USERS)}" for _ in range(ROWS)]
        found.update(users)
        lines = "".join(f"{json.dumps({'user': user, 'value': n})}\n" for n, user in enumerate(users))
        (folder / f"in/{number}.json").write_text(lines)
    return found


def run(folder: Path, policy: HotKeysPolicy | None, hot: float = 0.4, first: int = 0) -> tuple[Job, Driver]:
    """A driver of `hot_user.py` over new files, to its end."""
    folder.mkdir(exist_ok=True)
    feed(folder, hot=hot, first=first)
    (folder / "events").mkdir(exist_ok=True)
    conf = {
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        "spark.log.level": "INFO",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{folder}/events",
        "spark.eventLog.compress": "false",
    }
    job = Job(folder, conf={**BUILD_CONF, **conf})
    hot_keys = None if policy is None else policy.to_dict()
    with job.driver("hot_user.py", str(folder), hot_keys=hot_keys) as driver:
        assert driver.wait() == 0, driver.tail()
    return job, driver


def logs(driver: Driver) -> list[str]:
    """Spark's own log of a driver, and the event log."""
    events = (one for one in (driver.log.parent / "events").rglob("*") if one.is_file())
    return [driver.log.read_text(), "".join(one.read_text() for one in events)]


def outputs(folder: Path) -> dict[str, str]:
    """What each batch gave."""
    return {one.name: one.read_text() for one in (folder / "out").iterdir()}


def test_a_hot_user_of_a_plain_count_is_seen_and_nothing_else_changes(tmp_path: Path) -> None:
    job, driver = run(tmp_path / "sampled", HotKeysPolicy(sample=0.5, hashes=True))
    _, plain = run(tmp_path / "plain", None)

    assert outputs(tmp_path / "sampled") == outputs(tmp_path / "plain")
    assert len(outputs(tmp_path / "plain")) == BATCHES
    for name in ("operators", "stateSchema"):
        assert layout(driver, name) == layout(plain, name), name

    sampled = driver.event(SAMPLED)
    assert sampled["operators"] == [{"operator": 0, "name": "Aggregate", "by": ["user"]}]
    records = driver.progress()
    assert [record.batch for record in records] == [0, 1, 2]
    assert not any("observedMetrics" in record.progress for record in records), "Spark's own as it is"
    assert [one.hot_keys for one in plain.progress()] == [None] * BATCHES
    measured = records[-1].hot_keys
    assert measured is not None
    (operator,) = measured["operators"]
    assert (operator["batches"], operator["rows"]) == (BATCHES, BATCHES * ROWS)
    assert 0.45 < operator["sampled"] / operator["rows"] < 0.55
    assert operator["keys"] == pytest.approx(USERS + 1, rel=0.2)
    top = operator["top"][0]
    share = feed(tmp_path / "sampled", hot=0.4)["hot"] / (BATCHES * ROWS)
    assert top["low"] < share < top["high"] < 0.45, (share, top)
    assert top["times_mean"] == pytest.approx(0.4 * (USERS + 1), rel=0.25)
    assert top["partition"] == partition_of(int(top["hash"], 16), PARTITIONS)
    assert "hot" not in json.dumps(measured["operators"][0]["top"]).replace("hot_", ""), "no key is kept"
    assert all(str(int(top["hash"], 16)) in log for log in logs(driver)), "Spark logs what it observes"

    _, salted = run(tmp_path / "salted", HotKeysPolicy(sample=0.5))
    assert outputs(tmp_path / "salted") == outputs(tmp_path / "plain")
    unnamed = (salted.progress()[-1].hot_keys or {})["operators"][0]["top"][0]
    assert unnamed["share"] == pytest.approx(top["share"], abs=0.03)
    assert unnamed["partition"] == top["partition"] and "hash" not in unnamed
    for log in logs(salted):
        assert f"{METRIC}0" in log and str(int(top["hash"], 16)) not in log, "but nothing that leads to a key"

    facts, why = hot_key_facts(job.control, MAIN, utc_now())
    assert facts is not None
    assert [(one.value, one.subject) for one in facts] == [
        (top["times_mean"], "operator 0 (Aggregate), traffic")
    ]
    assert why == ""


def test_even_traffic_has_no_hot_key(tmp_path: Path) -> None:
    job, driver = run(tmp_path / "even", HotKeysPolicy(sample=1.0), hot=0.0)
    measured = driver.progress()[-1].hot_keys
    assert measured is not None
    (operator,) = measured["operators"]
    assert operator["sampled"] == operator["rows"] == BATCHES * ROWS
    assert all(one["times_mean"] < 3 for one in operator["top"]), operator
    facts, _ = hot_key_facts(job.control, MAIN)
    assert facts is not None
    assert facts[0].value < 3


def test_sampling_begins_and_ends_between_two_drivers_of_one_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "both"
    run(folder, None)
    run(folder, HotKeysPolicy(), first=BATCHES)
    _, third = run(folder, None, first=2 * BATCHES)

    counted = Counter(
        {user: n for one in sorted(map(int, batches(folder))) for user, n in result(folder, one)}
    )
    expected = sum((feed(folder, hot=0.4, first=n * BATCHES) for n in range(3)), Counter[str]())
    assert counted == expected
    records = third.progress()  # of all three drivers
    assert [one.hot_keys is not None for one in records] == [False] * 3 + [True] * 3 + [False] * 3
    assert len({one.progress["id"] for one in records}) == 1, "the id of the query stays"


FAULTY = """
import runpy, sys
from streambank_spark.private import key_samples
from streambank_spark.runner import key_sampling

def broken(*args, **kwargs):
    raise RuntimeError("injected fault")

{fault}
runpy.run_path({application!r}, run_name="__main__")
"""
FAULTS = {
    "in the plan": "key_samples.observed = broken",
    "in the writer": "key_samples.writer_of = broken",
    "in the progress": "key_sampling._sample = broken",
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_sampler_that_fails_leaves_the_query_as_it_is(tmp_path: Path, fault: str) -> None:
    folder = tmp_path / "faulty"
    folder.mkdir()
    feed(folder, hot=0.4)
    application = str(Path(__file__).parents[2] / "data/applications/hot_user.py")
    faulty = tmp_path / "faulty.py"
    faulty.write_text(FAULTY.format(fault=fault, application=application))
    job = Job(folder, conf={**BUILD_CONF, "spark.sql.shuffle.partitions": str(PARTITIONS)})
    with job.driver(faulty, str(folder), hot_keys=HotKeysPolicy().to_dict()) as driver:
        assert driver.wait() == 0, driver.tail()

    assert len(outputs(folder)) == BATCHES
    noted = driver.events(NOT_SAMPLED)
    assert len(noted) == 1, "it is said once"
    assert "injected fault" in noted[0]["why"]
    measured = driver.progress()[-1].hot_keys
    assert measured is not None
    assert "injected fault" in measured["operators"][0]["why"]
    facts, why = hot_key_facts(job.control, MAIN)
    assert facts is None
    assert "injected fault" in why


def layout(driver: Driver, name: str) -> dict[str, int]:
    """Files of a checkpoint by their path below the state, without names that differ from run to run."""
    state = driver.checkpoint() / "state"
    return Counter(str(one.parent.relative_to(state)) for one in state.rglob("*") if one.is_file())


def batches(folder: Path) -> list[str]:
    """Numbers of the batches that were written."""
    return [one.stem for one in (folder / "out").iterdir()]


def result(folder: Path, batch: int) -> list[tuple[str, int]]:
    return [(user, n) for user, n in json.loads((folder / f"out/{batch}.json").read_text())]
