"""The runner: a PySpark streaming application, unchanged, under its job's lease.

`run` is what the entry `run_query.py` calls under spark-submit.

The lease is taken before the application is read, and released when every query has ended. A driver that
finds its lease lost kills its JVM and itself with SIGKILL at once: whoever holds the lease now may be running
already.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NoReturn

from streambank.control.claims import Claim
from streambank.control.control import JobControl
from streambank.control.keepalive import Keeper
from streambank.control.marker import renew_marker
from streambank.control.processes import ProcessId, process, program_of, this_process
from streambank.core.errors import InternalError, RefusedError, StorageError, StreambankError
from streambank.core.shape import decode
from streambank.declaration.state import HotKeysPolicy
from streambank.driver.application import check_application, check_queries
from streambank.driver.location import REFUSED
from streambank.driver.outputs import Output, check_output
from streambank.driver.preflight import check_records, check_start, launched_query
from streambank.driver.spec import LaunchSpec, QuerySpec, check_generations, released_launch
from streambank.job.health import AwakeClock
from streambank.sites.standing import Deposed, check_launched_site
from streambank.storage.local.reserve import keep_reserve
from streambank_spark.failures import say_error
from streambank_spark.private import boundary, jvm
from streambank_spark.runner import application, patch, redirect, refusals, signals
from streambank_spark.runner.held import HeldLaunch
from streambank_spark.runner.liveness import Settling, Signs
from streambank_spark.runner.poll import ControlJournal, Poll
from streambank_spark.runner.queries import Managed, Queries
from streambank_spark.runner.signals import kill_driver
from streambank_spark.runner.site_watch import SiteWatch, leave_deposed
from streambank_spark.runner.stop import Stopping, StopRequest
from streambank_spark.runner.superseded import check_not_superseded, exit_code, take_lease

_log = logging.getLogger(__name__)


def run(spec: LaunchSpec) -> int:
    """Run a launched application to its end.

    Returns:
        The exit code: the application's own; 1 where it ended well although a query had failed; 0 where it
        was interrupted after a stop that was asked for.

    Raises:
        RefusedError: Somebody holds the job (code `lease-held`), or has stopped it since it was launched
            (`not-wanted`), or the application cannot be run.
        ConflictError: A restore came between the launch and now (code `stale-launch`).
    """
    from pyspark import __version__

    refusals.check_environment(os.environ)
    boundary.require_known_spark(__version__)
    program = check_application(where_it_is(spec))
    check_queries(spec.job, program, spec.queries)
    parent = _jvm_process()
    control = spec.control_of_job()
    released = spec if spec.held_by is None else released_launch(control, spec)
    if released is None:
        return _run_held(spec, control, program, parent)
    return _leased(released, control, parent).run(program)


def _run_held(spec: LaunchSpec, control: JobControl, program: Path, parent: ProcessId) -> int:
    """Run an application whose first query waits until the launch is released."""
    driver: Driver | None = None
    early: list[str] = []

    def begin(released: LaunchSpec) -> Driver:
        nonlocal driver
        driver = _leased(released, control, parent)
        driver.begin(program)
        for whom in early:
            driver.on_term(whom)
        return driver

    def refuse(error: StreambankError) -> NoReturn:
        code = say_error(error)
        with contextlib.suppress(StreambankError):
            code = exit_code(spec, error)
        sys.stderr.flush()
        # The application would go on otherwise. The JVM ends as this process does.
        os._exit(code)

    def on_term(whom: str) -> None:
        if driver is not None:
            driver.on_term(whom)
        elif held.released:  # it is taking the lease, and gives it back properly
            early.append(whom)
        else:
            held.end(f"TERM to {whom}")

    held = HeldLaunch(spec, control, parent, begin, refuse)
    signals.watch_python(on_term)
    _wrap(held)
    code = application.run(program, spec.args, lambda error: exit_code(spec, error))
    return code if driver is None else driver.end(code)


def _leased(spec: LaunchSpec, control: JobControl, parent: ProcessId) -> Driver:
    """The driver of a launch, with the lease in hand."""
    claim = take_lease(spec, control, [this_process("python"), parent])
    driver = Driver(spec, control, claim, parent)
    # From now on, or others would call a driver dead whose records take long to read.
    driver.keeper.start()
    try:
        check_generations(spec, control)
        check_not_superseded(spec, control, claim)
        check_launched_site(spec, control)
        for name in spec.queries:
            check_query(spec, name, control)
    except StreambankError:
        driver.keeper.stop()
        claim.release(REFUSED)
        raise
    return driver


def _wrap(host: patch.Host) -> None:
    refusals.refuse_connect_sessions()
    refusals.refuse_dstreams()
    patch.install(host)


def check_query(spec: LaunchSpec, name: str, control: JobControl, output: Output | None = None) -> str | None:
    """Make sure, with the lease in hand, that a query may start: what its launcher asked may have changed.

    Args:
        output: Where it is to write; None before its application says so.

    Returns:
        Why its output could not be asked; None where it was.

    Raises:
        RefusedError: Something speaks against it (driver/preflight.py).
    """
    query = launched_query(spec, name, control)
    check_records(query)
    generation = control.generation(query.name)
    if generation is None:
        return None  # no start and no restore has ever recorded one, so nothing is known of it
    check_start(query, generation)
    return check_output(query, generation, output) if output is not None else None


def where_it_is(spec: LaunchSpec) -> str:
    """Where the application is for this driver: a cluster may have laid it into the working directory."""
    sent = Path(spec.application).name
    there = spec.deploy_mode != "cluster" or Path(spec.application).is_file() or not Path(sent).is_file()
    return spec.application if there else str(Path(sent).resolve())


def _kafka(said: Mapping[str, Any], is_sink: bool) -> dict[str, Any]:
    return {**said, "sink": dict(said.get("sink", {})) if is_sink else None}


def _jvm_process() -> ProcessId:
    """The JVM of spark-submit, or the one that a cluster runs the driver in: the parent of this process.

    Who has lost its parent has another one, process 1 or a subreaper: to record that as the JVM would keep
    the lease alive for ever, and have a stranger killed in the end.
    """
    parent = process(os.getppid(), "jvm")
    if parent is None or program_of(parent) != "java":
        raise InternalError(
            "The JVM that started this process is gone.",
            hint="Start the job again; if it happens again, report it with the driver's log.",
        )
    return parent


class Driver:
    """One driver, from the lease to its release."""

    def __init__(self, spec: LaunchSpec, control: JobControl, claim: Claim, jvm_process: ProcessId) -> None:
        self.spec = spec
        self.control = control
        self.claim = claim
        self.jvm_process = jvm_process
        hot_keys = (
            None
            if spec.hot_keys is None
            else decode(HotKeysPolicy, spec.hot_keys, "launch spec", at="hot_keys")
        )
        self.queries = Queries(spec.job, spec.queries, hot_keys)
        self.journal = ControlJournal(control, spec.launch_id, claim.epoch, spec.log)
        self.stopping = Stopping(self.queries, self.journal, jvm_process)
        self.signs = Signs(AwakeClock(spec.ttl_s))
        self.settling = Settling(spec.queries, AwakeClock(spec.ttl_s))
        self.poll = Poll(
            control,
            spec,
            claim.epoch,
            self.queries,
            self.journal,
            self.stopping.ask,
            self.signs,
            self.settling,
        )
        self._over = False
        self._java_handler: object | None = None
        self._lost = threading.Event()
        self.keeper = Keeper(claim, on_lost=self._lease_lost, status=self._status)
        self.site_watch = SiteWatch(spec, control, self._deposed)

    def run(self, program: Path) -> int:
        """Run the application; every query has ended, and the lease is released, when this returns."""
        signals.watch_python(self.on_term)
        _wrap(self)
        self.begin(program)
        code = application.run(program, self.spec.args, lambda error: exit_code(self.spec, error))
        return self.end(code)

    def begin(self, program: Path) -> None:
        """Leave behind that this driver runs, and begin to watch what is asked of it."""
        self.journal.record(
            "driver-started",
            application=str(program),
            pid=os.getpid(),
            jvm_pid=self.jvm_process.pid,
            by=dict(self.spec.by),
        )
        if any(one.redirect is not None for one in self.spec.queries.values()):
            redirect.install()
        try:
            keep_reserve(self.control.store)
        except StorageError as error:
            _log.warning("No room could be kept for this driver's last words: %s", error.message)
        self.stopping.start()
        self.poll.start()
        self.site_watch.start()

    def end(self, code: int) -> int:
        """End what the application has left running, and release the lease."""
        self.settling.over()
        # An interrupt that was on its way when the application ended by itself may arrive here.
        with contextlib.suppress(KeyboardInterrupt):
            self.stopping.application_is_over()
        if self._lost.is_set():
            # The application ended because its JVM was killed; this process has a second left.
            threading.Event().wait()
        self.stopping.wait_done()
        self._over = True
        # The application has ended, and the JVM would take its queries down with it: end them properly.
        if self.queries.running():
            self.stopping.end_queries(self.spec.force_after_s)
        self.poll.stop()
        self.site_watch.stop()
        return self._finish(code)

    def _finish(self, code: int) -> int:
        failed = {one.name: one.failure for one in self.queries.all() if one.failure is not None}
        if code == application.INTERRUPTED and self.stopping.interrupted:
            code = 0
        if failed and code == 0:
            code = 1
        outcome = {
            "exit_code": code,
            "failed": failed,
            "forced": self.stopping.forced,
            "batches": {one.name: one.last_batch for one in self.queries.all()},
        }
        self.journal.record("driver-ended", **outcome)
        for asked in self.stopping.requests:
            if asked.request is not None:
                self._answer(asked, outcome)
        self.keeper.stop()
        self.claim.release("released", exit_code=code)
        return code

    def _answer(self, asked: StopRequest, outcome: Mapping[str, Any]) -> None:
        assert asked.request is not None
        details = dict(outcome) | ({"drained": self.stopping.drained} if asked.drain else {})
        try:
            self.control.requests.answer(
                asked.request, "forced" if self.stopping.forced else "stopped", **details
            )
        except StreambankError as error:
            _log.warning("No answer to request %s: %s", asked.request, error.message)

    def _lease_lost(self, why: str) -> NoReturn:
        """Whoever holds the lease now may be running already: be gone before the next commit."""
        self._lost.set()
        kill_driver(self.jvm_process, lambda: self.journal.record("killed", why=f"its lease was lost: {why}"))

    def _deposed(self, found: Deposed) -> NoReturn:
        """Another site may be writing to the same sinks: be gone as after a lost lease."""
        self._lost.set()
        kill_driver(self.jvm_process, lambda: leave_deposed(self.control, found, self.journal.record))

    def on_term(self, whom: str) -> None:
        """End the queries at a batch boundary."""
        self.stopping.ask(StopRequest("term", why=f"TERM to {whom}", force_after_s=self.spec.force_after_s))

    def _status(self) -> Mapping[str, Any]:
        """What each heartbeat says; nothing here may ask the JVM, which may hang."""
        return {
            "state": "stopping" if self.stopping.asked else "running",
            "application": self.settling.state(),
            "poll_failures": self.poll.failures,
            "still_s": round(self.signs.still_s(), 1),
            "queries": {
                one.name: {
                    "run_id": one.run_id,
                    "batch": one.last_batch,
                    "triggered": one.triggered,
                    "over": one.over,
                    **self.signs.describe(one),
                }
                for one in self.queries.all()
            },
        }

    # What the wrappers ask (patch.Host).

    def before_start(self) -> None:
        """Refuse starts after a stop was asked; take over the JVM's TERM before the first one."""
        if self.stopping.asked or self._over:
            raise SystemExit(0)
        if self._java_handler is None:
            actual = jvm.jvm_pid()
            if actual != self.jvm_process.pid:
                raise RefusedError(
                    f"The session's JVM is process {actual}, but this driver was started by "
                    f"{self.jvm_process.pid}.",
                    code="foreign-jvm",
                    hint="Let the application use the session that spark-submit started.",
                )
            self._java_handler = signals.watch_jvm(self.on_term)

    def check_start(self, name: str, spec: QuerySpec, output: Output) -> None:
        """Ask what its launcher asked, and what only shows now, before Spark writes anything."""
        unasked = check_query(self.spec, name, self.control, output)
        if unasked is not None:
            self.journal.record("output-not-asked", query=name, output=output.path, why=unasked)

    def started(self, managed: Managed, sources: list[str]) -> None:
        """Write down what Spark says about a query that has just been started."""
        self.signs.begun(managed.name)
        managed.trigger_s = jvm.trigger_s(managed.query)
        sink, sink_path = jvm.sink_of(managed.query)
        facts = {
            "generation": managed.spec.generation,
            "checkpoint": managed.spec.checkpoint,
            "query_id": managed.query_id,
            "run_id": managed.run_id,
            "sink": sink,
            "sink_path": sink_path,
            "output": None if managed.output is None else managed.output.to_dict(),
            "redirected_from": None if managed.named is None else managed.named.to_dict(),
            "sources": sources,
            "kafka": _kafka(managed.kafka, jvm.is_kafka_sink(managed.query)),
            "fixed_options": list(managed.fixed_options),
            "spark_version": jvm.spark_version(managed.query),
        }
        launched = {"epoch": self.claim.epoch, "launch_id": self.spec.launch_id}
        self.control.record_query(managed.name, {**launched, **facts})
        self.journal.record("query-started", query=managed.name, **facts)
        self._mark(managed, facts)

    def note(self, kind: str, **facts: Any) -> None:
        """Write down what came out of a copy of a query."""
        self.journal.record(kind, **facts)

    def _mark(self, managed: Managed, facts: Mapping[str, Any]) -> None:
        """Leave beside the checkpoint that the query has worked there. It runs on where that fails."""
        query = launched_query(self.spec, managed.name, self.control)
        generation = self.control.generation(query.name)
        if generation is None:
            return
        why = renew_marker(
            query.checkpoint,
            job=self.spec.job,
            query=managed.name,
            generation=generation,
            control=self.control,
            by=self.spec.by,
            repository=self.spec.repository,
            repository_id=self.spec.repository_id,
            facts=facts,
            saved=False,
        )
        if why is not None:
            self.journal.record("marker-not-written", query=managed.name, why=why)

    def before_context_stops(self) -> None:
        """The application ends its context: let every query end at a batch boundary first."""
        if self.stopping.asked:
            self.stopping.wait_done()
        elif self.queries.running():
            self.stopping.end_queries(self.spec.force_after_s)
        self.poll.once()

    def before_query_stops(self) -> None:
        """The application stops a query: where the runner is at it already, leave it to the runner."""
        self.stopping.wait_done()

    def waiting(self) -> AbstractContextManager[None]:
        """The application waits for its queries: it has started what it starts."""
        return self.settling.waiting()
