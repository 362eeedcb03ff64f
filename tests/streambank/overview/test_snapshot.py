from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from streambank.core.errors import InputError
from streambank.declaration.declaration import Job
from streambank.overview.plain import PART_BYTES, digest_of, size_of
from streambank.overview.snapshot import DEFAULT_PARTS, PARTS, Snapshot, snapshot
from tests.support.jobs.declared import declare, end_drivers, fake_launcher
from tests.support.overview.shown_job import mismatched, shown_job, use_fake_launcher
from tests.support.refuses import refuses


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """A job with a history, which runs."""
    folder = tmp_path_factory.mktemp("shown")
    with pytest.MonkeyPatch.context() as patch:
        use_fake_launcher(folder, patch)
        job = shown_job(folder)
        yield job
        end_drivers(job.records())


@pytest.fixture(scope="module")
def whole(shown: Job) -> Snapshot:
    return snapshot(shown, parts=PARTS)


def test_a_job_is_told_in_full(whole: Snapshot) -> None:
    found = whole
    line, parts = found.line, found.parts
    assert not {name: part["error"] for name, part in parts.items() if part["error"]}
    assert mismatched(found) == []
    assert found.to_dict() == json.loads(json.dumps(found.to_dict()))

    assert (line["state"], line["desired"]["state"], line["desired"]["why"]) == (
        "running",
        "running",
        "again",
    )
    assert line["batch"] is not None and line["state_rows"] == 100 and line["commit_s"] == 0.25
    assert line["spark"]["step_s"] == 3600 and len(line["spark"]["bytes"]) == 48
    assert sum(one is not None for one in line["spark"]["bytes"]) >= 47
    assert line["level"] == "warn" and line["verdicts"][0]["objective"] == "state_bytes"
    (saved,) = parts["savepoints"]["savepoints"]
    assert line["savepoint"]["id"] == saved["id"] and saved["name"] == "before-v2"
    assert (saved["why"], saved["note"], saved["pinned"], saved["held"]) == (
        "upgrade",
        "before v2",
        True,
        False,
    )
    assert [one["level"] for one in saved["verified"]] == ["full", "quick"]
    assert "pinned" in saved["kept"] and saved["expires"]["at"] > saved["taken_at"]
    words = parts["savepoints"]["manifests"][saved["id"]]
    assert (
        words["operators"] == ["operator 0, stateStoreSave: store default, 2 partitions"]
        or words["operators"]
    )
    assert line["replicas"][0]["behind"] == 0 and line["replicas"][0]["savepoint"] == saved["id"]
    assert parts["repository"]["savepoints"] == 1 and parts["repository"]["bytes"] > 0
    assert parts["repository"]["next_expiry"]["at"] == saved["expires"]["at"]
    assert line["drill"]["passed"] and line["drill"]["rto_s"] == 17.0
    (restore,) = parts["recoveries"]["restores"]
    assert restore["savepoint"] == saved["id"] and restore["steps"][0]["name"] == "restore"
    kinds = {one["kind"] for one in parts["events"]["events"]}
    assert {"desired-stopped", "savepoint-taken", "restored", "driver-started"} <= kinds
    (state,) = (one for one in parts["charts"]["charts"] if one["objective"] == "state_bytes")
    assert state["warn"] == 1e6 and len(state["t"]) == len(state["v"]) <= 300
    assert state["restarts"] and state["forecast"]["grows"]
    assert parts["charts"]["partitions"] and parts["charts"]["stores"][0]["partitions"] == 2
    assert parts["status"]["queries"]["main"]["generation"] == 2
    assert parts["findings"]["findings"]
    for name, part in parts.items():
        assert size_of(part) <= PART_BYTES
        assert line["parts"][name] == {"at": line["at"], "digest": digest_of(part)}


def test_a_line_alone_takes_over_what_rests_on_parts_that_are_not_made(shown: Job, whole: Snapshot) -> None:
    line = snapshot(shown, parts={"line"}, before=Snapshot.from_dict({"line": whole.line}))
    assert line.parts == {}
    taken_over = ("level", "verdicts", "objectives", "spark", "savepoint", "replicas", "drill", "parts")
    assert all(line.line[name] == whole.line[name] and line.line[name] for name in taken_over)
    assert line.line["at"] > whole.line["at"] and line.line["state"] == "running"
    alone = snapshot(shown, parts={"line", "recoveries"})
    assert alone.parts.keys() == {"recoveries"} == alone.line["parts"].keys()
    assert alone.line["drill"] == whole.line["drill"] and alone.line["level"] is None


def test_a_part_that_has_not_changed_is_recognised(shown: Job, whole: Snapshot) -> None:
    end_drivers(shown.records())
    asked = DEFAULT_PARTS - {"verdicts", "charts"}
    first, second = (snapshot(shown, parts=asked).line for _ in range(2))
    same = {name for name in asked if first["parts"][name]["digest"] == second["parts"][name]["digest"]}
    assert same == asked and first["at"] < second["at"]
    assert first["parts"]["savepoints"]["digest"] == whole.line["parts"]["savepoints"]["digest"]
    assert first["parts"]["status"]["digest"] != whole.line["parts"]["status"]["digest"]


def test_a_job_to_which_nothing_has_happened_has_no_errors(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambank.job.status.launcher_for", lambda job: fake_launcher(folder))
    found = snapshot(declare(folder))
    assert found.line["state"] == "never-started" and found.line["error"] is None
    assert not any(part["error"] for part in found.parts.values())
    assert found.parts["savepoints"]["savepoints"] == [] and found.parts["log"]["lines"] == []
    assert mismatched(found) == []
    assert not (folder / "repository").exists() and not (folder / "repository.control").exists(), (
        "only looked"
    )


def test_a_part_that_there_is_not_is_refused(folder: Path) -> None:
    with refuses(InputError, "no-such-part"):
        snapshot(declare(folder), parts={"line", "everything"})
