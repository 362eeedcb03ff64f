"""The verb `upgrade`, as a person reads it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.cli import streambank
from tests.support.jobs.managed_job import managed_job
from tests.support.jobs.upgraded_job import deploy


@pytest.mark.storm
def test_what_a_person_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with managed_job(tmp_path, monkeypatch) as managed:
        verb = ("upgrade", "flights", "--jobs", managed.jobs_file)
        managed.hangs.write_text("8", encoding="utf-8")
        managed.start(until=7)
        assert streambank(*verb, "--history").out == "no upgrade yet\n"
        assert "runs what is asked for already" in streambank(*verb, "--plan").out
        deploy(managed)
        planned = streambank(*verb, "--plan", "--conf", "spark.a=1")
        assert planned.code == 0
        assert planned.out.startswith("job flights would be upgraded\n")
        assert re.search("^changes +the program in ", planned.out, re.MULTILINE)
        assert "the setting spark.a is new" in planned.out
        managed.differs.touch()
        refused = streambank(*verb, "--compare", "values")
        assert refused.code == 1
        assert refused.out.startswith("job flights was NOT upgraded; its old code runs on\nwhy ")
        assert " The step compare failed: The copy did not" in refused.out
        assert re.search("^differs +the output of batch", refused.out, re.MULTILINE)
        assert "rehearsing the new code on a copy" in refused.err
        status = streambank("job", "status", "flights", "--jobs", managed.jobs_file).out
        assert "An upgrade has chosen the code of" in status
        done = streambank(*verb, "--watch", "1s")
        assert done.code == 0, done
        assert done.out.startswith("job flights is upgraded\n")
        assert (
            re.search("^savepoint of main +b0000", done.out, re.MULTILINE)
            and "without processing" in done.out
        )
        history = streambank(*verb, "--history").out
        assert history.index("upgraded") < history.index("refused")
