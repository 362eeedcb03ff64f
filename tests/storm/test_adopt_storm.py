"""docs/howto/adopt.md does what it says, command for command, with a query that spark-submit started."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.spark.sessions import BUILD_CONF
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.storm]

PAGE = ROOT / "docs/howto/adopt.md"
CONF = {**BUILD_CONF, "spark.driver.memory": "700m"}


def blocks(language: str) -> list[str]:
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def rows(folder: Path) -> list[str]:
    """What a reader of the sink sees, by its log."""
    log = folder / "out/_spark_metadata"
    if not log.is_dir():
        return []
    newest = max((one for one in log.iterdir() if one.name.endswith(".compact")), default=None)
    entries = [newest] if newest else []
    first = int(newest.name.partition(".")[0]) if newest else -1
    entries += [one for one in log.iterdir() if one.name.isdecimal() and int(one.name) > first]
    files = {
        json.loads(line)["path"].removeprefix("file://")
        for entry in entries
        for line in entry.read_text().splitlines()[1:]
    }
    texts = [Path(one).read_text() for one in sorted(files)]
    return [json.loads(line)["value"] for text in texts for line in text.splitlines()]


def arrive(folder: Path, *names: str) -> None:
    for name in names:
        (folder / f"{name}.new").write_text(f"{name}\nalways\n")
        (folder / f"{name}.new").rename(folder / "in" / name)


def wait_rows(folder: Path, *names: str) -> None:
    wait_for(f"rows {names}", lambda: Counter(rows(folder)) == Counter([*names, "always"]))


def test_the_page(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "lines.py").write_text(blocks("python")[0])
    # Beside what the page says: settings by which Spark starts quickly here.
    conf = "\n".join(
        f"{json.dumps(name)} = {json.dumps(value)}" for name, value in CONF.items() if name != "spark.master"
    )
    declared = f'{blocks("toml")[0]}master = "local[2]"\n[jobs.lines.spark]\n{conf}\n'
    (tmp_path / "streaming_jobs.toml").write_text(declared)
    scripts = Path(sys.executable).parent
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("STREAMBANK_")
    } | {
        "PATH": f"{scripts}:{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
    }
    given = [word for name, value in CONF.items() for word in ("--conf", f"{name}={value}")]
    with (tmp_path / "query.log").open("wb") as log:
        query = subprocess.Popen(
            [scripts / "spark-submit", *given, "lines.py"],
            cwd=tmp_path, env=environment, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    (tmp_path / "query.pid").write_text(str(query.pid))

    def run(command: str) -> str:
        answer = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert answer.returncode == 0, f"{command}: {answer.stdout}{answer.stderr}"
        return answer.stdout

    commands = [
        line[2:] for block in blocks("console") for line in block.splitlines() if line.startswith("$ ")
    ]
    try:
        arrive(tmp_path, "a", "b")
        wait_rows(tmp_path, "a", "b")
        query_id = json.loads((tmp_path / "checkpoint/metadata").read_text())["id"]
        shutil.copytree(tmp_path / "checkpoint", tmp_path / "backup")
        said = ""
        for command in commands:
            if command.startswith("while"):
                query.wait(60)
            elif command.startswith("streambank job start"):
                arrive(tmp_path, "d")
            said += run(command)
            if command.startswith("streambank take") and "before" in command:
                arrive(tmp_path, "c")
                wait_rows(tmp_path, "a", "b", "c")
        wait_rows(tmp_path, "a", "b", "c", "d")
        assert json.loads((tmp_path / "checkpoint/metadata").read_text())["id"] == query_id
        assert not [*tmp_path.glob("checkpoint.g*")], "it goes on in the same directory"
        status = json.loads(run("streambank job status lines --jobs streaming_jobs.toml --json"))
        assert (status["state"], status["queries"]["main"]["generation"]) == ("running", 1)
        saved = json.loads(run("streambank list -r savepoints --job lines --json"))
        notes = {one.get("note") for one in (saved if isinstance(saved, list) else saved["savepoints"])}
        assert {"before Streambank runs it", "stopped"} <= notes
        assert "adopted" in said, "the history says why"
    finally:
        subprocess.run(
            ["bash", "-c", "streambank job stop lines --jobs streaming_jobs.toml --force-after 30s"],
            cwd=tmp_path, env=environment, capture_output=True, timeout=200, check=False,
        )  # fmt: skip
        if query.poll() is None:
            query.kill()
            query.wait(30)

    # And it goes back, to where it was when it was first saved.
    run("streambank verify latest -r savepoints --job lines --level full")
