"""A drill: a restore that is rehearsed on a copy, with the real application, while the live job runs on.

1. *choose*: a savepoint of each query is chosen and verified, in the repository or a replica.
2. *restore*: its files are written below a scratch location, every byte hashed, with a new query id.
3. *stage*: the live query's plans of the following batches are copied (checkpoint/replay.py).
4. *launch*: the job's own application is started on the copy; the runner redirects what it writes and leaves
   its sources alone (streambank_spark/runner/redirect.py).
5. *state*: the runner opens all state, counts and fingerprints it.
6. *batches*: it executes the live query's batches one at a time; where none is left, the copy goes on by
   itself until its first batch is committed.
7. *compare*: rows, output and state of each batch with those of the live query.
8. *clean*: the driver is ended and the scratch removed.

The live checkpoint, outputs, source positions, records and lease are only read. The report goes to the live
job's records, whether the drill passes or fails.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

from streambank.checkpoint.position import batches_of
from streambank.checkpoint.replay import Replay, stage_replay
from streambank.code.chosen import as_chosen
from streambank.control.control import JobControl
from streambank.control.drills import called, record_drill, savepoints_of
from streambank.control.progress import progress_of_batch
from streambank.control.records import leaving_word
from streambank.core.errors import InputError, RefusedError, StreambankError
from streambank.core.units import utc_now
from streambank.declaration.declaration import Job
from streambank.drills import left
from streambank.drills.accept import accept
from streambank.drills.copy_of_job import (
    check_scratch,
    checkpoint_in,
    copy_of,
    output_in,
    plans_in,
    scratch_of,
)
from streambank.drills.report import OF_A_RESTORE, UNPROVEN, BatchDrill, DrillReport, QueryDrill
from streambank.drills.request import RANDOM, DrillRequest
from streambank.drills.watched import BATCH, DONE, REFUSED, STATE_COMPARED, STATE_READ, Watched
from streambank.driver.connections import placed
from streambank.driver.failure import shown
from streambank.driver.launcher import Launcher
from streambank.driver.launchers.choose import launcher_for
from streambank.driver.prepare import check_made
from streambank.inputs.files import input_changed
from streambank.job.start import start_job
from streambank.job.stop import stop_job
from streambank.procedure.procedure import Procedure, Say, quiet
from streambank.recovery.choosing.resolve import choose
from streambank.recovery.lay_out import lay_out_copy
from streambank.repository.catalog import LATEST_GOOD, candidate_heads, is_rejected, none_of
from streambank.repository.holds import Holds
from streambank.repository.manifest import Manifest
from streambank.repository.references import parse_reference
from streambank.repository.repository import Repository
from streambank.sinks.file.capture import KIND as FILE
from streambank.sites.forks import QueryLines
from streambank.storage import open_store
from streambank.storage.local.trees import DirectoryIdentity
from streambank.work.executor import DEFAULT_PACE, Pace

_LOOK_S = 0.5
_PATIENCE_S = 5.0
"""How long the copy's driver may finish its batch at the end of a drill."""
_GONE_WITHIN_S = 2.0
"""How long a driver that was killed is waited for."""


def drill(
    request: DrillRequest,
    *,
    launcher: Launcher | None = None,
    say: Say = quiet,
    pace: Pace = DEFAULT_PACE,
) -> DrillReport:
    """Rehearse a restore of one savepoint of each query.

    A step that fails ends the drill and stands in its report: that a restore would not have worked is what a
    drill is for. Raised is only what keeps the report from being kept. A drill that is interrupted leaves no
    report, no driver and no copy. One that passed ends the rejection of a savepoint (`SavepointSummary`).

    Raises:
        InputError, RefusedError: As `rehearse`.
    """
    report = rehearse(request, launcher=launcher, say=say, pace=pace)
    leave_report(request, report)
    if report.passed and not report.not_run:
        report = replace(report, still_rejected=accept(request, report))
        for one in report.still_rejected:
            say(one.said)
    return report


def leave_report(request: DrillRequest, report: DrillReport) -> None:
    """Keep the report of a drill among the records of the live job."""
    failed = f"failed at the step {report.failed_step} ({report.error.rstrip('.')})"
    with leaving_word(
        f"The drill of job {report.job} {'passed' if report.passed else failed}, but its report is not kept",
        "Make room for the job's records, and drill again: only what is kept counts for drill_age.",
    ):
        control = request.job.records()
        record_drill(control, report.to_dict())
        control.record_event(
            "drilled",
            savepoint=called(savepoints_of(report.to_dict())) or None,
            passed=report.passed,
            step=report.failed_step,
            error=report.error,
            code=report.code,
            seconds=round(report.seconds, 1),
            repository=report.repository,
            rto_s=None if report.rto_s is None else round(report.rto_s, 1),
            not_run=report.not_run or None,
            by=dict(request.by),
            why=request.why,
        )


def rehearse(
    request: DrillRequest,
    *,
    launcher: Launcher | None = None,
    say: Say = quiet,
    pace: Pace = DEFAULT_PACE,
) -> DrillReport:
    """Do what a drill does, and leave no report of it among the job's records.

    Raises:
        InputError: Where the job runs is not known here (code `connection-not-known`).
        RefusedError: The job is one on a copy that was never made (code `copy-not-made`), or that is of the
            state alone (`copy-of-state`).
    """
    job = as_drilled(request)
    control = job.records()
    name = left.name_of(utc_now(), secrets.token_hex(3))
    return _Drill(request, job, control, launcher or launcher_for(job), name, say, pace).run()


def as_drilled(request: DrillRequest) -> Job:
    """The live job, with all that is known of where it runs.

    Raises:
        InputError, RefusedError: As `rehearse`.
    """
    job = placed(request.job)
    if job.copy is not None:
        check_made(job, job.records())
    return job


class _Drill(Procedure[DrillRequest]):
    def __init__(
        self,
        request: DrillRequest,
        job: Job,
        control: JobControl,
        launcher: Launcher,
        name: str,
        say: Say,
        pace: Pace,
    ) -> None:
        super().__init__(request, say, pace)
        self.job = job
        self.control = control
        self.launcher = launcher
        folder = request.scratch or job.drill.scratch
        self.scratch = scratch_of(replace(job, drill=replace(job.drill, scratch=folder)), name)
        self.source = request.source
        self.at: set[str] = set()  # the queries that fail if the step does; empty for all
        self.queries: dict[str, QueryDrill] = {}
        self.first_batch_s: dict[str, float] = {}
        self.not_run: dict[str, str] = {}
        self.rejected: list[str] = []
        self.changed: dict[str, str] = {}
        self.interrupted = False
        self.made: DirectoryIdentity | None = None  # which directory the scratch is, once it was made

    def run(self) -> DrillReport:
        """Do every step; the report says how far it came."""
        failed: StreambankError | None = None
        with ExitStack() as stack:
            try:
                self._run(stack)
            except StreambankError as error:
                failed = error
            except BaseException:
                self.interrupted = True
                self._clean(stack)
                raise
            failed_step = (self.last_step or "choose") if failed is not None else None
            failed_queries = set() if failed is None else self.at or {*self.job.queries}
            kept = self.request.keep
            try:
                self._clean(stack)
            except StreambankError as error:
                kept = True
                failed, failed_step = failed or error, failed_step or "clean"
                failed_queries = failed_queries or {*self.job.queries}
        return DrillReport(
            job=self.job.name,
            repository=self.source,
            queries=tuple(self.queries.values()),
            steps=dict(self.steps),
            rto_s=self._rto_s(),
            failed_step=failed_step,
            failed_queries=tuple(one for one in self.job.queries if one in failed_queries),
            code=failed.code if failed is not None else None,
            error=failed.message if failed is not None else "",
            hint=failed.hint if failed is not None else "",
            not_run=" ".join(self.not_run[name] for name in sorted(self.not_run)),
            scratch=self.scratch,
            kept=kept,
            started_at=self.started_at,
            seconds=self.seconds,
            by=dict(self.request.by),
            why=self.request.why,
        )

    def _clean(self, stack: ExitStack) -> None:
        with self.step("clean", "removing the copy"):
            stack.close()
            if self.request.keep:
                left.keep(self.scratch)
            else:
                left.remove(self.scratch, self.made)

    def _clean_up_after_others(self) -> None:
        """Remove what drills left that were killed; what cannot be removed does not keep this one from it."""
        folder = self.scratch.rpartition("/")[0]
        timeout_s = max(self.request.timeout_s or 0.0, self.job.drill.timeout_s)
        try:
            for gone in left.clean_up(
                self.job, folder, timeout_s=timeout_s, by=self.request.by, launcher=self.launcher
            ):
                self.say(f"removed what a killed drill had left: {gone}")
        except StreambankError as error:
            self.say(f"what killed drills may have left could not be found: {error.message}")

    @contextmanager
    def step(self, name: str, words: str) -> Iterator[None]:
        with super().step(name, words):
            yield
        self.at = set()

    def _run(self, stack: ExitStack) -> None:
        check_scratch(self.job, self.control, self.scratch, self.source)
        self._clean_up_after_others()
        with self.step("choose", "choosing and verifying the savepoints"):
            repository = Repository.open(open_store(self.source))
            repository.zone_of = self.job.zone_of
            manifests = self._choose(repository, stack)
        with self.step("restore", "restoring into scratch"):
            self.made = left.mark(self.scratch, self.control)
            for name, manifest in manifests.items():
                self.at = {name}
                self._restore(repository, name, manifest)
        with self.step("stage", "reading the live query's plans"):
            replays = {name: self._stage(name, manifest) for name, manifest in manifests.items()}
        copy = copy_of(
            self.request.runs or as_chosen(self.job, self.control)[0],
            self.scratch,
            {name: one for name, one in replays.items() if one is not None},
        )
        deadline = time.monotonic() + (self.request.timeout_s or self.job.drill.timeout_s)
        stack.callback(self._end, copy)
        with self.step("launch", "starting the application on the copy"):
            started = start_job(
                copy,
                by=self.request.by,
                why="a drill",
                wait=False,
                timeout_s=self.request.timeout_s or self.job.drill.timeout_s,
                launcher=self.launcher,
            )
        watched = Watched(copy.records(), started.launch_id, self.launcher)
        self._watch(watched, replays, deadline)
        with self.step("compare", "comparing with the live query"):
            self._compare(watched, replays)
            self.request.inspect(copy.records())

    # Before the application.

    def _choose(self, repository: Repository, stack: ExitStack) -> dict[str, Manifest]:
        chosen = {}
        # Beside savepoints that are named, what the job declares for its drills does not count.
        declared = LATEST_GOOD if self.request.savepoints else self.job.drill.savepoint
        reference = self.request.savepoint or declared
        one_query = reference != RANDOM and parse_reference(reference).kind in ("id", "batch")
        if len(self.job.queries) > 1 and one_query and not self.request.savepoints:
            raise InputError(
                f"Job {self.job.name} has several queries, and {reference} is a savepoint of one of them.",
                code="bad-option",
                hint=f"Use {LATEST_GOOD}, {RANDOM}, a name, or a time.",
            )
        for name in self.job.queries:
            self.at = {name}
            of_query = self.job.savepoint_name(name)
            which = self.request.savepoints.get(name, reference)
            lines = QueryLines.of(self.control, name)
            if which == RANDOM:
                heads = list(candidate_heads(repository.store, of_query))
                own = lines.knowing(heads)
                kept = [head.savepoint for head in heads if not own.why_another(head)]
                if not kept:
                    raise none_of(repository.store, of_query)
                which = random.choice(kept)
            found = choose(
                repository, which, of_query, record=True, by=self.request.by, pace=self.pace, lines=lines
            )
            manifest = found.manifest
            stack.enter_context(
                Holds(repository, "drill", self.request.by).held(manifest.job, manifest.savepoint)
            )
            live = self._live(name)
            newest = batches_of(live).committed if live is not None else None
            self.queries[name] = QueryDrill(
                name,
                manifest.savepoint,
                manifest.batch,
                manifest.taken_at,
                age_s=max(0.0, (utc_now() - manifest.taken_at).total_seconds()),
                batches_behind=None if newest is None else max(0, newest - manifest.batch),
            )
            chosen[name] = manifest
            if is_rejected(repository.store, manifest):
                self.rejected.append(name)
        return chosen

    def _live(self, query: str) -> str | None:
        """Where the live query's checkpoint is; None where the job has never run."""
        generation = self.control.generation(query)
        return generation.location if generation is not None else self.job.queries[query]

    def _restore(self, repository: Repository, query: str, manifest: Manifest) -> None:
        target = open_store(checkpoint_in(self.scratch, query))
        files = [one for one in manifest.sinks if one.get("kind") == FILE and one.get("guarded") is True]
        outputs = {str(one["path"]): output_in(self.scratch, query) for one in files}
        lay_out_copy(repository, manifest, target, outputs, by=self.request.by, pace=self.pace)

    def _stage(self, query: str, manifest: Manifest) -> Replay | None:
        self.at = {query}
        most = self.job.drill.batches if self.request.batches is None else self.request.batches
        live = self._live(query)
        if most == 0 or live is None:
            return None
        if (same := self._is_same_line(query, manifest)) is not None:
            self._say_not_compared(query, same)
            return None
        plans = open_store(plans_in(self.scratch, query))
        staged = stage_replay(
            open_store(live),
            open_store(checkpoint_in(self.scratch, query)),
            plans,
            after=manifest.batch,
            most=most,
        )
        if staged.why is not None and not staged.batches:
            self._say_not_compared(query, f"no batch after the savepoint's: {staged.why}")
        if not staged.batches:
            return None
        self.changed[query] = input_changed(manifest, live, (manifest.checkpoint, self.source))
        output = (self.control.query_facts(query) or {}).get("sink_path")
        return Replay(staged.batches, plans.uri, live, str(output) if output else None)

    def _is_same_line(self, query: str, manifest: Manifest) -> str | None:
        """Why batches of the live query are none that follow the savepoint; None where they are."""
        facts = self.control.query_facts(query) or {}
        if facts.get("query_id") not in (None, manifest.query_id):
            return "the live query began again since the savepoint, so its batches are others"
        generation = self.control.generation(query)
        if generation is None or generation.made_at <= manifest.taken_at:
            return None
        if generation.from_savepoint != manifest.savepoint:
            return "the live query was restored since the savepoint, so its batches are others"
        return None

    def _say_not_compared(self, query: str, why: str) -> None:
        found = self.queries[query]
        self.queries[query] = replace(found, not_compared=(*found.not_compared, why))

    # The application.

    def _watch(self, watched: Watched, replays: Mapping[str, Replay | None], deadline: float) -> None:
        with self.step("state", "opening the state"):
            try:
                watched.wait(
                    lambda: watched.queries(STATE_READ) >= set(self.queries) or bool(watched.events(REFUSED)),
                    deadline,
                    "has opened its state",
                )
            finally:
                read_s = self._note_states(watched)
                self.at = watched.failed_queries()
        # Until it opens its state the application only comes up.
        self.steps["launch"] += self.steps["state"] - read_s
        self.steps["state"] = read_s
        with self.step("batches", "processing batches"):
            try:
                watched.wait(lambda: self._is_done(watched, replays), deadline, "has processed its batches")
            finally:
                self.at = watched.failed_queries()
        for refused in watched.events(REFUSED):
            self.not_run[str(refused["query"])] = str(refused["message"])
        started = watched.queries(STATE_READ, DONE, "query-started")
        for name in self.queries.keys() - started:
            self.not_run.setdefault(name, f"the application did not start query {name} on the copy.")

    def _note_states(self, watched: Watched) -> float:
        """Take down which states were opened; how many seconds the longest took."""
        read_s = 0.0
        for event in watched.events(STATE_READ):
            state = {name: event[name] for name in ("batch", "parts", "why", "seconds") if name in event}
            query = str(event["query"])
            self.queries[query] = replace(self.queries[query], state=state)
            read_s = max(read_s, float(event["seconds"]))
            if "why" in state:
                self._say_not_compared(query, f"its state was not read: {shown(str(state['why']))}")
        return read_s

    def _is_done(self, watched: Watched, replays: Mapping[str, Replay | None]) -> bool:
        if watched.events(REFUSED):
            return True  # the application ends there, as a rule: what it has done until then counts
        for event in watched.events(BATCH):
            self.first_batch_s.setdefault(str(event["query"]), float(event["seconds"]))
        done = {str(event["query"]) for event in watched.events(DONE)}
        for name, manifest in self.queries.items():
            if replays.get(name) is not None:
                if name not in done:
                    return False
            elif not self._has_gone_on(watched, name, manifest.batch):
                return False
        return True

    def _has_gone_on(self, watched: Watched, query: str, batch: int) -> bool:
        committed = batches_of(checkpoint_in(self.scratch, query)).committed
        if committed is not None and committed > batch:
            return True
        view = watched.control.lease.view()
        said = view.status.get("queries", {}) if view is not None else {}
        return bool(said.get(query, {}).get("triggered"))  # there was nothing new to read

    def _end(self, copy: Job) -> None:
        """End whatever runs on the copy; its log has been read by now."""
        if self.interrupted:
            self._kill(copy.records())
            return
        stop_job(
            copy,
            by=self.request.by,
            why="the drill is over",
            force_after_s=_PATIENCE_S,
            launcher=self.launcher,
        )

    def _kill(self, records: JobControl) -> None:
        """Kill the copy's driver at once, without the locks of a start that was interrupted half way."""
        for handle in [*self.launcher.find(records), *Watched(records, None, self.launcher).handles()]:
            self.launcher.kill(handle)
        deadline = time.monotonic() + _GONE_WITHIN_S
        while self.launcher.find(records) and time.monotonic() < deadline:
            time.sleep(_LOOK_S / 10)

    # Afterwards.

    def _compare(self, watched: Watched, replays: Mapping[str, Replay | None]) -> None:
        for name, replay in replays.items():
            if replay is None:
                continue
            executed = [one for one in watched.events(BATCH) if one["query"] == name]
            batches = tuple(self._batch(name, one) for one in executed)
            found = replace(self.queries[name], batches=batches)
            whys = {str(one.output["why"]) for one in batches if "why" in one.output}
            if any(one.live_input_rows is None for one in batches):
                whys.add("the live query's progress of some batches is not kept any more")
            for event in watched.events(STATE_COMPARED):
                if event["query"] == name:
                    equal, why = _same_state(event["copy"], event["live"])
                    found = replace(found, state_equal=equal)
                    whys |= {why} if why is not None else set()
            self.queries[name] = replace(found, not_compared=(*found.not_compared, *sorted(whys)))
        compare = self.request.compare or ("none" if self.rejected else self.job.drill.compare)
        differ = {name: one.differences(values=compare == "values") for name, one in self.queries.items()}
        differ = {name: said for name, said in differ.items() if said and compare != "none"}
        for name in [name for name in differ if self.changed.get(name)]:
            self._say_not_compared(name, self.changed[name])
            del differ[name]
        self._check_proven(watched, differ)
        if compare == "none":
            for name in self.rejected:
                self._say_not_compared(name, "changed state need not give what the live query computed")
            return
        if differences := [one for said in differ.values() for one in said]:
            more = f" ({len(differences) - 1} more differences)" if len(differences) > 1 else ""
            raise RefusedError(
                f"The copy did not compute what the live query did: {differences[0]}{more}.",
                code="drill-differs",
                hint="Look whether the application depends on more than its input, such as a random number, "
                "a table that has changed, or the order of rows in a sum of fractions (drill.compare). "
                "`streambank drill --keep` leaves the copy for a look.",
            )

    def _check_proven(self, watched: Watched, differ: Collection[str]) -> None:
        """A query whose state was not read, and that has processed no batch, has shown nothing.

        Raises:
            RefusedError: There is one (code `drill-proves-nothing`).
        """
        unproven = {}
        for name, found in self.queries.items():
            went_on = batches_of(checkpoint_in(self.scratch, name)).committed or -1
            if went_on > found.batch:
                continue
            self.first_batch_s.pop(name, None)
            if name not in self.not_run:
                self._say_not_compared(name, f"{UNPROVEN}: there was nothing new to read")
            if "parts" not in found.state:
                unproven[name] = self.not_run.get(name) or "No batch was processed."
        self.at = {*unproven, *differ}
        for name, why in unproven.items():
            raise RefusedError(
                f"The drill shows nothing of query {name} but that its files are whole: its state was "
                f"not read, and no batch was processed. {why}",
                code="drill-proves-nothing",
                hint="Drill a savepoint that the live query is ahead of.",
            )

    def _batch(self, query: str, event: Mapping[str, Any]) -> BatchDrill:
        batch = int(event["batch"])
        generation = self.control.generation(query)
        since = (
            generation.made_at if generation is not None else datetime.min.replace(tzinfo=utc_now().tzinfo)
        )
        live = progress_of_batch(self.control.store, query, batch, since=since, until=utc_now())
        said = live.progress if live is not None else {}
        operators = said.get("stateOperators") or []
        return BatchDrill(
            batch,
            float(event["seconds"]),
            input_rows=event.get("input_rows"),
            live_input_rows=said.get("numInputRows"),
            state_rows=event.get("state_rows"),
            live_state_rows=sum(int(one.get("numRowsTotal", 0)) for one in operators) if operators else None,
            output=dict(event.get("output") or {}),
        )

    def _rto_s(self) -> float | None:
        if self.not_run or not self.queries or "compare" not in self.steps:
            return None
        if any(UNPROVEN in why for one in self.queries.values() for why in one.not_compared):
            return None
        if len(self.first_batch_s) < len(self.queries):
            return sum(self.steps[name] for name in OF_A_RESTORE)
        return sum(self.steps[name] for name in OF_A_RESTORE[:-1]) + max(self.first_batch_s.values())


def _same_state(copy: Mapping[str, Any], live: Mapping[str, Any]) -> tuple[bool | None, str | None]:
    """Whether two states are the same, and why that is not known."""
    for whose, one in (("copy", copy), ("live query", live)):
        if "why" in one:
            return None, f"the state of the {whose} was not read: {one['why']}"
    return copy["parts"] == live["parts"], None
