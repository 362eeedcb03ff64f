"""A spark-submit of the tests' own: it does what the plan says, without a JVM, or what a test asks of it.

The property `spark.fake` chooses: `endless` never ends, `dead` kills itself, `silent` ends at once,
`forgetful` leaves out the last portion and says that it has done all, `purge` deletes the file `spark.victim`
first.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from streambank.driver.installed import Installation
from tests.support.paths import ROOT

FAKE = """#!{python}
import json, os, sys, time
sys.path.insert(0, {provider!r})
arguments = sys.argv[1:]
def after(name):
    return arguments[arguments.index(name) + 1]
conf = open(after("--properties-file")).read()
with open({seen!r}, "w") as seen:
    mode = os.stat(after("--properties-file")).st_mode
    json.dump([arguments, dict(os.environ), conf, mode, os.getpid()], seen)
print("this is what Spark says", flush=True)
from streambank.work.plan_lines import run_portion
header, *portions = open(after("--plan")).read().splitlines()
with open(after("--report"), "a") as report:
    for portion in portions:
        if "spark.fake=silent" in conf:
            sys.exit(0)
        if "spark.fake=endless" in conf:
            time.sleep(600)
        if "spark.fake=purge" in conf:
            for line in conf.splitlines():
                if line.startswith("spark.victim="):
                    path = line.partition("=")[2]
                    if os.path.exists(path):
                        os.unlink(path)
        if "spark.fake=dead" in conf:
            os.kill(os.getpid(), 9)
        if "spark.fake=forgetful" in conf and portion == portions[-1]:
            continue
        lines = run_portion(header, portion)
        # A report grows while it is read, and not by whole lines.
        for line in lines:
            report.write(line[:10]); report.flush()
            report.write(line[10:] + "\\n"); report.flush()
    report.write(json.dumps({{"end": True}}) + "\\n")
"""


def fake_spark(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """Let everything be submitted to it.

    Returns:
        A file that will hold what it was given: arguments, environment, properties, their mode, its pid.
    """
    home = folder / "spark"
    (home / "bin").mkdir(parents=True)
    script = home / "bin" / "spark-submit"
    seen = folder / "seen.json"
    script.write_text(FAKE.format(python=sys.executable, provider=str(ROOT / "provider"), seen=str(seen)))
    script.chmod(0o755)
    installation = Installation(sys.executable, home, ROOT / "spark_jobs" / "run_query.py", ())
    patch.setattr("streambank_spark.submit.executor.find_installation", lambda: installation)
    patch.setattr("tempfile.tempdir", str(folder))
    return seen
