"""The story itself: Airflow starts, the job runs, two savepoints, a disaster, a restore, and the proof."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from demo import processes
from demo.job import CommittedBatch, FlightsJob, WaitedTooLongError
from demo.places import ROOT, Places
from demo.report import Report, SavepointFigures, size
from demo.rest import Airflow, LateRunError
from demo.screen import Screen
from streambank.repository.catalog import SavepointSummary
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank.storage import open_store

JOB = "flights"
REPLAY_DAG = "flights.replay"
ROWS_PER_FILE = 6000
FILES_MS = 1200  # between two input files: the replay takes a good minute
WATERMARK_HOURS = 6 * 24  # as in streaming_jobs.toml
# The first savepoint is taken when the job is well under way, the second soon after, then comes the disaster.
FIRST_SAVEPOINT_AT = 10
SECOND_SAVEPOINT_AFTER = 5
DISASTER_AFTER = 4
AT_THE_STOP = "at the stop"
DRILL_S = 300.0
READING_S = 2.0  # the person reads before approving; it counts as recovery time


@dataclass(slots=True)
class Story:
    """Tells the story of one demo; every chapter leaves its figures in the report.

    Attributes:
        places: The demo's folders.
        airflow: Its Airflow, which may still be starting.
        screen: Where it is told.
        check: Raises when something the story rests on is gone; called in every wait.
        patience: How many times as long as usual anything may take.
    """

    places: Places
    airflow: Airflow
    screen: Screen
    check: Callable[[], None] = lambda: None
    report: Report = field(default_factory=Report)
    run_of_replay: str = ""
    disaster_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    last_before: CommittedBatch | None = None
    patience: float = 1.0

    @property
    def repository(self) -> str:
        """Where the savepoints are."""
        return str(self.places.repository)

    @property
    def job(self) -> FlightsJob:
        """The flights job."""
        return FlightsJob(JOB, f"{self.repository}.control")

    def wait_for_airflow(self, timeout_s: float = 240) -> None:
        """Until all four processes are healthy and the DAGs are parsed."""
        timeout_s *= self.patience
        deadline = time.monotonic() + timeout_s
        wanted = {f"{JOB}.{verb}" for verb in ("run", "stop", "savepoint", "restore", "drill")} | {REPLAY_DAG}
        found: set[str] = set()
        with self.screen.step("Airflow starts: api-server, scheduler, dag-processor, triggerer") as step:
            while not self.airflow.is_healthy() or not wanted <= (found := set(self.airflow.dags())):
                self.check()
                if time.monotonic() > deadline:
                    problems = "\n".join(self.airflow.import_errors()) if self.airflow.is_healthy() else ""
                    raise WaitedTooLongError(
                        f"Airflow is not ready after {timeout_s:.0f} s; DAGs: {sorted(found)}\n{problems}"
                    )
                time.sleep(0.5)
            for dag_id in wanted:
                self.airflow.unpause(dag_id)
            step.detail = f"healthy, {len(found)} DAGs"

    def start_the_job(self, *, rows_per_file: int = ROWS_PER_FILE, gap_ms: int = FILES_MS) -> None:
        """Flights begin to arrive, and the job that reads them starts by its DAG."""
        with self.screen.step(f"The flights of 2013 arrive, and {JOB}.run starts the job") as step:
            conf = self.replay_conf(rows_per_file, gap_ms)
            self.run_of_replay = self.airflow.trigger(REPLAY_DAG, conf)
            run = self.airflow.trigger(f"{JOB}.run")
            self.airflow.wait_for_task(
                f"{JOB}.run", run, "start", timeout_s=300 * self.patience, meanwhile=self.check
            )
            driver = " and ".join(f"{one.role} {one.pid}" for one in self.job.driver())
            last = self.job.last_commit()
            step.detail = f"driver {driver}, batch {last.number if last else '-'} committed"

    def replay_conf(self, rows_per_file: int, gap_ms: int) -> dict[str, Any]:
        """What the DAG that lets the flights arrive is told: here, which folder they come to."""
        target = str(self.places.data / "input")
        return {"target": target, "rows_per_file": rows_per_file, "gap_ms": gap_ms}

    def take_savepoint(self, title: str, kind: str, at_batch: int) -> SavepointFigures:
        """Trigger the savepoint DAG once a batch is committed, while the job goes on."""
        with self.screen.step(f"{title}: {JOB}.savepoint takes and verifies it while batches go on") as step:
            self.job.wait_for_batch(at_batch, timeout_s=180 * self.patience, meanwhile=self.check)
            run = self.airflow.trigger(f"{JOB}.savepoint", {"note": title})
            self.airflow.wait(f"{JOB}.savepoint", run, timeout_s=120 * self.patience, meanwhile=self.check)
            took = self.airflow.result(f"{JOB}.savepoint", run, "take")
            figures = self._figures(str(took["savepoint"]), kind)
            step.detail = (
                f"{figures.savepoint} holds {size(figures.bytes)} in {figures.files} files; moved "
                f"{size(figures.new_bytes)}, {size(figures.saved_bytes)} were there already; "
                f"the take itself {figures.seconds:.2f} s{figures.source and f'; {figures.source}'}"
            )
        return figures

    def _figures(self, savepoint: str, kind: str) -> SavepointFigures:
        """What the manifest says about a savepoint; kept for the report."""
        manifest = Repository.open(open_store(self.repository)).load(JOB, savepoint)
        figures = SavepointFigures(
            savepoint=savepoint,
            batch=manifest.batch,
            kind=kind,
            files=manifest.file_count,
            bytes=manifest.bytes,
            new_bytes=int(manifest.stats["new_bytes"]),
            seconds=float(manifest.stats["seconds"]),
            replans=int(manifest.stats["replans"]),
            source=self.source_of(manifest),
        )
        self.report.savepoints.append(figures)
        return figures

    def source_of(self, manifest: Manifest) -> str:
        """What a savepoint says of its input that is worth telling; here it reads files, and nothing is."""
        return ""

    def disaster(self, at_batch: int) -> None:
        """Destroy the checkpoint and kill the driver, both of its processes, without warning."""
        with self.screen.step("Disaster: the checkpoint is deleted and the driver killed (-9)") as step:
            self.last_before = self.job.wait_for_batch(
                at_batch, timeout_s=120 * self.patience, meanwhile=self.check
            )
            self.disaster_at = datetime.now(UTC)
            checkpoint = self.job.checkpoint()
            name, files = self.job.destroy_checkpoint()
            killed = self.job.kill_driver()
            self.job.delete_rest(checkpoint)  # what it wrote until then
            step.detail = (
                f"{files} files of {name} are deleted; killed: {' and '.join(killed) or 'no process'}"
            )
        if not killed:
            raise WaitedTooLongError("there was no driver to kill, so the story proves nothing")

    def restore(self) -> None:
        """Trigger the restore DAG, read its plan, approve it as a person would, wait for the first batch."""
        dag_id = f"{JOB}.restore"
        with self.screen.step(f"{dag_id} is triggered; it shows its plan and waits for a person") as step:
            run = self.airflow.trigger(dag_id, {"sink": "rollback", "note": "checkpoint destroyed"})
            self.airflow.wait_for_task(
                dag_id,
                run,
                "approve",
                timeout_s=120 * self.patience,
                states=frozenset({"awaiting_input", "deferred"}),
                meanwhile=self.check,
            )
            plan = self.airflow.result(dag_id, run, "plan")
            (question,) = self.airflow.open_questions(dag_id, run)
            step.detail = f"savepoint {plan['savepoint']}, batch {plan['batch']}"
            if said := plan.get("source_effect"):
                self.report.source_effect = f"{said} {plan['replayable_effect']}".strip()
        self.screen.say_more(f"{question['subject']}\n{_plain(str(question['body']))}")
        time.sleep(READING_S)
        self.report.approval_s = round((datetime.now(UTC) - self.disaster_at).total_seconds(), 1)
        with self.screen.step(
            "Approved over the API; a new generation is written and the job is started"
        ) as step:
            self.airflow.wait_for_task(
                dag_id,
                run,
                "start",
                timeout_s=300 * self.patience,
                meanwhile=lambda: self._approve(dag_id, run),
            )
            done = self.airflow.result(dag_id, run, "restore")
            step.detail = f"generation {done['generation']}, continues after batch {done['batch']}"
        self._note_recovery(plan, done)

    def _approve(self, dag_id: str, run: str) -> None:
        """Answer whenever the question is open.

        Airflow asks again where an answer came before its scheduler had noticed that the task waits: it takes
        the task for a failed one then, and retries it.
        """
        self.check()
        for question in self.airflow.open_questions(dag_id, run):
            self.airflow.answer(dag_id, run, question["task_instance"]["task_id"], "Approve")

    def _note_recovery(self, plan: dict[str, Any], done: dict[str, Any]) -> None:
        batch = int(done["batch"])
        resumed_at = self.job.commit(batch + 1).at
        taken_at = datetime.fromisoformat(str(plan["taken_at"]))
        report = self.report
        report.restored, report.restored_batch = str(done["savepoint"]), batch
        report.lost_batches = (self.last_before.number if self.last_before else batch) - batch
        report.rpo_s = round((self.disaster_at - taken_at).total_seconds(), 1)
        report.rto_s = round((resumed_at - self.disaster_at).total_seconds(), 1)
        self.screen.say(
            f"The savepoint was {report.rpo_s} s old (RPO); batch {batch + 1} is committed again "
            f"{report.rto_s} s after the disaster (RTO)"
        )

    def to_the_end(self) -> None:
        """Wait until all flights have arrived, and until the job has written every row that is due."""
        with self.screen.step("The job goes on to the end of the replay") as step:
            self.airflow.wait(
                REPLAY_DAG, self.run_of_replay, timeout_s=300 * self.patience, meanwhile=self.check
            )
            last = self._until_all_is_written()
            step.detail = f"batch {last.number if last else '-'}, {self.report.rows['found']} rows written"
        self._judge()

    def _until_all_is_written(self) -> CommittedBatch | None:
        """Compare until every row is there, for as long as the job goes on committing batches."""
        while True:
            before = self.job.last_commit()
            self.report.rows = self._compare(within_s=120 * self.patience)
            last = self.job.last_commit()
            if self.report.rows["equal"] or self.report.rows["surplus"] or last == before:
                return last

    def rehearse(self, *, late_is_fine: bool = False) -> None:
        """Trigger the drill DAG: the next disaster is rehearsed on a copy, while the job runs on.

        Args:
            late_is_fine: Go on with the story where the drill takes long; Airflow has its result later.
        """
        dag_id = f"{JOB}.drill"
        timeout_s = DRILL_S * self.patience
        with self.screen.step(f"{dag_id} rehearses a restore on a copy, beside the running job") as step:
            run = self.airflow.trigger(dag_id, {})
            try:
                self.airflow.wait(dag_id, run, timeout_s=timeout_s, meanwhile=self.check)
            except LateRunError:
                if not late_is_fine:
                    raise
                step.detail = (
                    f"still runs after {timeout_s:.0f} s; its result: {self.airflow.url}/dags/{dag_id}"
                )
                return
            done = self.airflow.result(dag_id, run, "drill")
            (query,) = done["queries"]
            report = self.report
            report.drill_rto_s, report.drill_batches = float(done["rto_s"]), int(query["batches"])
            report.drill_steps = {name: float(took) for name, took in done["steps"].items()}
            report.drill_state_equal = bool(query["state_equal"])
            step.detail = (
                f"passed: savepoint {query['savepoint']}; {report.drill_batches} batches and the state after "
                f"them are as in the live job; a restore takes {report.drill_rto_s:.1f} s (RTO)"
            )
        if not report.drill_state_equal or not report.drill_batches:
            raise WaitedTooLongError(f"the drill compared nothing: {query['not_compared']}")

    def stop_the_job(self) -> None:
        """Stop it by its DAG, at a batch boundary, with a savepoint."""
        dag_id = f"{JOB}.stop"
        with self.screen.step(
            f"The end: {dag_id} stops the job at a batch boundary, with a savepoint"
        ) as step:
            run = self.airflow.trigger(dag_id, {"savepoint": True, "note": "the end"})
            self.airflow.wait(dag_id, run, timeout_s=180 * self.patience, meanwhile=self.check)
            if self.job.driver():
                raise WaitedTooLongError("the driver is still running after the stop")
            last = max(Repository.open(open_store(self.repository)).manifests(JOB), key=_batch_of)
            figures = self._figures(last.savepoint, AT_THE_STOP)
            step.detail = f"no driver left; {figures.savepoint} holds batch {figures.batch}"

    def prove(self) -> None:
        """Compare every row of the output with a batch computation over the same input."""
        with self.screen.step("The proof: output compared with a batch computation, row by row") as step:
            self.report.rows = self._compare(within_s=0)
            step.detail = f"{self.report.rows['found']} of {self.report.rows['expected']} rows"
        self._judge()

    def _judge(self) -> None:
        rows = self.report.rows
        if not rows["equal"]:
            raise WaitedTooLongError(
                f"the output differs from the batch computation: {rows['missing']} rows missing, "
                f"{rows['surplus']} too many; {rows['missing_sample']} {rows['surplus_sample']}"
            )

    def judging_command(self, within_s: float) -> list[str]:
        """What compares the output with a batch computation over the same input, and tells it as JSON."""
        return [
            *(sys.executable, str(ROOT / "spark_jobs" / "flights" / "expected.py"), "hourly_delays"),
            *("--input", str(self.places.data / "input"), "--output", str(self.places.data / "output")),
            *("--watermark-hours", str(WATERMARK_HOURS), "--within", str(within_s)),
        ]

    def _compare(self, within_s: float) -> dict[str, Any]:
        command = self.judging_command(within_s)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
            while running.poll() is None:
                self.check()
                time.sleep(0.2)
            assert running.stdout is not None
            told = running.stdout.read()
        if not told:  # it has said why on stderr, which is ours
            raise WaitedTooLongError(
                f"the comparison with a batch computation ended with {running.returncode}"
            )
        answer: dict[str, Any] = json.loads(told)
        return answer

    def look_around(self, root: int) -> None:
        """Where the demo's processes listen, and what there is to click."""
        found = processes.listening(processes.descendants(root))
        self.report.listening = sorted(f"{address}:{port}" for address, port in found)
        outside = [address for address in self.report.listening if not address.startswith("127.")]
        if outside:
            raise WaitedTooLongError(f"something listens beyond loopback: {', '.join(outside)}")
        url = self.airflow.url
        self.report.where_to_click = {
            "All DAGs of the job": f"{url}/dags?tags={JOB}",
            "The restore, with plan and approval": f"{url}/dags/{JOB}.restore",
            "Take a savepoint by hand (Trigger)": f"{url}/dags/{JOB}.savepoint",
            "Savepoints as asset events": f"{url}/assets",
            "Login": f"{self.airflow.user} / {self.airflow.password}",
        }


def _batch_of(summary: SavepointSummary) -> int:
    return -1 if summary.batch is None else summary.batch


def _plain(markdown: str) -> str:
    """A two-column Markdown table as aligned lines."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in markdown.splitlines()]
    kept = [row for row in rows if any(row) and not set("".join(row)) <= set("-: ")]
    width = max((len(row[0]) for row in kept if len(row) > 1), default=0)
    return "\n".join(f"{row[0]:<{width}}  {' '.join(row[1:])}".rstrip() for row in kept)
