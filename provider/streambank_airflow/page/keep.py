"""Keeps a job's page: at the end of the tasks that work on it, and beside the watch of its run.

The page is a service of these processes, never their work. What goes wrong here is one warning, and the task
or the watch goes on. A storage that hangs holds up neither of them.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Collection, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from hashlib import blake2b
from threading import Lock
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async

from streambank.core.errors import StreambankError
from streambank.core.json_text import loads
from streambank.core.names import SEPARATOR
from streambank.core.patience import Waited
from streambank.core.units import from_json_time, utc_now
from streambank_airflow.configuration import page_has_log, page_is_on
from streambank_airflow.failures import said
from streambank_airflow.hints import WORKS, in_data, is_own_dag
from streambank_airflow.page.names import job_of, page_name
from streambank_airflow.page.pace import LINES_TO_ALL, SPREAD, THREADS, WatchPace
from streambank_airflow.page.store import DAGS, LINE, NoPageError, PageStore, PageValues, as_json, values_of

if TYPE_CHECKING:
    from streambank.declaration.declaration import Job
    from streambank.overview.snapshot import Snapshot
    from streambank_airflow.hooks.streambank import StreambankHook

log = logging.getLogger(__name__)

LINE_PATIENCE_S = 2.0
"""How long a task waits for the line of a page that was not made in time, in seconds."""
PATIENCE_S = 6.0
"""How long a task waits for its page before that, in seconds.

Airflow ends what takes 20 after the task's own end (`[core] task_success_overtime`), and alerts may take 10.
"""
URGENT_THREADS = 2
"""How many pages more it makes at once of what cannot wait: a job that has changed its state."""
LATE_S = 300.0
"""After how many seconds a page that is not made yet is a warning."""
AGAIN_S = 15.0
"""After how many seconds a watch tries again to keep what it could not; after twice as many the next time."""
IDENTITY = "identity"
"""Field of the line that tells jobs of one name apart."""
NEXT_S = "next_s"
"""Field of the line: after how many seconds the watch of the job keeps the next one; none without a watch."""
KEPT_S = 86_400.0
"""For so long, in seconds, a DAG of one's own leaves what is kept of another job of the same name."""
MOST_DAGS = 100
"""How many DAGs of one's own are noted of a job."""
NOT_NAMED = (
    "The page in Airflow does not show job %s: no DAG file names it. Give a task of such a DAG "
    'inlets=[page_asset("%s")], from streambank_airflow.assets, if it is to.'
)
UNNAMED_S = 3600.0
"""After how many seconds a watch tries again to keep the page of a job that no DAG file names."""
OTHER_JOB = "The page in Airflow shows another job %s, of another file or place, and so not this job %s."
TRIES = 2
"""How often a snapshot is made where another process has kept one meanwhile."""


def keep_page(
    hook: StreambankHook,
    job: str,
    parts: Collection[str] | None = None,
    *,
    patience_s: float | None = None,
    is_new: bool = True,
    takes_over: bool = True,
) -> bool:
    """Make the snapshot of a job and keep it.

    Args:
        parts: Which parts are made; None for all that are made by default.
        patience_s: How long the snapshot may take, in seconds; it is made in a thread then. None for ever.
        is_new: Whether it is kept for a job, too, of which nothing has been kept so far.
        takes_over: Whether it is kept over what was kept for another job of the same name, within a day.

    Returns:
        Whether it was kept: False for a job that the jobs file does not declare.

    Raises:
        TimeoutError: The snapshot took too long.
        Exception: Airflow did not take it, or something that must not happen did.
    """
    until = None if patience_s is None else time.monotonic() + patience_s

    def make(before: Mapping[str, Any] | None) -> Snapshot | None:
        if before is None and not is_new:
            return None
        one = partial(_snapshot, hook, job, before, parts, takes_over)
        return one() if until is None else _within(max(0.0, until - time.monotonic()), one, patience_s)

    store = PageStore(values_of(job))
    return _made_and_kept(store, store.line(), make) is not None


def _made_and_kept(
    store: PageStore,
    line: Mapping[str, Any] | None,
    make: Callable[[Mapping[str, Any] | None], Snapshot | None],
) -> Mapping[str, Any] | None:
    """Make a snapshot and keep it.

    Args:
        line: The line that was kept last, as it is known.
        make: Makes the snapshot, given that line; None for a job that is not kept.
    """
    made = None
    for _try in range(TRIES):
        before = line
        made = make(before)
        if made is None:
            return None
        # What another process has kept meanwhile is newer than what this one began with.
        if (line := store.line()) == before:
            break
    assert made is not None, "at least one was made"
    store.keep(made.line, made.parts, line)
    return made.line


def _snapshot(
    hook: StreambankHook,
    job: str,
    before: Mapping[str, Any] | None,
    parts: Collection[str] | None,
    takes_over: bool,
    next_s: float | None = None,
) -> Snapshot | None:
    """The snapshot of a job; None for one that is not declared, or is not the one that was kept."""
    from streambank.overview.snapshot import DEFAULT_PARTS, Snapshot, snapshot

    declared = hook.declared.get(job)
    if declared is None:
        return None
    if not page_has_log():
        parts = [one for one in (DEFAULT_PARTS if parts is None else parts) if one != "log"]
    with hook.declared.access():
        identity = identity_of(declared)
        known = before if before is not None and before.get(IDENTITY) == identity else None
        if known is None and before is not None and not takes_over and _is_kept(before):
            return None
        # Of another job of this name nothing is taken over.
        made = snapshot(declared, before=None if known is None else Snapshot(known), parts=parts)
    # A task that keeps the line between two of the watch changes nothing of when that keeps the next.
    watched = bool((made.line.get("watch") or {}).get("watched"))
    due_s = round(next_s) if next_s is not None else (known or {}).get(NEXT_S) if watched else None
    line = {**made.line, NEXT_S: due_s if isinstance(due_s, int) else None, IDENTITY: identity}
    if not page_has_log():
        line["parts"] = {name: one for name, one in made.line["parts"].items() if name != "log"}
    return Snapshot(in_data(line, job), in_data(made.parts, job))


def identity_of(job: Job) -> str:
    """Tells jobs of one name apart, by where their records, checkpoints and savepoints are; says no place.

    By the declaration alone: the page shows a storage that cannot be reached, too.
    """
    places = [job.control, job.repository, *sorted(job.queries.values())]
    return blake2b("\n".join(map(str, places)).encode(), digest_size=8).hexdigest()


def _is_kept(line: Mapping[str, Any]) -> bool:
    """Whether a line is so young that whoever has kept it will keep the next one."""
    try:
        return (utc_now() - from_json_time(str(line.get("at")))).total_seconds() < KEPT_S
    except ValueError:
        return False


def keep_after_task(context: Mapping[str, Any]) -> None:
    """A callback of a task that has ended well, failed, or is tried again: keep the page of its job.

    Airflow calls it once the task's state is recorded, so it does not hold up what comes after the task. A
    DAG whose file does not name the job, since it comes from a template or is mapped, need not have the asset
    with which its page is kept, and Airflow would log that as an error: it keeps a page only where there is
    one.

    Callbacks of a task that was killed run in Airflow's DAG processor, one after the other, which need not
    reach the storage and answers nothing that is asked of the asset state store: nothing is kept there. Only
    a task's own process puts `exception` into the context, whatever the end.
    """
    if "exception" not in context:
        return
    instance = context["ti"]
    task = instance.task
    job = job_of(task)
    if job is None or not page_is_on():
        return
    is_own = is_own_dag(getattr(task, "dag", None))
    # As its file has the tasks: what is mapped, or rendered, knows more by now.
    is_named = not is_own or _is_named(job, task.dag)
    how = {"is_new": is_named, "takes_over": not is_own}
    try:
        is_kept = _keep_in_time(task, job, **how)
        if task.page_parts == ():
            return  # what only looks at a job is none of its DAGs
        if is_own and is_kept:
            note_dag(values_of(job), instance.dag_id, task)
        elif not is_kept and not is_named:
            _say_unnamed(job)
        elif not is_kept and context["exception"] is None:
            log.info(OTHER_JOB, job, job)
    except Exception as error:
        _warn(job, error)


def _keep_in_time(task: Any, job: str, **how: bool) -> bool:
    """Keep the page, or at least its line, which is made at once: it says whether the job runs.

    Raises:
        TimeoutError: The line took too long, too.
    """
    try:
        return keep_page(task.hook, job, task.page_parts, patience_s=PATIENCE_S, **how)
    except TimeoutError as error:
        try:
            is_kept = keep_page(task.hook, job, (), patience_s=LINE_PATIENCE_S, **how)
        except TimeoutError:
            raise error from None
        log.warning("Of the page of job %s only the line could be kept: %s", job, error)
        return is_kept


def _is_named(job: str, dag: Any) -> bool:
    """Whether a task of a DAG has the asset of the job's page as an inlet."""
    return any(getattr(one, "name", None) == page_name(job) for task in dag.tasks for one in task.inlets)


def note_dag(values: PageValues, dag_id: str, task: Any) -> None:
    """Note which DAG of one's own has worked on a job, and how: its file need not say that (own_dags.py).

    Two tasks that end at once may write over each other; then it is noted by the next one.
    """
    verbs = {WORKS[kind.__name__] for kind in type(task).__mro__ if kind.__name__ in WORKS}
    known = values.get(DAGS)
    dags = known if isinstance(known, dict) else {}
    before = dags.get(dag_id)
    if isinstance(before, dict) and isinstance(before.get("verbs"), list):
        verbs = verbs.union(map(str, before["verbs"]))
    now = {"on": utc_now().date().isoformat(), "verbs": sorted(verbs)}
    if now != before:
        others = sorted(dags.items(), key=lambda one: str(one[1]))[-MOST_DAGS:]
        values.set(DAGS, {**dict(others), dag_id: now})


class WatchedPage:
    """Keeps a job's page beside its watch, in a thread: the watch itself is never held up.

    The line is kept each minute, or as often as all watches of the process can (pace.py); at once where the
    job has changed, by threads that wait for nothing else. All parts are kept with each tenth line, and soon
    after another driver runs. What could not be kept is tried again soon.

    Args:
        clock: Seconds on a clock that never jumps.
        pace: The pace of all watches of a process; that of this process when left out.
        takes_over: Whether it is kept over what was kept for another job of the same name, within a day.
    """

    def __init__(
        self,
        hook: StreambankHook,
        job: str,
        clock: Callable[[], float] = time.monotonic,
        pace: WatchPace | None = None,
        *,
        takes_over: bool = True,
    ) -> None:
        self._hook, self._job, self._clock, self._takes_over = hook, job, clock, takes_over
        self._pace = pace or _pace()
        self._work: asyncio.Future[None] | None = None
        self._turn: _Turn | None = None
        self._seen: tuple[str | None, Hashable] | None = None
        self._line_at = self._pace.join(self, clock())
        # After a start of the triggerer not all of its jobs at once.
        self._all_at = self._line_at + random.uniform(0, self._pace.every_s())
        self._kept: str | None = None
        self._failures = 0
        self._begun_at = 0.0
        self._unnamed_until = 0.0
        self._late = False

    def after_look(self, driver: str | None, state: Hashable = None) -> None:
        """Begin to keep what is due, unless the last time is not over yet; on the loop of the triggerer.

        Args:
            driver: The newest launch; where it changes, the line is due, and then everything.
            state: What else of the job must be seen at once; where it changes, the line is due.
        """
        now, seen = self._clock(), (driver, state)
        if now < self._unnamed_until:
            return
        before = self._seen or seen
        is_urgent = seen != before
        self._seen = before
        if self._turn is not None and self._work is not None and not self._work.done():
            # What is urgent already, and waits, says what is true when it is made.
            if self._turn.is_urgent or not (is_urgent and self._turn.give_up()):
                self._warn_late(now)
                return
            if self._turn.parts is None:
                self._all_at = now
        elif not is_urgent and now < min(self._all_at, self._due_at()):
            return
        self._seen, self._begun_at, self._late = seen, now, False
        next_s = self._pace.next_s()
        self._line_at = now + next_s
        if driver != before[0]:
            self._all_at = now
        # All parts take long: what is urgent is the line, and the next look begins the rest.
        is_whole = now >= self._all_at and not is_urgent
        if is_whole:
            self._all_at = now + LINES_TO_ALL * self._pace.every_s()
        self._turn = turn = _Turn(None if is_whole else (LINE,), next_s, is_urgent)
        # By asgiref: Airflow before 3.2 answers no other threads of its triggerer.
        keep = sync_to_async(self._keep, thread_sensitive=False, executor=_threads(is_urgent))
        self._work = asyncio.ensure_future(keep(turn))

    def _due_at(self) -> float:
        """When the next line is due: sooner than it was said, where the pace has become faster since."""
        if self._turn is None:
            return self._line_at
        return min(self._line_at, self._begun_at + (1 + SPREAD) * self._pace.every_s())

    def _warn_late(self, now: float) -> None:
        if now - self._begun_at > LATE_S and not self._late:
            self._late = True
            log.warning("The page of job %s has been under way for %g s.", self._job, now - self._begun_at)

    def _keep(self, turn: _Turn) -> None:
        if not turn.begin():
            return
        began, processor = time.monotonic(), time.thread_time()
        try:
            self._make_and_keep(turn)
            self._failures = 0
        except NoPageError:
            self._kept = None
            _say_unnamed(self._job)
            self._unnamed_until = self._clock() + UNNAMED_S
        except Exception as error:
            self._kept = None
            if not self._failures:
                _warn(self._job, error)
            self._failures += 1
            self._try_again(turn)
        else:
            self._pace.kept(turn.parts is None, time.thread_time() - processor, time.monotonic() - began)

    def _try_again(self, turn: _Turn) -> None:
        """What could not be kept may say that the job is down: it is due again soon, then ever less often."""
        wait_s = min(AGAIN_S * 2.0 ** min(self._failures - 1, 10), self._pace.every_s())
        self._line_at = min(self._line_at, self._clock() + wait_s)
        if turn.parts is None:
            self._all_at = min(self._all_at, self._clock() + wait_s)

    def _make_and_keep(self, turn: _Turn) -> None:
        store = PageStore(values_of(self._job))
        # What this watch has kept last is what is there, unless a task has kept something since: that is seen
        # before this is kept.
        line = store.line() if self._kept is None else loads(self._kept)
        kept = _made_and_kept(
            store,
            line,
            lambda before: _snapshot(
                self._hook, self._job, before, turn.parts, self._takes_over, turn.next_s
            ),
        )
        self._kept = None if kept is None else as_json(kept)


class _Turn:
    """One time that a page is kept: it waits for a thread, and then has begun, or was given up before.

    Args:
        parts: Which parts are made; None for all.
        next_s: After how many seconds the next line is due.
        is_urgent: Whether it says that the job has changed.
    """

    def __init__(self, parts: Collection[str] | None, next_s: float, is_urgent: bool) -> None:
        self.parts, self.next_s, self.is_urgent = parts, next_s, is_urgent
        self._claim = Lock()

    def begin(self) -> bool:
        """Whether it may begin: it was not given up."""
        return self._claim.acquire(blocking=False)

    def give_up(self) -> bool:
        """Whether it was given up: it had not begun."""
        return self._claim.acquire(blocking=False)


def page_of_watch(hook: StreambankHook, job: str, *, takes_over: bool = True) -> WatchedPage | None:
    """What keeps the page beside the watch of a job; None where the page is off, or the job is a copy."""
    if SEPARATOR in job or not page_is_on():
        return None
    return WatchedPage(hook, job.partition("/")[0], takes_over=takes_over)


@cache
def _pace() -> WatchPace:
    return WatchPace()


@cache
def _threads(is_urgent: bool) -> ThreadPoolExecutor:
    """The threads that make pages; what is urgent has its own."""
    return ThreadPoolExecutor(URGENT_THREADS if is_urgent else THREADS, thread_name_prefix="streambank-page")


def _within(left_s: float, make: Callable[[], Snapshot | None], patience_s: float | None) -> Snapshot | None:
    """Make a snapshot in a thread, and wait for it for what is left of the patience.

    Raises:
        TimeoutError: It took longer.
    """
    # No thread of a pool: the process must be able to end although this one hangs.
    made = Waited(make, "streambank-page")
    if not made.ends_within(left_s):
        raise TimeoutError(f"it was not made within {patience_s:g} s")
    return made.result()


@cache
def _say_unnamed(job: str) -> None:
    """Say that a job has no page, and what to do: once in a process, since nothing is wrong with the job."""
    log.info(NOT_NAMED, job, job)


def _warn(job: str, error: Exception) -> None:
    how = said(error) if isinstance(error, StreambankError) else f"{type(error).__name__}: {error}"
    log.warning("The page of job %s could not be kept: %s", job, how.splitlines()[0])
