"""Who may write beside a checkpoint puts something else where its marker lies, or a report of a restore."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from streambank.cleaning.clean import clean_job
from streambank.cleaning.left_directories import left_directories
from streambank.control.marker import Marker, marker_location, read_marker
from streambank.core.errors import FormatError, StreambankError
from streambank.core.units import utc_now
from streambank.declaration.declaration import Job
from streambank.declaration.maintenance import GenerationsPolicy
from streambank.driver.preflight import check_start, declared_query
from streambank.storage import local_path
from tests.support.jobs.declared import BY
from tests.support.jobs.left_behind import restored_job

MOST_BYTES = 200 << 20
"""What may be read of it into memory, whatever its size."""


def large(path: Path) -> None:
    """Three gigabytes, all of them a hole."""
    path.touch()
    os.truncate(path, 3 << 30)


KINDS: Mapping[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a directory": Path.mkdir,
    "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "a link to /etc/shadow": lambda path: path.symlink_to("/etc/shadow"),
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to nothing": lambda path: path.symlink_to("/not/there"),
    "a link to a folder": lambda path: path.symlink_to("/usr"),
    "three gigabytes": large,
    "nothing at all": Path.touch,
    "no object": lambda path: path.write_text("7"),
    "no JSON": lambda path: path.write_bytes(b"\xff\xfe\x00"),
    "nested": lambda path: path.write_text("[" * 100_000),
    "other types": lambda path: path.write_text(
        json.dumps({"format": 1, "job": [], "query": {}, "generation": "9" * 5000, "at": 7, "by": 7})
    ),
}


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job with an earlier generation that nothing needs."""
    return restored_job(tmp_path, monkeypatch)


def folder_of(job: Job) -> Path:
    return Path(local_path(job.checkpoint) or "").parent


def removed(job: Job) -> list[str]:
    policy = GenerationsPolicy(keep=1, keep_for_s=0.001)
    later = utc_now() + timedelta(days=7)
    report = clean_job(job, jobs={job.name: job}, by=BY, policy=policy, dry_run=False, now=later)
    return [one.directory.location for one in report.having("removed")]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_marker_is_named_or_passed_over_and_hangs_nobody(job: Job, kind: str) -> None:
    place = Path(local_path(marker_location(job.checkpoint) or "") or "")
    place.unlink()
    KINDS[kind](place)
    records = job.records()
    generation = records.generation()
    assert generation is not None
    tracemalloc.start()
    try:
        for look in (
            lambda: read_marker(job.checkpoint),
            lambda: check_start(declared_query(job, "main", records), generation),
            lambda: left_directories(job),
            lambda: removed(job),
        ):
            try:
                assert not isinstance(look(), Marker)
            except StreambankError as error:
                assert error.exit_code != 70 and "root:" not in f"{error.message}{error.hint}"
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_report_of_a_restore_keeps_nobody_from_the_rest(job: Job, kind: str) -> None:
    for name in ("theirs", "flights", "flights.g0002", "..", "...", "-rf", "%2e%2e", " "):
        KINDS[kind](folder_of(job) / f"{name}.restored.json")
    assert removed(job) == [job.checkpoint]


@pytest.mark.parametrize("name", ["..", ".", "../..", "", "x/../../..", "/etc"])
def test_a_report_does_not_say_where_a_restore_went(job: Job, name: str) -> None:
    """It is its own name that does; what it says of a place is not looked at."""
    report = folder_of(job) / "copy.restored.json"
    report.write_text(json.dumps({"job": job.name, "into": name, "location": name, "by": {"user": "x"}}))
    (folder_of(job) / "...restored.json").write_text(json.dumps({"job": job.name, "by": {}}))
    before = sorted(folder_of(job).parent.iterdir())
    assert removed(job) == [job.checkpoint]
    assert sorted(folder_of(job).parent.iterdir()) == before


def test_siblings_of_any_name_are_passed_over(job: Job, tmp_path: Path) -> None:
    folder, elsewhere = folder_of(job), tmp_path / "elsewhere"
    (elsewhere / "bin").mkdir(parents=True)
    (elsewhere / "bin/tool").touch()
    for name in ("usr", "flights.g0007", "flights.quarantine-x"):
        (folder / name).symlink_to(elsewhere)
    (folder / "a\nb").mkdir()
    os.mkfifo(folder / "flights.g0008")
    (folder / "flights.g0009").write_text("no folder")
    (folder / ("f" * 255)).mkdir()
    left = left_directories(job)
    found = {Path(one.location).name: one for one in left.directories}
    assert "flights" in found and not found.keys() & {"usr", "a\nb", "flights.g0008", "flights.g0009"}
    assert not any(one.location.startswith(elsewhere.as_uri()) for one in left.directories)
    assert (removed(job), (elsewhere / "bin/tool").exists()) == ([job.checkpoint], True)
    assert (folder / "flights.g0007").is_symlink() and (folder / "flights.quarantine-x").is_symlink()


@pytest.mark.storm
def test_thousands_of_siblings_cost_seconds(job: Job) -> None:
    for number in range(5000):
        folder = folder_of(job) / f"flights.g{number + 10:04d}"
        folder.mkdir()
        (folder / "metadata").write_text('{"id": "x"}')
    assert removed(job) == [job.checkpoint]
    assert len([*folder_of(job).glob("flights.g*")]) == 5001


def test_the_honest_marker_is_read(job: Job) -> None:
    """The negative control."""
    marker = read_marker(job.checkpoint)
    assert marker is not None and (marker.job, marker.generation) == (job.name, 2)
    Path(local_path(marker_location(job.checkpoint) or "") or "").write_text("{")
    with pytest.raises(FormatError):
        read_marker(job.checkpoint)
