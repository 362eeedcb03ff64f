"""A night: its own job, what a person does in it through Airflow, and all that is needed to judge it."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo.job import FlightsJob
from demo.rest import RestError
from streambank.control.control import JobControl
from streambank.control.marker import records_root
from streambank.control.place import SUFFIX
from streambank.core.errors import StreambankError
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.storage import local_path, open_store
from tests.nights.declared import DAG_FILE, declaration
from tests.nights.hands import READING_S, ByRest, Hands
from tests.nights.measured import Before, before, restores_since, rpo, rto_s
from tests.nights.record import Night, Run, objective_of
from tests.nights.site import Site, wait
from tests.nights.watching import OpenPage
from tests.support.airflow_face.live_airflow import ENDED
from tests.support.airflow_face.recording_notifier import alerts
from tests.support.checkpoint.file_sink import FileSinkWriter
from tests.support.jobs.declared import end_drivers

VERBS = ("run", "stop", "savepoint", "restore", "sla")
APPLICATION = Path(__file__).with_name("orders.py")
ROWS_PER_FILE = 50
AGAIN_PER_FILE = 20
"""So many rows of a file were in an earlier one."""
NOT_REJECT = r"(?!reject)"
"""Any answer that lets a run go on."""
RUN_S = 420.0
"""How long a run may take on a busy machine."""
CODE = re.compile(r"\[([a-z][a-z0-9]*(?:-[a-z0-9]+)+)\]")


@dataclass(slots=True)
class Scene:
    """One night: a job, a person on call, and what happens.

    Attributes:
        begun: When the harm was done, by the monotonic clock; None before.
        at: At which of its two sites the job is; empty for a job that has one.
    """

    site: Site
    night: Night
    fed: list[int] = field(default_factory=list)
    begun: float | None = None
    verbs: tuple[str, ...] = VERBS
    at: str = ""
    hands: Hands = field(init=False)
    page: OpenPage | None = None
    _files: int = 0
    _ended: set[tuple[str, str]] = field(default_factory=set)
    _alerts_before: int = 0
    _was: Before | None = None

    def __post_init__(self) -> None:
        self.hands = ByRest(self.site.airflow.client)

    @property
    def name(self) -> str:
        return f"orders_{self.night.name}"

    @property
    def folder(self) -> Path:
        return self.site.folder / self.name

    @property
    def jobs_file(self) -> Path:
        return self.folder / "streaming_jobs.toml"

    @property
    def job(self) -> Job:
        job = load_jobs(self.jobs_file).job(self.name)
        return job.at_site(self.at) if self.at else job

    @property
    def control(self) -> JobControl:
        """Its records, as an observer opens them who keeps nothing in mind."""
        return self.job.records()

    @property
    def watched(self) -> FlightsJob:
        """The job as the demo looks at one."""
        return FlightsJob(self.name, records_root(self.job.records()))

    @property
    def repository(self) -> Path:
        return self.folder / "repository"

    @property
    def records(self) -> Path:
        """What is recorded about it, beside the repository."""
        return self.folder / f"repository{SUFFIX}"

    @property
    def application(self) -> Path:
        return self.folder / "app" / APPLICATION.name

    @property
    def output(self) -> Path:
        return self.folder / "out"

    @property
    def checkpoint(self) -> Path:
        path = local_path(self.watched.checkpoint().uri)
        assert path is not None
        return path

    def dag(self, verb: str) -> str:
        return f"{self.name}.{verb}"

    # Before the harm

    def declare(self, more: str = "", *, verbs: Sequence[str] = (), **places: Any) -> None:
        """Declare the job, and wait for its DAGs.

        Args:
            verbs: DAGs that this night needs besides the usual ones.
        """
        self.verbs += tuple(verbs)
        (self.folder / "in").mkdir(parents=True)
        self.application.parent.mkdir()
        shutil.copyfile(APPLICATION, self.application)
        text = declaration(self.name, self.folder, self.application, more=more, **places)
        self.jobs_file.write_text(text, encoding="utf-8")
        file = self.site.dags / f"{self.name}.py"
        file.write_text(DAG_FILE.format(jobs_file=str(self.jobs_file)), encoding="utf-8")
        airflow = self.site.airflow
        wanted = {self.dag(verb) for verb in self.verbs}
        wait(lambda: self._parsed(wanted), f"the DAGs of {self.name} are parsed", 120)
        for dag_id in sorted(wanted):
            airflow.client.unpause(dag_id)

    def _parsed(self, wanted: set[str]) -> bool:
        wrong = [one for one in self.site.airflow.client.import_errors() if self.name in one]
        assert not wrong, wrong[0].strip().splitlines()[-1]
        return wanted <= self.site.airflow.dags()

    def feed(self, files: int = 1) -> None:
        """Let files arrive; some of their rows have been in an earlier one."""
        for _ in range(files):
            first = len(self.fed)
            new = range(first, first + ROWS_PER_FILE)
            again = self.fed[-3 * AGAIN_PER_FILE :: 3]
            self.fed += new
            self._arrive([*new, *again])

    def _arrive(self, ids: list[int], amount: int | None = 1) -> Path:
        self._files += 1
        text = "".join(json.dumps({"id": one, "amount": amount}) + "\n" for one in ids)
        path = self.folder / "in" / f"{self._files:05d}.json"
        made = self.folder / path.name
        made.write_text(text, encoding="utf-8")
        made.rename(path)
        return path

    def feed_through(self, files: int = 1) -> None:
        """Let files arrive, and wait until they are in the output."""
        self.feed(files)
        self.wait_for_rows()

    def feed_poison(self) -> Callable[[], None]:
        """Let a file arrive that no batch survives; what repairs it."""
        new = [*range(len(self.fed), len(self.fed) + ROWS_PER_FILE)]
        path = self._arrive(new, amount=None)
        self.fed += new

        def repair() -> None:
            path.write_text(path.read_text(encoding="utf-8").replace("null", "1"), encoding="utf-8")

        return repair

    def run(self) -> str:
        """Feed, start the job, and wait for what it writes; the run that keeps it running."""
        self.feed(2)
        run = self.site.airflow.client.trigger(self.dag("run"))
        self.until_kept(run)
        self.wait_for_rows()
        return run

    def savepoint(self) -> None:
        self.must_end("savepoint", self.site.airflow.client.trigger(self.dag("savepoint")), "success")

    def stop(self) -> None:
        """Stop the job, as part of what went before the night."""
        run = self.site.airflow.client.trigger(self.dag("stop"), {"savepoint": False})
        self.must_end("stop", run, "success")

    def harm(self) -> None:
        """From now on the night is recorded."""
        if self.page is not None:
            self.page.settle()
        self._ended = {(run.dag_id, run.run_id) for run in self.runs() if run.state in ENDED}
        self._alerts_before = len(alerts(self.folder / "alerts"))
        self._was = before(self.watched.checkpoint(), self.found() or ())
        self.night.harmed_at = self._was.at
        self.begun = time.monotonic()
        if self.page is not None:
            self.page.harmed(self.begun)

    # What the person does

    def trigger(self, verb: str, conf: Mapping[str, Any] | None = None) -> str:
        """Trigger a DAG by hand; the run."""
        said = "".join(f" {name}={value}" for name, value in (conf or {}).items())
        self.night.acts.append(f"trigger {verb}{said}")
        return self.hands.trigger(self.dag(verb), conf or {})

    def pause(self, verb: str) -> None:
        self.night.acts.append(f"pause {verb}")
        path = f"/api/v2/dags/{self.dag(verb)}"
        self.site.airflow.client.call("PATCH", path, {"is_paused": True})

    def unpause(self, verb: str) -> None:
        self.night.acts.append(f"unpause {verb}")
        self.site.airflow.client.unpause(self.dag(verb))

    def mark(self, verb: str, run: str, task_id: str, state: str) -> None:
        self.night.acts.append(f"mark {verb}/{task_id} {state}")
        path = f"/api/v2/dags/{self.dag(verb)}/dagRuns/{run}/taskInstances/{task_id}"
        self.site.airflow.client.call("PATCH", path, {"new_state": state})

    def mark_run(self, verb: str, run: str, state: str) -> None:
        self.night.acts.append(f"mark {verb} {state}")
        self._change_run(self.dag(verb), run, state)

    def _change_run(self, dag_id: str, run: str, state: str) -> None:
        self.site.airflow.client.call("PATCH", f"/api/v2/dags/{dag_id}/dagRuns/{run}", {"state": state})

    def clear(self, verb: str, run: str, *task_ids: str) -> None:
        """Clear some tasks of a run, or what has failed."""
        self.night.acts.append("/".join((f"clear {verb}", *task_ids)))
        self.site.airflow.clear(self.dag(verb), run, *task_ids)
        wait(lambda: self.site.airflow.run_state(self.dag(verb), run) not in ENDED, "the run goes on", 60)

    def must_not_take(self, verb: str, conf: Mapping[str, Any]) -> None:
        """A form with these answers is refused before there is a run."""
        try:
            self.site.airflow.client.trigger(self.dag(verb), conf)
        except RestError as error:
            assert ": 400 " in str(error), error
        else:
            raise AssertionError(f"{verb} takes {conf}")

    def answer(self, verb: str, run: str, option: str = NOT_REJECT) -> list[str]:
        """Wait for the question of a run, read it, and answer it.

        Args:
            option: A pattern that one of the options matches, whatever their case.

        Returns:
            The options that there were.
        """
        return self._choose(verb, run, self.question(verb, run), option)

    def _choose(self, verb: str, run: str, asked: Mapping[str, Any], option: str) -> list[str]:
        options = [str(one) for one in asked["options"]]
        chosen = [one for one in options if re.match(option, one, re.IGNORECASE)]
        assert chosen, f"none of {options} is {option}"
        task_id = str(asked["task_instance"]["task_id"])
        self.night.acts.append(f"answer {verb}/{task_id} {chosen[0]!r}")
        self.hands.answer(self.dag(verb), run, task_id, chosen[0])
        return options

    def answer_to_the_end(self, verb: str, run: str) -> str:
        """Answer a run's question, again where it is asked again, until the run ends; its state.

        Airflow can take the end of one try of a cleared task for that of the next one, which then asks again.
        """
        self.answer(verb, run)

        def step() -> None:
            with suppress(RestError):
                for asked in self.site.airflow.client.open_questions(self.dag(verb), run):
                    self._choose(verb, run, asked, NOT_REJECT)

        return self.site.airflow.wait_for_end(self.dag(verb), run, step)

    def question(self, verb: str, run: str) -> dict[str, Any]:
        """What a run asks, once it does and a person has read it."""
        client, found = self.site.airflow.client, list[dict[str, Any]]()

        def asked() -> bool:
            with suppress(RestError):
                found[:] = client.open_questions(self.dag(verb), run)
            state = self.site.airflow.run_state(self.dag(verb), run)
            assert found or state not in ENDED, f"{verb} asks nothing: {client.why(self.dag(verb), run)}"
            return bool(found)

        wait(asked, f"{verb} asks")
        time.sleep(READING_S)
        return found[0]

    # What nobody has to do

    def scheduled(self, verb: str) -> Run:
        """Play the schedule of a DAG, so that nobody waits for its minute; how the run ended."""
        run = self.site.airflow.client.trigger(self.dag(verb))
        self.end_of(verb, run)
        return self.look_at(verb, run)

    def until_broken(self, objective: str, timeout_s: float = 600) -> None:
        """Play the schedule of `<job>.sla` until it finds an objective broken, and is red.

        Its `doctor` may be red before: a job that nobody watches is an error at once.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            run = self.scheduled("sla")
            levels = self.verdicts(run)
            if levels.get(objective) == "breach":
                assert run.state == "failed", f"sla is {run.state}: {levels}"
                return
            assert time.monotonic() < deadline, (
                f"{objective} is {levels.get(objective)} after {timeout_s:.0f} s"
            )
            time.sleep(10)

    def verdicts(self, run: Run) -> dict[str, str]:
        """The level of each objective in a run of `<job>.sla`."""
        result = self.site.airflow.client.result(run.dag_id, run.run_id, "check")
        return {str(one["objective"]): str(one["level"]) for one in result["verdicts"]}

    def findings(self, run: Run, severity: str) -> set[str]:
        """The codes of what `doctor` found in a run of `<job>.sla`."""
        result = self.site.airflow.client.result(run.dag_id, run.run_id, "doctor")
        return {str(one["code"]) for one in result["findings"] if one["severity"] == severity}

    # What there is

    def end_of(self, verb: str, run: str, timeout_s: float = RUN_S) -> str:
        """Wait for the end of a run; its state."""
        return self.site.airflow.wait_for_end(self.dag(verb), run, lambda: None, timeout_s)

    def end_state(self, verb: str, run: str) -> str | None:
        state = self.site.airflow.run_state(self.dag(verb), run)
        return state if state in ENDED else None

    def must_end(self, verb: str, run: str, state: str, timeout_s: float = RUN_S) -> None:
        found = self.end_of(verb, run, timeout_s)
        assert found == state, f"{verb} is {found}: {self.site.airflow.client.why(self.dag(verb), run)}"

    def must_be(self, state: str, run: Run) -> None:
        """A run that has ended did so in a state."""
        assert run.state == state, f"{run.dag_id} is {run.state}"

    def until_kept(self, run: str) -> None:
        state, dag_id = self.site.airflow.states, self.dag("run")

        def kept() -> bool:
            assert self.site.airflow.run_state(dag_id, run) not in ENDED, self.why("run", run)
            return state(dag_id, run).get("keep_running") == "deferred"

        wait(kept, f"{dag_id} keeps the job running")

    def until_watched(self, number: int) -> None:
        """Wait until a watcher, by its number, keeps the job running."""

        def watched() -> bool:
            newest = self.control.watches.view()
            return newest is not None and newest.number >= number and not newest.end

        wait(watched, f"watcher {number} is there")

    def why(self, verb: str, run: str) -> str:
        return self.site.airflow.client.why(self.dag(verb), run)

    def kill_driver(self) -> None:
        """As `kill -9` does."""
        assert self.watched.kill_driver(), "there is no driver"

    def epoch(self) -> int:
        view = self.control.lease.view()
        return 0 if view is None else view.epoch

    def restored(self) -> dict[str, Any]:
        """The report of the newest restore since the harm."""
        assert self._was is not None
        return restores_since(self.control, self._was.at)[0]

    def drivers(self) -> int:
        """How many processes of a driver live."""
        return len(self.watched.driver())

    def found(self) -> list[int] | None:
        """The rows of the output as a reader sees them; None while it is being written."""
        try:
            rows = FileSinkWriter(open_store(self.output)).read()
        except (StreambankError, OSError, KeyError, ValueError):
            return None
        return [int(str(row["id"])) for row in rows]

    def wait_for_rows(self) -> None:
        """Wait until all that has arrived is in the output."""
        wait(lambda: set(self.found() or ()) >= set(self.fed), "all rows are in the output")

    def recovered(self) -> None:
        """Let rows arrive, wait until they are in the output, and note how long the job was away."""
        self.feed()
        self.wait_for_rows()
        assert self.begun is not None
        self.night.recovery_s = time.monotonic() - self.begun

    def recovered_once(self) -> None:
        """The same, and the output is what a run that is never disturbed gives."""
        self.recovered()
        self.each_row_once()

    def never_down(self) -> None:
        """The job was not down: rows that have arrived since the harm are in the output."""
        self.wait_for_rows()
        self.night.rto_s = 0.0

    def each_row_once(self) -> None:
        """The output is what a run that is never disturbed gives."""
        self.count_rows()
        assert not self.night.lost, f"{self.night.lost} of {self.night.rows} rows are lost"
        assert not self.night.repeated, f"{self.night.repeated} rows are there twice"

    def measure(self) -> None:
        """Note what the disaster cost."""
        if self._was is not None:
            restores = restores_since(self.control, self._was.at)
            self.night.rpo_s, self.night.batches_again = rpo(self._was, restores)
            if self.night.rto_s is None:
                self.night.rto_s = rto_s(self._was, open_store(self.output))

    def count_rows(self) -> None:
        """Note what is lost and repeated."""
        found = Counter(self.found() or ())
        self.night.rows = len(self.fed)
        self.night.lost = len(set(self.fed) - set(found))
        self.night.repeated = sum(found.values()) - len(found)

    def alerts(self) -> list[dict[str, Any]]:
        """What the notifiers were given since the harm."""
        return alerts(self.folder / "alerts")[self._alerts_before :]

    def must_be_alerted(self, kind: str, *to: str, timeout_s: float = 60) -> None:
        """These got an alert of this kind, or of this objective, at once or soon."""

        def alerted() -> bool:
            found = [one for one in self.alerts() if kind in (one["kind"], objective_of(one))]
            return {str(one["to"]) for one in found} >= {*to}

        wait(alerted, f"an alert of {kind} to {' and '.join(to)}", timeout_s)

    def must_say(self, verb: str, run: str, *codes: str) -> None:
        """A run has failed, and the log of a failed task has one of these codes."""
        seen = self.look_at(verb, run)
        assert seen.state == "failed" and seen.codes & {*codes}, (
            f"{verb} is {seen.state} and says {seen.failed}"
        )

    def must_be_tried_once(self, verb: str, run: str, task_id: str) -> None:
        """A task was not tried again."""
        found = self.site.airflow.client.tasks(self.dag(verb), run)
        tries = next(int(one["try_number"]) for one in found if one["task_id"] == task_id)
        assert tries == 1, f"{task_id} of {verb} was tried {tries} times"

    def must_be_broken(self, run: Run, objective: str) -> None:
        """An objective is broken by a run of `<job>.sla`, which is red."""
        levels = self.verdicts(run)
        assert run.state == "failed" and levels.get(objective) == "breach", f"sla is {run.state}: {levels}"

    def runs(self, verb: str | None = None) -> list[Run]:
        """The job's DAG runs that had not ended before the harm; without what their tasks say."""
        wanted = [self.dag(verb)] if verb else [self.dag(one) for one in self.verbs]
        marks = ", ".join("?" for _ in wanted)
        rows = self.site.airflow.rows(
            f"SELECT dag_id, run_id, state FROM dag_run WHERE dag_id IN ({marks}) ORDER BY id", *wanted
        )
        return [
            Run(str(dag), str(run), str(state)) for dag, run, state in rows if (dag, run) not in self._ended
        ]

    def look_at(self, verb: str, run: str) -> Run:
        """A run, with what its failed tasks say."""
        airflow, dag_id = self.site.airflow, self.dag(verb)
        seen = Run(dag_id, run, airflow.run_state(dag_id, run))
        for task in airflow.client.tasks(dag_id, run):
            if task["state"] == "failed":
                lines = airflow.client.log_lines(dag_id, run, task["task_id"], task["try_number"])
                codes = [code for line in lines for code in CODE.findall(line)]
                if verb == "sla":
                    codes += self._red(seen, str(task["task_id"]))
                seen.failed[str(task["task_id"])] = list(dict.fromkeys(codes))
        return seen

    def _red(self, run: Run, task_id: str) -> list[str]:
        """The objectives that are broken, or the codes of the errors that `doctor` found."""
        if task_id == "doctor":
            with suppress(RestError):  # one that could not look at anything leaves no result
                return sorted(self.findings(run, "error"))
            return []
        return [name for name, level in self.verdicts(run).items() if level == "breach"]

    # After the night

    def close(self) -> None:
        """Note what came of it; then end all that is the night's."""
        with suppress(OSError, StreambankError):
            self.count_rows()
            self.measure()
        self.night.alerts = self.alerts()
        for run in self.runs():
            verb = run.dag_id.partition(".")[2]
            with suppress(RestError):
                run = self.look_at(verb, run.run_id)
            self.night.runs.append(run)
        client = self.site.airflow.client
        for verb in self.verbs:
            with suppress(RestError):
                client.call("PATCH", f"/api/v2/dags/{self.dag(verb)}", {"is_paused": True})
        self._ended = set()
        for run in self.runs():
            if run.state not in ENDED:
                with suppress(RestError):
                    self._change_run(run.dag_id, run.run_id, "failed")
        with suppress(StreambankError, OSError):
            end_drivers(self.control)
        (self.site.dags / f"{self.name}.py").unlink(missing_ok=True)
        if not self.night.failure:
            shutil.rmtree(self.folder, ignore_errors=True)
