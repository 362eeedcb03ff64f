"""Handing an order on a savepoint's state to its own Spark: spark-submit gets `rewrite_state.py`.

For who has no JVM and wants none, such as an Airflow worker. What goes in is a plan and what comes back is a
report, as files (rewrite_state.py); the application ends when whoever asked is gone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from streambank.core.errors import StorageError
from streambank.core.json_text import loads
from streambank.driver.installed import entry_path
from streambank.storage import scheme_of
from streambank.work.plan_lines import read_error
from streambank_spark.submit.bundle import PACKAGES, write_bundle, write_packages
from streambank_spark.submit.executor import LOG, POLL_S, SparkExecutor, submit_folder, write_properties
from streambank_spark.submit.submission import JAVA_OPTIONS, Submission, with_deep_stack

ENTRY = "rewrite_state.py"
SAID = "streambank: "
"""How lines of the log begin that a person wants to see while it runs."""
_NEEDED = ("blake3", "lz4", "xxhash")


def submit_rewrite(plan: Mapping[str, Any], spark: SparkExecutor) -> dict[str, Any]:
    """Carry out a plan elsewhere, and wait for it.

    Args:
        plan: As `rewrite_state.py` takes it: `repository`, `job`, `savepoint`, `order`, `work`, `by`,
            `search`.

    Returns:
        The report: what `streambank state compact --json` prints.

    Raises:
        StorageError: Spark did not do it (code `spark-failed`); the message names its log.
    """
    installation = spark.submits()
    conf = with_deep_stack(spark.conf) if JAVA_OPTIONS in spark.conf else spark.conf
    with submit_folder() as folder:
        source, report, log = folder / "plan.json", folder / "report.json", folder / LOG
        source.write_text(json.dumps(dict(plan)), encoding="utf-8")
        submission = Submission(
            installation=installation,
            master=spark.master,
            name=f"streambank {plan['order']['operation']} {plan['job']}",
            entry=entry_path(ENTRY),
            arguments=("--plan", str(source), "--report", str(report), "--owner", str(os.getpid())),
            # The user's file counts more than a default, and less than the user's options.
            properties=write_properties(
                folder, installation, spark.properties, conf, with_deep_stack({}), {}
            ),
            py_files=write_bundle(folder / "streambank.zip"),
            archives=f"{write_packages(folder / 'packages.zip', _packages(plan))}#{PACKAGES}",
            log=log,
        )
        output = spark.output or str(log)
        spark.say(f"{plan['order']['operation']}: submitted to Spark at {spark.master}; its output: {output}")
        log.touch()
        with log.open(encoding="utf-8", errors="replace") as lines, spark.submit(submission) as running:
            rest = ""
            while running.wait(POLL_S) is None:
                rest = _tell(rest + lines.read(), spark)
            _tell(rest + lines.read() + "\n", spark)
        return _answer(report, spark.master, output)


def _packages(plan: Mapping[str, Any]) -> list[str]:
    """What is installed here and not everywhere: some repositories, and some state, do without."""
    names = [name for name in _NEEDED if find_spec(name) is not None]
    replicas = (plan.get("search") or {}).get("replicas", ())
    places = (str(plan["repository"]), str(plan.get("work") or ""), *replicas)
    return [*names, "boto3"] if any(scheme_of(place) in ("s3", "s3a") for place in places) else names


def _tell(text: str, spark: SparkExecutor) -> str:
    """Say what of it is for people; the line that is not whole yet."""
    *lines, rest = text.split("\n")
    for line in lines:
        if line.startswith(SAID):
            spark.say(line.removeprefix(SAID))
    return rest


def _answer(report: Path, master: str, output: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = loads(report.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StorageError(
            f"Spark at {master} ended without a report. Its output is in {output}.",
            code="spark-failed",
            hint="Read the log, and try again: nothing was changed.",
        ) from error
    if "error" in found:
        raise read_error(found["error"])
    return found
