"""An order on a savepoint's state, handed to its own Spark: what goes in, comes back, and is left."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import RefusedError, StorageError
from streambank.driver.installed import Installation
from streambank_spark.submit.executor import SparkExecutor
from streambank_spark.submit.state_change import submit_rewrite
from streambank_spark.submit.submission import JAVA_OPTIONS, with_deep_stack
from tests.support.paths import ROOT
from tests.support.refuses import refuses

PLAN: dict[str, Any] = {
    "repository": "file:///savepoints",
    "job": "orders",
    "savepoint": "b000007-5c0ffee5a9d2",
    "order": {"operation": "compact", "where": "key.secret_of_a_customer = 1"},
    "work": None,
    "by": {"user": "ann"},
}
FAKE = """#!{python}
import json, os, sys, time
arguments = sys.argv[1:]
def after(name):
    return arguments[arguments.index(name) + 1]
conf = open(after("--properties-file")).read()
plan = json.load(open(after("--plan")))
with open({seen!r}, "w") as seen:
    json.dump([arguments, plan, conf, os.getpid()], seen)
print("WARN what nobody wants to read")
print("streambank: Looking for ", end="", flush=True)
time.sleep(0.5)
print("rows to remove", flush=True)
if "spark.fake=silent" in conf:
    print("java.lang.OutOfMemoryError")
    sys.exit(1)
if "spark.fake=endless" in conf:
    time.sleep(600)
answer = {{"savepoint": "b000007-0ddba11c0ffe"}}
if "spark.fake=refuses" in conf:
    refusal = {{"error": "no-key", "kind": "RefusedError", "message": "No.", "hint": "Begin again."}}
    answer = {{"error": refusal}}
json.dump(answer, open(after("--report"), "w"))
"""


class Fake:
    """A spark-submit of the tests' own, and what it was given."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.seen = folder / "seen.json"
        self.said: list[str] = []
        script = folder / "home" / "bin" / "spark-submit"
        script.parent.mkdir(parents=True)
        script.write_text(FAKE.format(python=sys.executable, seen=str(self.seen)))
        script.chmod(0o755)
        home = Installation(sys.executable, folder / "home", ROOT / "spark_jobs" / "run_query.py", ())
        patch.setattr("streambank_spark.submit.executor.find_installation", lambda: home)
        patch.setattr("tempfile.tempdir", str(folder / "tmp"))
        (folder / "tmp").mkdir()

    def submit(self, conf: Mapping[str, str], **options: Any) -> dict[str, Any]:
        return submit_rewrite(PLAN, SparkExecutor("local[1]", conf, say=self.said.append, **options))

    @property
    def left(self) -> list[str]:
        """What is left in temporary folders."""
        return [path.name for path in (self.folder / "tmp").rglob("*") if path.is_file()]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    return Fake(tmp_path, monkeypatch)


def test_a_plan_goes_in_and_a_report_comes_back(fake: Fake, tmp_path: Path) -> None:
    properties = tmp_path / "secret.conf"
    properties.write_text("spark.hadoop.fs.s3a.secret.key=hunter2\n")

    assert fake.submit({"spark.driver.memory": "2g"}, properties=properties) == {
        "savepoint": "b000007-0ddba11c0ffe"
    }

    arguments, plan, conf, _ = json.loads(fake.seen.read_text())
    assert plan == PLAN
    assert "hunter2" in conf and "spark.driver.memory=2g" in conf
    assert "hunter2" not in str(arguments) and "secret_of_a_customer" not in str(arguments)
    assert arguments[arguments.index("--owner") + 1] == str(os.getpid())
    entry = next(each for each in arguments if each.endswith(".py"))
    assert entry == str(ROOT / "spark_jobs" / "rewrite_state.py")
    assert fake.said[1:] == ["Looking for rows to remove"], "a line that came in two parts, and no other"
    assert fake.left == []


def test_what_it_refuses_is_refused(fake: Fake) -> None:
    with pytest.raises(RefusedError) as caught:
        fake.submit({"spark.fake": "refuses"})
    assert (caught.value.code, caught.value.message, caught.value.hint) == ("no-key", "No.", "Begin again.")
    assert fake.left == []


@pytest.mark.storm
def test_a_spark_that_says_nothing_has_failed_and_its_log_stays(fake: Fake) -> None:
    with refuses(StorageError, "spark-failed") as caught:
        fake.submit({"spark.fake": "silent"})
    (log,) = (fake.folder / "tmp").rglob("spark.log")
    assert str(log) in caught.value.message and "OutOfMemoryError" in log.read_text()
    assert stat.S_IMODE(log.parent.stat().st_mode) == 0o700
    assert fake.left == ["spark.log"]


@pytest.mark.storm
def test_who_leaves_early_ends_it(fake: Fake) -> None:
    def interrupt(text: str) -> None:
        if text.startswith("Looking"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        submit_rewrite(PLAN, SparkExecutor("local[1]", {"spark.fake": "endless"}, say=interrupt))
    pid = json.loads(fake.seen.read_text())[3]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert fake.left == []


@pytest.mark.parametrize(
    ("given", "options"),
    [("", "-Xss8m"), ("-XX:+UseSerialGC", "-XX:+UseSerialGC -Xss8m"), ("-Xss64m", "-Xss64m")],
)
def test_a_stack_is_deep_enough_unless_somebody_says_how_deep(given: str, options: str) -> None:
    conf = {JAVA_OPTIONS: given} if given else {}
    assert with_deep_stack(conf)[JAVA_OPTIONS] == options
