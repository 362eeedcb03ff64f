"""The wrong programs: run for real, what doctor says of each, and the words in the guide."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from streambank.doctor.checks.locations import check_unnamed
from streambank.doctor.diagnose import diagnose_checkpoint
from tests.support.archives import unpack_tar
from tests.support.checkpoint.wrong_programs import CHECKPOINTS, FILES, INPUTS, WRONG, write_input
from tests.support.cli import streambank
from tests.support.drivers.real_driver import Job, environment, submit
from tests.support.paths import ROOT
from tests.support.waiting import wait_for

GUIDE = ROOT / "docs/guide/anti-patterns.md"
FOUND: Mapping[str, set[str]] = {
    "unbounded_state": {"unbounded-state"},
    "session_never_closes": {"endless-session"},
    "append_only_list": {"append-only-list", "unbounded-state"},
    "hot_keys": {"hot-key"},
    "no_checkpoint": {"no-checkpoint-location"},
    "numbers_as_strings": {"numbers-as-strings"},
}
"""What doctor says of each program, and of no other."""
CODES = {code for codes in FOUND.values() for code in codes}
GROWN = 6
"""Batches after which the history shows that state grew."""


def quoted(page: Path) -> str:
    return re.sub(r"\s+", " ", page.read_text(encoding="utf-8"))


def test_each_program_has_a_section_of_the_guide_and_a_finding() -> None:
    programs = {path.stem for path in WRONG.glob("*.py")}
    assert programs == FOUND.keys() == INPUTS.keys()
    text = quoted(GUIDE)
    for program in programs:
        assert f"`{program}.py`" in text
        for code in FOUND[program]:
            assert f"`{code}`" in text
            assert f"`{code}`" in (WRONG / f"{program}.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("program", CHECKPOINTS)
def test_doctor_names_the_mistake_in_a_checkpoint_by_the_words_of_the_guide(
    program: str, tmp_path: Path
) -> None:
    unpack_tar(ROOT / f"tests/data/wrong/{program}.tar.xz", tmp_path)
    findings = diagnose_checkpoint(str(tmp_path / "checkpoint")).findings
    of_interest = {finding.code: finding for finding in findings if finding.code in CODES}
    assert of_interest.keys() == FOUND[program]
    own = next(
        finding
        for code, finding in of_interest.items()
        if code != "unbounded-state" or len(FOUND[program]) == 1
    )
    said = own.cause.partition(" The program inspect_state")[0]
    assert f'"{said}"' in quoted(GUIDE)
    for finding in of_interest.values():
        for page, anchor in re.findall(r"(docs/guide/[a-z-]+\.md)#([a-z-]+)", finding.hint):
            headings = re.findall(r"^## (.+)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {heading.lower().replace(" ", "-") for heading in headings}


def test_doctor_finds_a_checkpoint_without_a_name_by_the_words_of_the_guide(tmp_path: Path) -> None:
    place = tmp_path / "temporary-01234567-89ab-cdef-0123-456789abcdef"
    (place / "offsets").mkdir(parents=True)
    (place / "metadata").touch()
    (finding,) = check_unnamed(tmp_path)
    assert f'"{finding.cause}"' in quoted(GUIDE)


def doctor(folder: Path, application: Path) -> dict[str, Any]:
    """What doctor says of the job, by code."""
    jobs = folder / "streaming_jobs.toml"
    jobs.write_text(
        f"""
repository = "{folder}/repository"
control = "{folder}/control"

[jobs.job]
application = "{application}"
checkpoint = "{folder}/checkpoint"
""",
        encoding="utf-8",
    )
    answer = streambank("doctor", "--job", "job", "--jobs", jobs, "--json")
    assert answer.code in (0, 1), answer
    return {one["code"]: one for one in answer.document["findings"]}


@pytest.mark.spark
@pytest.mark.storm
@pytest.mark.parametrize("program", FOUND)
def test_as_a_job_each_program_shows_its_mistake_and_no_other(program: str, tmp_path: Path) -> None:
    files = GROWN if program == "unbounded_state" else FILES
    write_input(program, tmp_path / "in", files)
    arguments = ["--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")]
    with Job(tmp_path).driver(WRONG / f"{program}.py", *arguments) as driver:
        wait_for("its batches", lambda: files - 1 in driver.batches("commits") or driver.child.poll(), 400)
        request = driver.control.requests.post("stop", epoch=driver.epoch, by={"user": "me"}, drain=True)
        assert driver.wait() == 0, driver.tail()
        answer = driver.control.requests.answer_to(request.number)
        assert answer is not None and answer["drained"]
    found = doctor(tmp_path, WRONG / f"{program}.py")
    expected = set() if program == "no_checkpoint" else FOUND[program]
    assert found.keys() & CODES == expected
    if program == "unbounded_state":
        assert found["unbounded-state"]["severity"] == "warning"
        assert re.search(
            r"It had \d+ rows after batch 0 .* none was removed", found["unbounded-state"]["cause"]
        )


@pytest.mark.spark
@pytest.mark.storm
def test_without_streambank_the_temporary_checkpoint_is_found(tmp_path: Path) -> None:
    write_input("no_checkpoint", tmp_path / "in")
    (tmp_path / "tmp").mkdir()
    command = submit(
        WRONG / "no_checkpoint.py",
        "--input",
        str(tmp_path / "in"),
        "--output",
        str(tmp_path / "out"),
        conf={"spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={tmp_path / 'tmp'}"},
    )
    with (tmp_path / "log").open("wb") as log:
        child = subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path, env=environment())
    try:
        (commit,) = wait_for("a commit", lambda: [*(tmp_path / "tmp").glob("temporary-*/commits/0")])
        (finding,) = check_unnamed(tmp_path / "tmp")
        assert finding.code == "no-checkpoint-location"
        named = {one.code: one for one in diagnose_checkpoint(str(commit.parent.parent)).findings}
        assert named["no-checkpoint-location"].severity == "error"
    finally:
        child.kill()
        child.wait(30)
