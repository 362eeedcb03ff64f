"""Starting a job: once, whoever asks, and how often.

The operation lock lets one start (or stop, or restore) work at a time; under it the lease says whether a
driver runs, and the launcher (the processes of this host, or the cluster) whether one is still coming up
that an earlier start left behind when it was killed. Only where neither is, one is launched. The lock is held
until the new driver has the lease, so the next in line sees it; then this start waits, without the lock,
until the driver is ready (readiness.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Literal

from streambank.checkpoint.position import batches_of
from streambank.checkpoint.sources import cannot_repeat
from streambank.code.chosen import CodeChoice, as_chosen, needed_programs, settle_choice
from streambank.code.code import Code
from streambank.code.kept import drop_old, keep
from streambank.code.program import read_program
from streambank.code.vouched import vouch
from streambank.control.claims import ClaimView
from streambank.control.control import RECENT_EVENTS, Desired, JobControl
from streambank.control.copies import settle_refresh
from streambank.control.operation import Operation, WaitLog
from streambank.control.pruning import prune_and_tell
from streambank.control.records import JsonDict
from streambank.core.errors import RefusedError, StorageError, StreambankError
from streambank.core.shape import JsonObject
from streambank.core.units import from_json_time, say_duration
from streambank.declaration.declaration import Job
from streambank.driver.damage import unloadable
from streambank.driver.failure import SEARCHED_LINES, driver_failure, failure_in, refusal, shown
from streambank.driver.launcher import DriverState, Handle, Launcher
from streambank.driver.launchers.choose import launcher_for, placed
from streambank.driver.launchers.disks import check_room
from streambank.driver.location import (
    Waiting,
    check_launched_here,
    drivers_left,
    end_drivers,
    find_driver,
    in_cluster,
    is_of,
    launched_handle,
    record_location,
)
from streambank.driver.other_release import check_change
from streambank.driver.prepare import check_declared, prepare_launch
from streambank.driver.spec import (
    WAITING,
    LaunchSpec,
    is_held,
    is_same_launch,
    new_launch_id,
    read_launch,
    release_launch,
    write_launch,
)
from streambank.job.readiness import QueryStart, are_done, has_settled, query_starts, say_starts
from streambank.sites.standing import SiteStanding, check_own_site, check_site

_log = logging.getLogger(__name__)

_LOOK_S = 0.25
_CLUSTER_LOOK_S = 1.0
_LAST_LINES = 30
_SEARCHED_EVENTS = 100
"""Among so many of the newest events it is looked for how long the last driver took."""
NOT_KEPT = "code-not-kept"
"""The kind of event that says why no copy of a program was kept."""
LEFTOVERS = "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"
"""Spark's name for a checkpoint without a planned batch that is not empty."""
_OTHER_SOURCE = "Wrong basePath"
"""Spark's words where a file source's log names files outside of the directory that it reads."""
_OTHER_SOURCE_HINT = (
    "A file source reads another directory than the one whose files are in the checkpoint's log: go back to "
    "the old directory, or declare a new checkpoint, which reads the new one from its beginning."
)

_OTHER_ARGS = (
    "The driver that runs was launched with other arguments than this start asks for, and keeps its own. A "
    "restart with these arguments changes them."
)
StartState = Literal["started", "already-running", "finished", "not-desired"]


@dataclass(frozen=True, slots=True)
class StartResult(JsonObject):
    """What a start came to.

    Attributes:
        state: `started`; `already-running`; `finished` (the application ran to its end meanwhile); or
            `not-desired` (somebody stopped the job: before, and this start was to obey that, or meanwhile).
        batch: Newest committed batch (of all queries together, the oldest such); None before the first.
        queries: What each query has done since its driver was launched: `committed` a batch, found
            `no-input`, `working` on its first batch, `failed` before it, or `not-started`.
        log: Its log: a path on its host, or a web address.
        submission: What its cluster calls it; None for a driver on this machine.
        warnings: What will go wrong with the input that a query goes on from.
        code: That an upgrade chose other code than the job declares, and this start launched it; empty where
            it launched what the job declares, or nothing.
        why: For `not-desired`, who set the job to stopped, when and why; else empty.
    """

    job: str
    state: StartState
    epoch: int | None = None
    launch_id: str | None = None
    host: str | None = None
    pid: int | None = None
    jvm_pid: int | None = None
    batch: int | None = None
    batches: Mapping[str, int | None] = field(default_factory=dict)
    queries: Mapping[str, QueryStart] = field(default_factory=dict)
    generations: Mapping[str, int] = field(default_factory=dict)
    log: str | None = None
    submission: str | None = None
    tracking: str | None = None
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    code: str = ""
    why: str = ""

    @property
    def is_ready(self) -> bool:
        """Whether each query has committed a batch since the launch, or found no data."""
        return bool(self.queries) and are_done(self.queries)


def start_job(
    job: Job,
    *,
    by: Mapping[str, str],
    why: str = "",
    obey_desired: bool = False,
    wait: bool = True,
    timeout_s: float | None = None,
    launcher: Launcher | None = None,
    control: JobControl | None = None,
    operation: Operation | None = None,
    fresh_start: bool = False,
    held: Waiting | None = None,
    args: Sequence[str] | None = None,
) -> StartResult:
    """Make sure that a driver of the job runs, and that it is ready.

    Args:
        obey_desired: Start nothing where the job is meant to be stopped (for whoever keeps jobs running).
            Otherwise the job is meant to run from now on.
        wait: Return only when each query has committed a batch since the launch, or found no data, and the
            application has started what it starts; else when the driver holds the lease.
        timeout_s: How long to wait for that; the declared time when left out.
        operation: The operation lock, where the caller holds it already (a restart).
        fresh_start: A person accepts that the job's records are lost, and lets it begin again; recorded, and
            without effect where they are not. Never for whoever keeps jobs running.
        held: A driver that waits for its release, and is released instead of a launch; where it has ended, or
            is not what is to run, another one is launched.
        args: Arguments of the application for this launch; those of the code that counts when left out. A
            driver that runs already goes on with its own.

    Raises:
        ConflictError: Another operation works on the job (code `operation-in-progress`).
        InputError: Where the job runs is not known here (`connection-not-known`), or its launcher is not
            installed or cannot be used (`no-such-launcher`, `ambiguous-launcher`, `bad-launcher`).
        RefusedError: The lease cannot be judged, or a restore holds it (`lease-held`); a driver may still run
            in another place than the declared one (`launched-elsewhere`); the job's records are
            lost (`repository-lost`); its checkpoint is damaged (`checkpoint-damaged`), or Spark cannot load
            it (`state-not-loadable`): no further start changes that; or what else `prepare_launch` refuses.
        StorageError: The driver died before it was ready (`driver-died`), or the time was over
            (`start-timeout`; the driver is left alone, and the next start finds it).
    """
    records = control or job.records()
    job = placed(job)
    # Asked before the operation lock is taken: it would be the first file in the place of what is lost.
    check_declared(job, records, fresh_start=fresh_start)
    if (view := records.lease.view()) is None or view.free:
        try:
            check_room(job, records)  # before the lock, which takes room itself
        except StorageError:
            # Who stops the job on a full disk must not be kept waiting for the room that the lock takes.
            left = _left_stopped(job, records.desired(), obey_desired)
            if left is None or not ((busy := records.operation_lock.view()) is None or busy.free):
                raise
            return left
    timeout_s, given = timeout_s or job.start.timeout_s, None if args is None else tuple(args)
    start = _Start(job, records, launcher or launcher_for(job), by, timeout_s, fresh_start, held, given)
    own_lock = partial(records.operation, "start", by=by, wait_s=start.timeout_s, any_site=True)
    while True:
        lock: AbstractContextManager[Operation] = nullcontext(operation) if operation else own_lock()
        with lock as work:
            early = start.begin(work, obey_desired, why)
        result = early or start.finish(wait)
        if result is not None:
            return result


def _left_stopped(job: Job, desired: Desired | None, obey: bool) -> StartResult | None:
    """What a start gives that obeys and finds the job stopped; None where it goes on."""
    if not obey or desired is None or desired.state != "stopped":
        return None
    return StartResult(job.name, "not-desired", why=desired.words)


def check_launch(job: Job, control: JobControl, launcher: Launcher) -> str | None:
    """Refuse a launch that cannot come to anything, before anything is recorded or stopped for it.

    Args:
        job: The declared job, placed.

    Returns:
        The version of the Spark that its driver gets; None where that is not known here.
    """
    version = launcher.check(job)
    check_room(job, control)
    check_change(job, control, version)
    return version


@dataclass
class _Start:
    declared: Job
    control: JobControl
    launcher: Launcher
    by: Mapping[str, str]
    timeout_s: float
    fresh_start: bool
    held: Waiting | None
    args: tuple[str, ...] | None = None
    state: StartState = "started"
    chosen: CodeChoice | None = None
    launch: LaunchSpec | None = None
    handle: Handle | None = None
    view: ClaimView | None = None
    warnings: tuple[str, ...] = ()
    standing: SiteStanding | None = None
    spark_version: str | None = None

    def __post_init__(self) -> None:
        self.job = self.declared
        self.waits = WaitLog(_log)
        self.took: dict[str, str] = {}
        self.clock = self.control.clock
        self.began = self.clock.monotonic()

    # Under the operation lock.

    def begin(self, operation: Operation, obey_desired: bool, why: str) -> StartResult | None:
        """Make sure that a driver holds the lease; a result only where nothing is left to wait for."""
        desired = self.control.desired()
        if (stopped := _left_stopped(self.job, desired, obey_desired)) is not None:
            return replace(stopped, seconds=self._seconds())
        if (view := self.control.lease.view()) is None or view.free:
            # With the lock in hand: an upgrade may have chosen another code while this start waited for it.
            self._choose()
            self.standing = check_site(self.job, self.control)
            self.spark_version = check_launch(self.job, self.control, self.launcher)
        else:
            check_own_site(self.job, self.control)  # nothing may be launched: the other one is not waited for
        if desired is None or desired.state != "running":
            self.control.signer.require_place()  # what is refused later would be meant to run all the same
            desired = self.control.set_desired("running", by=self.by, why=why)
        view = self.control.lease.settle()
        if view is not None and not view.free:
            self._go_along(view)
            return None
        self.standing = self.standing or check_site(self.job, self.control)
        check_launched_here(self.job, self.control, view)
        left = drivers_left(self.launcher, self.control, view)
        kept = None if self.held is None else self.held.spec.launch_id
        for one in left.held:
            if one.launch_id != kept:
                self.launcher.kill(one)  # without a release it cannot take the lease: it is not waited for
        if end_drivers(self.launcher, self.control, left.doomed):
            _log.warning("A driver of job %s that should no longer run was ended.", self.job.name)
        if left.coming:
            # A start that was killed left it behind, or its cluster brings it back.
            self.state, self.handle = "already-running", left.coming[0]
            self.launch = read_launch(self.control, self.handle.launch_id)
        else:
            self._launch(operation, desired.number, why, self._waiting())
        return self._wait_for_lease()

    def _choose(self) -> None:
        """Settle which code counts, and with which arguments: these are of this launch alone."""
        self.job, self.chosen = as_chosen(self.declared, self.control)
        if self.args is not None:
            self.job = replace(self.job, args=self.args)

    def _waiting(self) -> Waiting | None:
        held = self.held
        there = held is not None and self.launcher.status(held.handle).state == "running"
        return held if there and held is not None and is_held(held.spec, self.control) else None

    def _go_along(self, view: ClaimView) -> None:
        if view.holder is None or view.state != "live" or not view.is_driver:
            raise self.control.lease.refusal(view)
        self.state, self.view = "already-running", view
        launch_id = view.launch_id
        self.launch = read_launch(self.control, launch_id) if launch_id else None
        if self.args is not None and self.launch is not None and self.launch.args != self.args:
            self.warnings = (_OTHER_ARGS,)
        log = self.launch.log if self.launch else None
        self.handle = launched_handle(self.control, str(launch_id), view.holder.processes, log)
        if self.handle.submission is None or (self.launch is not None and self.launch.supervised):
            self._driver()  # nobody may ever have heard where it is, or it was brought back elsewhere

    def _launch(self, operation: Operation, desired: int, why: str, held: Waiting | None) -> None:
        self._choose()
        if self.job.copy is not None:
            settle_refresh(self.control, operation=operation)
        launch_id = held.spec.launch_id if held is not None else new_launch_id()
        log = self.launcher.log_path(self.control, launch_id)
        launch = prepare_launch(
            self.job,
            self.control,
            by=self.by,
            launch_id=launch_id,
            log=log,
            desired=desired,
            fresh_start=self.fresh_start,
            why=why,
            standing=self.standing,
        )
        code = self._code()
        self.launch = replace(launch, spark_version=self.spark_version, code=code.to_dict())
        asked = () if self.standing is None else self.standing.warnings
        self.warnings = (*asked, *_unrepeatable(self.control, self.launch))
        if held is not None and not is_same_launch(held.spec, self.launch):
            _log.warning("The driver of job %s that waits was launched for something else.", self.job.name)
            self.launcher.kill(held.handle)
            return self._launch(operation, desired, why, None)
        if held is None:
            write_launch(self.control, self.launch)
        operation.check()
        if held is None:
            self.handle = self.launcher.submit(self.job, self.control, self.launch)
        else:
            self.handle = held.handle
            release_launch(self.control, self.launch, held.secret)
        where = self.handle.log or self.handle.submission
        _log.info("The driver of job %s was launched: %s, log %s", self.job.name, launch_id, where)
        self.control.record_event(
            "launched",
            launch_id=launch_id,
            by=dict(self.by),
            why=why,
            spark_version=self.spark_version,
            pids=[one.pid for one in self.handle.processes],
            **in_cluster(self.handle),
            generations={name: query.generation for name, query in self.launch.queries.items()},
        )
        record_location(self.control, self.handle)
        prune_and_tell(self.control)

    def _code(self) -> Code:
        """What is launched, of which a copy is kept: an upgrade may have to go back to it."""
        program = read_program(self.job.application, self.job.spark)
        code = Code.of(self.declared, program) if self.chosen is None else self.chosen.code
        assert code is not None, "what was chosen is code"
        try:
            if self.chosen is None:
                settle_choice(self.declared, self.control, by=self.by)
            if not self.declared.redirects:  # the copy of a drill is gone soon, and nothing goes back to it
                vouch(self.control, "code", code.to_dict())  # declared or proven, and so kept or not
            why = "it cannot be read here" if program is None else keep(self.control, program)
            launched = set() if code.program is None else {code.program}
            drop_old(self.control, launched | needed_programs(self.control))
        except StreambankError as error:
            why = error.message
        if why is not None:
            self.control.record_event(NOT_KEPT, application=code.application, why=why)
        return code

    def _wait_for_lease(self) -> StartResult | None:
        assert self.handle is not None, "a driver was launched or found"
        while True:
            driver = self._driver()
            view = self.control.lease.view()
            if driver.state == "ended" and view is not None and view.state == "unknown":
                view = self.control.lease.settle()  # another driver's, on another host
            ours = is_of(view, self.handle.launch_id)
            if view is not None and ours:
                self.view = view
                if not view.free:
                    self._locate()
                    return None
                if driver.state == "ended":
                    return self._ended(view, driver)
            elif driver.state == "ended":
                if view is not None and view.state == "live":  # another driver was faster, without the lock
                    self._go_along(view)
                    return None
                raise self._died(driver)
            if self._over():
                stuck = ours and self.handle.submission is not None
                if stuck:  # it had the lease, and neither ends nor takes it again: no start would see it run
                    end_drivers(self.launcher, self.control, [self.handle])
                raise self._too_late("has not taken the lease", ended=stuck)
            self.waits(
                f"The driver of job {self.job.name} is starting",
                partial(self._last_took, "launched", "driver-started"),
            )
            self.clock.sleep(_LOOK_S if self.handle.submission is None else _CLUSTER_LOOK_S)

    def _driver(self) -> DriverState:
        """How the driver is; one whose cluster cannot be asked is taken to run until the time is over."""
        assert self.handle is not None, "a driver was launched or found"
        try:
            self.handle, driver = find_driver(self.launcher, self.control, self.handle, self.launch)
            return driver
        except StorageError as error:
            self.waits(f"It is not known whether the driver of job {self.job.name} runs: {error.message}")
            return DriverState("running")

    def _locate(self) -> None:
        """Leave behind where a driver in a cluster is, so that others find its log and its page."""
        if self.handle is None or self.handle.submission is None:
            return
        driver = self._driver()
        log, tracking = driver.log or self.handle.log, driver.tracking or self.handle.tracking
        self.handle = replace(self.handle, log=log, tracking=tracking)
        record_location(self.control, self.handle)

    # Without it.

    def finish(self, wait: bool) -> StartResult | None:
        """Wait until the driver is ready; None where one that was found running is gone: begin again."""
        while wait:
            view = self.control.lease.view()
            if view is None or self.view is None or view.epoch != self.view.epoch or view.free:
                return self._gone(view)
            self.view = view
            starts = query_starts(self.job.queries, self.launch, view.status)
            if are_done(starts) and (has_settled(view) or self._over()):
                break
            if self._over():
                raise self._too_late("is not ready", why=self._why_not_ready(starts))
            self.waits(
                f"Waiting for the first batch of job {self.job.name}, {view.describe()}",
                partial(self._last_took, "driver-started", "first-trigger"),
            )
            self.clock.sleep(_LOOK_S)
        return self._result(self.state)

    def _last_took(self, begin: str, end: str) -> str:
        """How long the last driver took between two kinds of events, for people; empty where none says it.

        One that an upgrade let wait is no measure.
        """
        if end in self.took:
            return self.took[end]
        ends: dict[str, datetime] = {}
        self.took[end] = ""
        try:
            newest = islice(self.control.event_records.newest_first(), _SEARCHED_EVENTS)
            events = [one.data for one in newest if isinstance(one.data.get("launch_id"), str)]
            waited = {one["launch_id"] for one in events if one.get("kind") == WAITING}
            for one in events:
                launch, kind = one["launch_id"], one.get("kind")
                if launch not in waited and kind in (begin, end):
                    at = from_json_time(str(one.get("at")))
                    if kind == begin and launch in ends:
                        took = say_duration(round((ends[launch] - at).total_seconds()))
                        self.took[end] = f" (the last one took {took})"
                        break
                    if kind == end:
                        ends.setdefault(launch, at)
        except (StreambankError, ValueError):
            pass  # nobody waits for this
        return self.took[end]

    def _gone(self, view: ClaimView | None) -> StartResult | None:
        if self.state == "already-running" and not self.control.is_stopped() and not self._over():
            self.state, self.view = "started", None
            return None
        return self._ended(view, self._driver() if self.handle else DriverState("ended"))

    def _ended(self, view: ClaimView | None, driver: DriverState) -> StartResult:
        """The driver is gone: it was stopped, ran to its end, or died."""
        if self.control.is_stopped():
            return self._result("not-desired")
        self.view = view
        clean = view is not None and view.state == "ended" and view.end.get("exit_code") == 0
        if clean and is_of(view, self.handle.launch_id if self.handle else None):
            return self._result("finished")
        raise self._died(driver)

    def _result(self, state: StartState) -> StartResult:
        view, launch = self.view, self.launch
        pids = {one.role: one.pid for one in view.holder.processes} if view and view.holder else {}
        queries = launch.queries if launch else {}
        batches = {name: batches_of(query.checkpoint).committed for name, query in queries.items()}
        known = [batch for batch in batches.values() if batch is not None]
        starts = {} if state == "not-desired" else self._starts()
        desired = self.control.desired() if state == "not-desired" else None
        return StartResult(
            job=self.job.name,
            state=state,
            epoch=view.epoch if view else None,
            launch_id=launch.launch_id if launch else None,
            host=view.holder.host.host if view and view.holder else None,
            pid=pids.get("python"),
            jvm_pid=pids.get("jvm"),
            batch=min(known) if known and len(known) == len(batches) else None,
            batches=batches,
            queries=starts,
            generations={name: query.generation for name, query in queries.items()},
            log=(launch.log if launch else None) or (self.handle.log if self.handle else None),
            submission=self.handle.submission if self.handle else None,
            tracking=self.handle.tracking if self.handle else None,
            seconds=self._seconds(),
            warnings=self.warnings,
            code=self.chosen.words if self.chosen is not None and state == "started" else "",
            why=desired.words if desired is not None else "",
        )

    def _starts(self) -> dict[str, QueryStart]:
        """What each query has done, by the driver's last word where it has ended."""
        said = self.view.status if self.view else {}
        if (ended := self._last_word()) is not None:
            batches, failed = ended.get("batches") or {}, ended.get("failed") or {}
            about = {
                name: {"batch": batches[name], "over": True, "failed": name in failed} for name in batches
            }
            said = {"queries": about}
        return query_starts(self.job.queries, self.launch, said)

    def _last_word(self) -> JsonDict | None:
        """What the driver recorded at its end; None for one that lives, or was killed."""
        if self.view is None or not self.view.free or self.launch is None:
            return None
        return self.control.last_word(self.launch.launch_id)

    def _seconds(self) -> float:
        return round(self.clock.monotonic() - self.began, 3)

    def _over(self) -> bool:
        return self.clock.monotonic() - self.began >= self.timeout_s

    def _died(self, driver: DriverState) -> StreambankError:
        exit_code = driver.exit_code
        if exit_code is None and self.view is not None:
            exit_code = self.view.end.get("exit_code")
        if exit_code is None and self.launch is not None:
            # What a cluster says is no exit code; a driver that was refused has left its own behind.
            launch_id = self.launch.launch_id
            refused = refusal(self.control, launch_id, newest=RECENT_EVENTS)
            exit_code = (refused or {}).get("exit_code")
        code = f" with exit code {exit_code}" if exit_code is not None else ""
        died = self.launch.launch_id if self.launch else None
        self.control.record_event("driver-died", launch_id=died, exit_code=exit_code)
        lines = self._log_lines()
        failure = driver_failure(self.control, died, lines)
        why = f": {failure.sentence.rstrip('.;')}" if failure else ""
        message = f"The driver of job {self.job.name} ended{code} {self._how_far()}{why}."
        if self.launch is not None:
            checkpoints = {name: query.checkpoint for name, query in self.launch.queries.items()}
            launch_id = self.launch.launch_id
            lost = unloadable(self.job, self.control, launch_id, checkpoints, lines, message)
            if lost is not None:
                return lost
        if exit_code == RefusedError.exit_code:
            hint = f"{failure.hint}\n" if failure is not None and failure.hint else ""
            return RefusedError(message, code="driver-refused", hint=hint + self._log_hint(lines))
        return StorageError(message, code="driver-died", hint=self._log_hint(lines))

    def _how_far(self) -> str:
        """How far a driver had come that has died."""
        starts = self._starts()
        committed = [name for name, start in starts.items() if start == "committed"]
        if committed:
            several = f" of query {', '.join(committed)}" if len(starts) > 1 else ""
            return f"soon after the first batch{several}"
        ended = self._last_word()
        return "before it started a query" if ended and not ended.get("batches") else "before its first batch"

    def _why_not_ready(self, starts: Mapping[str, QueryStart]) -> str:
        failure = None
        if "failed" in starts.values() and self.launch is not None:
            failure = driver_failure(self.control, self.launch.launch_id, self._log_lines())
        return f": {say_starts(starts)}" + (f" ({failure.sentence.rstrip('.;')})" if failure else "")

    def _too_late(self, what: str, *, why: str = "", ended: bool = False) -> StorageError:
        left = "It is left running; another start finds it and waits for it. "
        left = "It was ended; another start launches a new one. " if ended else left
        return StorageError(
            f"The driver of job {self.job.name} {what} after {self.timeout_s:.0f} s{why}.",
            code="start-timeout",
            hint=left + self._log_hint(self._log_lines()),
        )

    def _has_log(self) -> bool:
        return self.handle is not None and (self.handle.log or self.handle.submission) is not None

    def _log_lines(self) -> list[str]:
        if self.handle is not None and self._has_log():
            with suppress(StorageError):  # a death counts, and is told, whether its log can be read or not
                return self.launcher.log_lines(self.handle, SEARCHED_LINES)
        return []

    def _log_hint(self, lines: list[str]) -> str:
        """Where the driver's log is, and the last exception in it; without one, how it ends."""
        if self.handle is None or not self._has_log():
            return "Look at the driver's own log."
        known = [*self.warnings]
        known += [self._leftovers_hint()] if any(LEFTOVERS in line for line in lines) else []
        log = self.handle.log or self.handle.submission
        failure = failure_in(lines)
        if failure is not None and _OTHER_SOURCE in failure.cause:
            known.append(_OTHER_SOURCE_HINT)
        shows, where = failure.lines if failure else (), f"Its log is {log}{' and ends:' if lines else '.'}"
        if shows:
            where = f"Its log is {log}. The exception in it:"
        return "\n".join([*known, where, *(shows or map(shown, lines[-_LAST_LINES:]))])

    def _leftovers_hint(self) -> str:
        """What to do where Spark finds files of a first batch that was never planned."""
        queries = self.launch.queries.values() if self.launch else ()
        ask = " or ".join(f"`streambank doctor {query.checkpoint}`" for query in queries)
        return (
            "A checkpoint has files of a first batch that was never planned: "
            f"{ask or '`streambank doctor CHECKPOINT`'} says whether its state may be moved "
            "aside (finding unplanned-first-batch), or a savepoint must be restored (offsets-lost)."
        )


def _unrepeatable(control: JobControl, launch: LaunchSpec) -> Iterator[str]:
    """What is lost where a query goes on from a source that gives no row twice."""
    for name, query in launch.queries.items():
        kafka = (control.query_facts(name) or {}).get("kafka") if query.committed is not None else None
        words = kafka.get("streams") if isinstance(kafka, Mapping) else None
        for what in sorted({cannot_repeat({"format": word}) or "" for word in words or ()} - {""}):
            yield (
                f"Query {name} goes on after batch {query.committed}, but its source ({what}) gives no row "
                "twice: what it has given since is lost, and Spark may fail in the next batch."
            )
