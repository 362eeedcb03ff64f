"""How long one DAG run takes that judges many jobs in one task, in a separate process.

    python -m bench.judging_run JOBS

The jobs are those of bench/judging.py, declared in a jobs file; the DAG has one `CheckSlaOperator` for all of
them and is run by `airflow dags test` on a separate database. One line of JSON comes out: seconds, memory
in MB, and what the task gave.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.judging import BATCHES, made_up_jobs
from bench.tree import environment
from streambank.declaration.declaration import Job

DAG = """
import json
from pathlib import Path

from airflow.sdk import DAG, task

from streambank_airflow.operators.sla import CheckSlaOperator

with DAG("judge_all", schedule=None):
    found = CheckSlaOperator(task_id="check", jobs="all", jobs_file={jobs!r}, on_breach="report")

    @task
    def keep(result):
        kept = {{name: result[name] for name in ("jobs", "level", "not_judged")}}
        Path({answer!r}).write_text(json.dumps(kept))

    keep(found.output)
"""


def main(count: int) -> dict[str, Any]:
    """Run it twice, as the first run keeps hours of the jobs' histories."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        declared, answer = folder / "streaming_jobs.toml", folder / "answer.json"
        jobs = made_up_jobs(folder, count)
        for job in jobs:  # a declared job has its own checkpoint; these have another name for the one
            (folder / job.name).symlink_to(folder / "checkpoint", target_is_directory=True)
        places = f"repository = {jobs[0].repository!r}\n\n" + "".join(
            _declared(job, folder / job.name) for job in jobs
        )
        declared.write_text(places, encoding="utf-8")
        dags = folder / "dags"
        dags.mkdir()
        (dags / "judge_all.py").write_text(DAG.format(jobs=str(declared), answer=str(answer)))
        airflow = Airflow(folder / "airflow", dags)
        airflow.run("db", "migrate")
        airflow.run("dags", "reserialize")
        said: dict[str, Any] = {"jobs": count, "batches": BATCHES}
        for what in ("first", "again"):
            answer.unlink(missing_ok=True)
            before, began = _children(), time.perf_counter()
            airflow.run("dags", "test", "judge_all")
            after = _children()
            said |= {
                f"{what}_s": time.perf_counter() - began,
                f"{what}_cpu_s": after[0] - before[0],
                f"{what}_mb": after[1],
                "result": json.loads(answer.read_text(encoding="utf-8")),
            }
        return said


class Airflow:
    """Airflow's command line on a separate home.

    Args:
        home: Its home.
        dags: Its DAGs.
    """

    def __init__(self, home: Path, dags: Path) -> None:
        self._environment = environment(
            AIRFLOW_HOME=str(home),
            AIRFLOW__CORE__DAGS_FOLDER=str(dags),
            AIRFLOW__CORE__LOAD_EXAMPLES="false",
            AIRFLOW__LOGGING__LOGGING_LEVEL="ERROR",
        )

    def run(self, *arguments: str) -> None:
        """Run a command."""
        command: Sequence[str] = (sys.executable, "-m", "airflow", *arguments)
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"airflow {' '.join(arguments)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")


def _declared(job: Job, checkpoint: Path) -> str:
    return f"[jobs.{job.name}]\napplication = {job.application!r}\ncheckpoint = {str(checkpoint)!r}\n\n"


def _children() -> tuple[float, float]:
    """Seconds of a processor of all children that have ended, and the highest memory of one, in MB."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1000


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))
