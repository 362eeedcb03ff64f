"""Whatever records, notes and markers say: nothing is removed but what is declared, or ours by its form.

Each example plants what attackers can write, in places and spellings that are drawn, and then cleans, removes
what refreshes of a copy have left, and what killed drills have.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streambank.cleaning.clean import clean_job
from streambank.compaction.job import compact_job
from streambank.control.records import encode_json
from streambank.copies.remove import remove_old
from streambank.core.errors import StreambankError
from streambank.core.units import to_json_time, utc_now
from streambank.declaration.declaration import Declarations
from streambank.declaration.load import load_jobs
from streambank.declaration.maintenance import GenerationsPolicy
from streambank.drills import left
from streambank.storage import memory, open_store
from streambank.work.target import NOTE
from tests.support.checkpoint.with_garbage import write_with_garbage
from tests.support.jobs.declared import BY, declare, fake_launcher
from tests.support.jobs.left_behind import go_on, next_generation, save
from tests.support.storage.contents import contents
from tests.support.storage.exchanged import exchanged, lay_link

SPACE = "memory://property"
QUICK = settings(deadline=None, suppress_health_check=list(HealthCheck))
AT_ONCE = GenerationsPolicy(keep=1, keep_for_s=0.001)
OLD = left.name_of(utc_now() - timedelta(days=30), "a" * 6)
STAGED = f"inspect-{'a' * 32}"
JOBS = f"""
repository = "{SPACE}/repository"
[jobs.orders]
application = "app.py"
checkpoint = "{SPACE}/ck"
[jobs.orders.copies.staging]
checkpoint = "{SPACE}/copy/ck"
outputs = {{ "{SPACE}/out" = "{SPACE}/copy/out" }}
keep = 1
[jobs.payments]
application = "app.py"
checkpoint = "{SPACE}/pay"
repository = "{SPACE}/theirs"
control = "{SPACE}/control"
""".replace(f'repository = "{SPACE}/theirs"\n', "")
OURS = re.compile(
    r"ck/|(ck|copy/(ck|out))\.g\d{4,}/|ck(\.g\d{4,})?\.quarantine-[^/]+/"
    rf"|ck\.work/{STAGED}/|ck\.drills/orders/{OLD}/|(.*/)?_streambank_aside/orders-1/"
)
"""What may go, by its form."""
REMOVABLE = re.compile(r"copy/(ck|out)\.g\d{4,}\.streambank\.json|.*/orders-staging/refreshes/\d+\.json")
"""Besides: claims on what went, and what records themselves drop."""
PLACES = (
    "ck", "ck.g0002", "ck.g0003", "ck.g0004", "ck.g0009", "ckx.g0003", "ck.g0002/state", "ck.work",
    f"ck.work/{STAGED}", f"ck.drills/orders/{OLD}", f"ck.drills/other/{OLD}", "ck.quarantine-x", "repository",
    "repository/objects", "repository.control", "repository.control/orders", "pay", "pay.g0002", "pay.g0003",
    "control", "control/payments", "lake/table", "out", "out/_streambank_aside/x-1", "copy/ck",
    "copy/ck.g0002", "copy/out.g0002", "copy/out.g0009", "",
)  # fmt: skip
"""Where attackers plant something, or what they name."""


VICTIMS = ("pay", "pay.g0002", "lake/table", "out", "control/payments", "ckx.g0003")
"""Those in which there is something, and that are none of the job's."""


class World(NamedTuple):
    """A job that has gone on after a restore, in memory, and its neighbours."""

    declared: Declarations
    files: dict[str, Any]
    quarantine: dict[str, bytes]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("property")
    (folder / "app.py").write_text("")
    (folder / "jobs.toml").write_text(JOBS)
    declared = load_jobs(folder / "jobs.toml")
    job = declared.job("orders")
    write_with_garbage(open_store(job.checkpoint))
    savepoint = save(job)
    place = compact_job(job, label="x", by=BY)["main"].quarantine
    quarantine = contents(open_store(str(place)))
    for batches in (1, 2, 3):
        next_generation(job, savepoint, sink="accept")
        for _ in range(batches):
            go_on(job)
    for name in (*VICTIMS, "ck.g0009", "copy/ck.g0002"):
        for file in ("metadata", "commits/0", "offsets/0", "private/part-0"):
            open_store(f"{SPACE}/{name}").write(file, b"{}")
    left.mark(f"{SPACE}/ck.drills/orders/{OLD}", job.records())
    open_store(f"{SPACE}/ck.drills/orders/{OLD}").write("file", b"")
    return World(declared, dict(memory._spaces["property"].entries), quarantine)


def spelled(place: str, way: int) -> str:
    """A location of one place in one of many spellings."""
    uri = f"{SPACE}/{place}".rstrip("/")
    ways = (
        uri, f"{uri}/", uri.replace("memory", "MEMORY"), f"{SPACE}//{place}", f"{SPACE}/./{place}",
        f"{uri}/.", f"{uri}/x/..", f"{uri}/../{place}", f"{uri}.g0003", f"{uri}.g0002",
    )  # fmt: skip
    return ways[way]


places = st.sampled_from(VICTIMS) | st.sampled_from(PLACES)
locations = st.builds(spelled, places, st.integers(0, 9))
generations = st.tuples(
    st.just("generation"), st.integers(1, 6), locations, st.none() | st.integers(1, 4), locations
)
whose = st.sampled_from(["orders", "orders-staging", "payments"])
plants = generations | st.one_of(
    st.tuples(st.just("facts"), locations),
    st.tuples(st.just("compacted"), locations),
    st.tuples(st.just("refresh"), locations),
    st.tuples(st.just("marker"), places, whose, locations, st.integers(1, 9)),
    st.tuples(st.just("claim"), places, whose),
    st.tuples(st.just("note"), places, whose),
    st.tuples(st.just("report"), places, whose),
    st.tuples(st.just("quarantine"), places),
    st.tuples(st.just("aside"), places, whose | st.just("")),
    st.tuples(st.just("drill"), places, whose),
)


def plant(world: World, what: tuple[Any, ...]) -> None:
    job = world.declared.job("orders")
    copy = job.as_copy("staging")
    own, on_copy = job.records(), copy.records()
    kind, *told = what
    at: dict[str, Any] = {"at": to_json_time(utc_now()), "by": {}}
    space = open_store(SPACE)

    def lay(key: str, data: Any) -> None:
        space.write(key.lstrip("/"), data if isinstance(data, bytes) else json.dumps(data).encode())

    if kind == "generation":
        number, location, again, output = told
        data = {"generation": number, "location": location, "from_savepoint": None, "again": again, "by": {}}
        data |= {"made_at": at["at"], "new_sinks": {f"{SPACE}/out": output}}
        for records in (own, on_copy):
            records.store.write(f"generation/main/{number:010d}.json", encode_json(data))
    elif kind == "facts":
        own.record_query(None, {"sink": f"FileSink[{told[0]}]", "sink_path": told[0], "query_id": "q"})
    elif kind == "compacted":
        own.record_event("compacted", query="main", quarantine=told[0])
    elif kind == "refresh":
        number = len(on_copy.store.names("refreshes")) + 1
        data = {**at, "directories": [told[0], f"{SPACE}/copy/ck.g0002"]}
        on_copy.store.write(f"refreshes/{number:010d}.json", encode_json(data))
    elif kind in ("marker", "claim"):
        place, name, *more = told
        location, number = more or (f"{SPACE}/{place}", 2)
        root = (on_copy if name == "orders-staging" else own).store.uri.rpartition("/")[0]
        data = {"format": 1, "job": name, "query": "main", "generation": number, "location": location}
        lay(f"{place or 'x'}.streambank.json", {**at, **data, "control": root})
    elif kind == "note":
        lay(f"{told[0]}/metadata", {NOTE: {"job": told[1], "token": "t", "owner": {}, "files": []}})
    elif kind == "report":
        lay(f"{told[0] or 'x'}.restored.json", {"job": told[1], "by": {}})
    elif kind == "quarantine":
        for key, content in world.quarantine.items():
            lay(f"{told[0]}/{key}", content)
    elif kind == "aside":
        folder = f"{told[0]}/_streambank_aside/{told[1]}-1"
        journal = {"job": told[1] or None, "batch": 0, "begun_at": "2026-01-01T00:00:00Z"}
        lay(f"{folder}/_rollback.json", journal)
        lay(f"{folder}/_done.json", {})
    else:
        lay(f"{told[0]}/{left.MARKER}", {"job": told[1], "records": own.store.uri})


def remove_all(world: World, tmp_path: Path) -> None:
    """Everything that removes directories by what records say."""
    job = world.declared.job("orders")
    now = utc_now() + timedelta(days=60)
    with suppress(StreambankError):
        clean_job(job, jobs=world.declared.jobs, policy=AT_ONCE, now=now, dry_run=False, by=BY)
    copy = job.as_copy("staging")
    with suppress(StreambankError):
        remove_old(copy, copy.records(), lambda: None, check_removable=lambda _: None, by=BY)
    with suppress(StreambankError):
        left.clean_up(
            job, f"{SPACE}/ck.drills/orders", timeout_s=1.0, by=BY, launcher=fake_launcher(tmp_path)
        )


def nothing_else_goes(world: World, tmp_path: Path, planted: list[tuple[Any, ...]]) -> set[str]:
    space = memory._spaces["property"].entries
    space.clear()
    space.update(world.files)
    for one in planted:
        plant(world, one)
    before = set(space)
    remove_all(world, tmp_path)
    gone = before - set(space)
    other = {key for key in gone if not OURS.match(key) and not REMOVABLE.fullmatch(key)}
    assert not other
    return gone


def test_what_is_ours_goes_where_nothing_is_planted(world: World, tmp_path: Path) -> None:
    gone = nothing_else_goes(world, tmp_path, [])
    earlier = {"ck/metadata", "ck.g0002/metadata", "ck.g0003/metadata"}
    assert {*earlier, f"ck.drills/orders/{OLD}/file"} <= gone
    claimed = [("refresh", f"{SPACE}/copy/ck.g0002"), ("claim", "copy/ck.g0002", "orders-staging")]
    assert "copy/ck.g0002/metadata" in nothing_else_goes(world, tmp_path, claimed)


@pytest.mark.parametrize(
    "examples", [60, pytest.param(20_000, marks=[pytest.mark.storm, pytest.mark.timeout(3600)])]
)
def test_nothing_goes_that_only_a_record_names(world: World, tmp_path: Path, examples: int) -> None:
    @settings(QUICK, max_examples=examples)
    @given(st.lists(plants, min_size=1, max_size=4))
    def run(planted: list[tuple[Any, ...]]) -> None:
        nothing_else_goes(world, tmp_path, planted)

    run()


# On a disk: links, before the cleaning and in the middle of it.

DIRECTORIES = (
    "checkpoints/flights", "checkpoints/flights.g0003", f"checkpoints/flights.work/{STAGED}",
    f"checkpoints/flights.drills/flights/{OLD}", "temporary/streambank-inspect-x",
    f"temporary/streambank-inspect-x/{STAGED}", "checkpoints/flights/state", "checkpoints/flights/state/0",
)  # fmt: skip
"""What goes where nobody lays a link; and what is in it."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job on this machine, with what work on it has left, and with directories that must stay."""
    folder = tmp_path_factory.mktemp("links") / "world"
    folder.mkdir()
    job = declare(folder, batches=1)
    next_generation(job, save(job), sink="accept")
    go_on(job)
    for name in DIRECTORIES[1:6]:
        (folder / name).mkdir(parents=True, exist_ok=True)
        note = {NOTE: {"job": job.name, "token": "t", "owner": {}, "files": []}}
        (folder / name / "metadata").write_text(json.dumps(note))
    (folder / DIRECTORIES[4]).chmod(0o700)
    left.mark(str(folder / DIRECTORIES[3]), job.records())
    shutil.copytree(folder / "checkpoints/flights", folder / "victims/flights")
    shutil.copytree(folder / DIRECTORIES[4], folder / "victims/staged")
    shutil.copytree(folder / "checkpoints/flights/state", folder / "victims/state")
    return folder


def everything(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def nothing_that_a_link_leads_to_goes(
    template: Path, links: list[tuple[str, str]], late: tuple[str, str], at: int
) -> tuple[set[str], int]:
    """What went, and how many of the links were laid."""
    folder = template.parent / "played"
    if folder.exists():
        shutil.rmtree(folder)
    template.rename(folder)  # what records name are absolute places
    shutil.copytree(folder, template, symlinks=True)
    try:
        job = load_jobs(template / "streaming_jobs.toml").job("flights")
        before = everything(template)
        laid = 0

        def lay(link: tuple[str, str]) -> None:
            nonlocal laid
            if any((template / above).is_symlink() for above in Path(link[0]).parents):
                return  # it would be one of the directories that must stay
            laid += lay_link(template / link[0], template / "victims" / link[1], template / f"moved-{laid}")

        for link in links:
            lay(link)
        now = utc_now() + timedelta(days=60)
        with (
            patch.object(tempfile, "tempdir", str(template / "temporary")),
            exchanged(at, lambda: lay(late)),
            suppress(StreambankError),
        ):
            clean_job(job, jobs={job.name: job}, policy=AT_ONCE, now=now, dry_run=False, by=BY)
        gone = before - everything(template)
        assert not {name for name in gone if name.startswith("victims/")}
        return gone, laid
    finally:
        shutil.rmtree(template)
        folder.rename(template)


links = st.tuples(
    st.sampled_from(DIRECTORIES), st.sampled_from(["flights", "staged", "state", "flights/state/0"])
)
played = st.tuples(st.lists(links, max_size=1), links, st.integers(1, 1200))


@pytest.fixture(autouse=True)
def without_syncing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


def test_what_is_ours_goes_where_no_link_is_laid(template: Path) -> None:
    gone, laid = nothing_that_a_link_leads_to_goes(template, [], ("", ""), 0)
    assert {*DIRECTORIES} - gone == {DIRECTORIES[4]} and laid == 0


@pytest.mark.parametrize(
    "examples", [8, pytest.param(2000, marks=[pytest.mark.storm, pytest.mark.timeout(1800)])]
)
def test_nothing_goes_that_a_link_leads_to(template: Path, examples: int) -> None:
    fired = 0

    @settings(QUICK, max_examples=examples)
    @given(played)
    def run(drawn: tuple[list[tuple[str, str]], tuple[str, str], int]) -> None:
        nonlocal fired
        fired += nothing_that_a_link_leads_to_goes(template, *drawn)[1] > len(drawn[0])

    run()
    assert fired > examples / 5, "links have to be laid in the middle, too"
