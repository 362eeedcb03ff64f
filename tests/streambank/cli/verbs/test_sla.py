"""The verb `sla`: a table, an exit code, JSON and a page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streambank.cli.output import console
from streambank.cli.verbs import sla
from streambank.declaration.declaration import Job
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.sla.assess import Assessment
from streambank.sla.verdict import Verdict
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.cli import streambank, succeed
from tests.support.jobs.declared import declare
from tests.support.sla.growing_state import grow
from tests.support.sla.progress_records import at

LEAKING = '[jobs.flights.sla]\nstate_bytes = {breach = "3GB"}\n'


def leaking(folder: Path, more: str = LEAKING, **history: Any) -> Job:
    job = declare(folder, more=more)
    LiveCheckpoint(open_store(job.checkpoint), retain=9).run(5)
    grow(job, **{"hours": 24 * 5, "per_hour": 1.2e7, **history})
    return job


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "streaming_jobs.toml"
    monkeypatch.setenv("STREAMBANK_JOBS", str(file))
    monkeypatch.setenv("COLUMNS", "100")
    return file


def test_what_is_not_well_is_explained(tmp_path: Path, jobs: Path) -> None:
    leaking(tmp_path)
    said = succeed("sla", "flights").out
    assert said.startswith("flights: warn, judged at 20")
    rows = {
        line.split()[1]: line.split() for line in said.splitlines() if re.match("(ok|warn|unknown) ", line)
    }
    assert rows["state_bytes"] == ["ok", "state_bytes", "2.44", "GB", "3", "GB"]
    assert rows["time_to_limit"][0] == "warn" and rows["hot_key"][0] == "unknown"
    assert "warn: time_to_limit: state_bytes reaches 3 GB in 1 d" in said
    assert "  what to do: See what the state keeps" in said and "  - Tried 5 times on its own past" in said
    assert "unknown: hot_key: Not measured" in said


def test_a_breach_is_exit_code_1_and_a_muted_one_is_not(tmp_path: Path, jobs: Path) -> None:
    broken = '[jobs.flights.sla]\nstate_bytes = {breach = "2GB"}\n'
    leaking(tmp_path, broken)
    answer = streambank("sla", "flights")
    assert answer.code == 1 and answer.out.startswith("flights: breach")
    row = next(line for line in answer.out.splitlines() if line.startswith("breach "))
    assert re.search(r"2\.44 GB +2 GB +20\d\d-\d\d-\d\d \d\d:\d\d:\d\dZ$", row)
    declare(tmp_path, more=broken + 'mute = {until = 2099-01-01T00:00:00Z, why = "moving"}\n')
    muted = succeed("sla", "flights")
    assert "breach (muted)" in muted.out and "  muted until 2099-01-01T00:00:00.000Z: moving" in muted.out
    assert json.loads(succeed("sla", "flights", "--json").out)["level"] == "ok"


def test_a_checkpoint_alone_has_verdicts_too(tmp_path: Path) -> None:
    LiveCheckpoint(open_store(tmp_path / "orders"), retain=9).run(5)
    said = succeed("sla", tmp_path / "orders").out
    assert said.startswith("orders: unknown") and "savepoint_age" not in said
    said = succeed("sla", tmp_path / "orders", "-r", tmp_path / "repository", "--job", "shop/orders").out
    assert said.startswith("shop: warn") and "There is no savepoint of it." in said


def test_a_checkpoint_without_a_commit_log_is_no_query_that_has_only_begun(tmp_path: Path) -> None:
    live = LiveCheckpoint(open_store(tmp_path / "ck")).run(3)
    for batch in range(3):
        live.store.delete(f"commits/{batch}")
    answer = streambank("sla", tmp_path / "ck")
    assert answer.code == 1
    assert "breach: history: The history cannot be read: commits/2 and all other commits" in answer.out


def test_records_may_be_elsewhere(tmp_path: Path, jobs: Path) -> None:
    job = leaking(tmp_path)
    records = tmp_path / "repository.control/flights/progress/main"
    alone = streambank("sla", tmp_path / "checkpoints/flights", "--history", records, "--json")
    assert {one["objective"]: one for one in alone.document["verdicts"]}["growth"]["level"] == "warn"
    records.rename(tmp_path / "moved")
    other = streambank("sla", job.name, "--history", tmp_path / "moved", "--json")
    assert {one["objective"]: one for one in other.document["verdicts"]}["growth"]["level"] == "warn"
    assert streambank("sla", job.name, "--history", tmp_path / "nothing").code == 1


def test_what_is_neither_a_job_nor_a_checkpoint_is_not_found(tmp_path: Path, jobs: Path) -> None:
    declare(tmp_path)
    answer = streambank("sla", "flihgts")
    assert answer.code == 3 and "neither a declared job nor a checkpoint" in answer.err
    assert "Declared: flights." in answer.err
    (tmp_path / "something").mkdir()
    (tmp_path / "something" / "else").write_text("")
    assert streambank("sla", tmp_path / "something").code == 1, "there, and unreadable"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("flights", "--json", "--watch"), "usage"),
        (("flights", "-r", "x"), "usage"),
        (("flights", "--job", "x"), "usage"),
        (("flights", "--every", "10"), "bad-duration"),
        (("pair", "--history", "x"), "which-query"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    tmp_path: Path, jobs: Path, options: tuple[str, ...], code: str
) -> None:
    declare(tmp_path)
    pair = '\n[jobs.pair]\napplication = "app.py"\ncheckpoint = "pair"\nqueries = ["left", "right"]\n'
    jobs.write_text(jobs.read_text() + pair)
    answer = streambank("sla", *options, "--json")
    assert answer.code == 2 and answer.document["error"] == code


def test_one_query_of_several_can_be_meant(tmp_path: Path, jobs: Path) -> None:
    job = declare(tmp_path, more='queries = ["left", "right"]\n')
    LiveCheckpoint(open_store(job.queries["left"]), retain=9).run(3)
    both = succeed("sla", "flights").out
    assert re.search(r"^ok +left +history", both, re.MULTILINE)
    assert re.search(r"^unknown: history of right: ", both, re.MULTILINE)
    one = json.loads(succeed("sla", "flights/left", "--json").out)
    assert {verdict["query"] for verdict in one["verdicts"]} == {"left"}


def test_watching_judges_until_somebody_ends_it(
    tmp_path: Path, jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaking(tmp_path)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise KeyboardInterrupt

    # Only the verb's own name for it: other threads of this process sleep, too.
    monkeypatch.setattr(sla, "time", SimpleNamespace(sleep=wait))
    answer = streambank("sla", "flights", "--watch", "--every", "2s")
    assert answer.code == 130 and waits == [2.0] * 3
    assert answer.out.count("flights: warn, judged at") == 3 and console.CLEAR not in answer.out


def held(page: Path) -> dict[str, Any]:
    (found,) = re.findall(r'id="sb-held">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)
    return dict(json.loads(found))


def test_a_page_has_verdicts_and_charts(tmp_path: Path, jobs: Path) -> None:
    job = leaking(tmp_path, epochs=3)
    answer = succeed("sla", "flights", "--html", tmp_path / "page.html")
    assert answer.err == f"written: {tmp_path / 'page.html'}\n"
    found = held(tmp_path / "page.html")
    assert found["name"] == "flights" and found["line"] is None
    assert found["parts"]["verdicts"]["level"] == "warn"
    charts = {one["objective"]: one for one in found["parts"]["charts"]["charts"]}
    assert len(charts) >= 7 and charts["state_bytes"]["breach"] == 3e9
    assert len(charts["state_bytes"]["restarts"]) == 2 and charts["state_bytes"]["forecast"]["grows"]
    streambank("sla", job.checkpoint, "--html", tmp_path / "page.html")
    assert held(tmp_path / "page.html")["name"] == "flights"


def test_a_secret_of_the_environment_is_not_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE_PASSWORD", "correct-horse-battery")
    page, checkpoint = tmp_path / "page.html", tmp_path / "ck"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / "0").write_text("")
    streambank("sla", checkpoint, "--job", "shop/correct-horse-battery", "--html", page)
    assert "correct-horse-battery" not in page.read_text(encoding="utf-8") and held(page)["name"] == "shop"


def test_nothing_in_the_terminal_is_trusted(capsys: pytest.CaptureFixture[str]) -> None:
    from streambank.cli.output.verdicts import show

    evil = "no space\x1b]0;owned\x07\nbreach: all is well"
    verdict = Verdict(
        job="flights", query="main", objective="history", level="breach", why=evil, evidence=(evil,), at=at(0)
    )
    show(Assessment(evil, at(0), (verdict,)))
    said = capsys.readouterr().out
    assert "\x1b" not in said and "\x07" not in said and "\nbreach: all" not in said


def test_a_page_that_cannot_be_written_is_an_error(tmp_path: Path, jobs: Path) -> None:
    declare(tmp_path)
    (tmp_path / "file").write_text("")
    answer = streambank("sla", "flights", "--html", tmp_path / "file" / "page.html")
    assert answer.code == 7


def test_a_history_that_cannot_be_read_has_a_page_without_plots(tmp_path: Path, jobs: Path) -> None:
    job = declare(tmp_path)
    job.records().store.write("generation/main/0000000001.json", b"{damaged")
    answer = streambank("sla", "flights", "--html", tmp_path / "page.html")
    charts = held(tmp_path / "page.html")["parts"]["charts"]
    assert answer.code == 1 and charts["charts"] == [] and charts["unreadable"]


def test_input_that_is_gone_is_a_breach_that_says_what_to_do(
    tmp_path: Path, jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambank.inputs.files._written_ms", lambda uri: None)
    job = declare(tmp_path, more='[jobs.flights.sla]\nreplayable_for = {warn = "2d", breach = "12h"}\n')
    live = LiveCheckpoint(open_store(job.checkpoint), retain=9).run(3)
    repository = Repository.open(open_store(job.repository), create=True)
    take(TakeRequest(open_store(job.checkpoint), repository, "flights"))
    assert "Nothing limits how long" in succeed("sla", "flights", "--json").out
    live.run(2)
    answer = streambank("sla", "flights")
    assert answer.code == 1 and "breach: replayable_for: Part of the input after" in answer.out
    assert "what to do: Take a savepoint now" in answer.out
