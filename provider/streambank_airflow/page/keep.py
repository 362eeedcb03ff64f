"""Keeps a job's page: at the end of the tasks that work on it, and beside the watch of its run.

The page is a service of these processes, never their work. What goes wrong here is one warning, and the task
or the watch goes on. A storage that hangs holds up neither of them.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import cache, partial
from hashlib import blake2b
from threading import Thread
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async

from streambank.core.errors import StreambankError
from streambank.core.names import SEPARATOR
from streambank_airflow.configuration import page_has_log, page_is_on
from streambank_airflow.failures import said
from streambank_airflow.page.store import LINE, PageStore, values_of

if TYPE_CHECKING:
    from streambank.declaration.declaration import Job
    from streambank.overview.snapshot import Snapshot
    from streambank_airflow.hooks.streambank import StreambankHook

log = logging.getLogger(__name__)

PATIENCE_S = 8.0
"""How long a task waits for its page, in seconds.

Airflow ends what takes 20 after the task's own end (`[core] task_success_overtime`), and alerts may take 10.
"""
LINE_EVERY_S = 60.0
"""How often a watch keeps the line."""
ALL_EVERY_S = 600.0
"""How often it keeps all parts; at once where another driver runs."""
MOST_THREADS = 4
"""How many pages a triggerer makes at once, whatever the number of its jobs: others wait for their turn."""
LATE_S = 300.0
"""After how many seconds a page that is not made yet is a warning."""
IDENTITY = "identity"
"""Field of the line that tells jobs of one name apart."""
TRIES = 2
"""How often a snapshot is made where another process has kept one meanwhile."""


def keep_page(
    hook: StreambankHook,
    job: str,
    parts: Collection[str] | None = None,
    *,
    patience_s: float | None = None,
    is_new: bool = True,
) -> bool:
    """Make the snapshot of a job and keep it.

    Args:
        hook: Finds the job.
        job: The declared job's name.
        parts: Which parts are made; None for all that are made by default.
        patience_s: How long the snapshot may take, in seconds; it is made in a thread then. None for ever.
        is_new: Whether it is kept for a job, too, of which nothing has been kept so far, and over what was
            kept for another job of the same name.

    Returns:
        Whether it was kept: False for a job that the jobs file does not declare.

    Raises:
        StreambankError: The jobs file is wrong, or the job cannot be found.
        TimeoutError: The snapshot took too long.
        Exception: Airflow did not take it, or something that must not happen did.
    """
    store = PageStore(values_of(job))
    until = None if patience_s is None else time.monotonic() + patience_s
    line, made = store.line(), None
    for _try in range(TRIES):
        before = line
        if before is None and not is_new:
            return False
        make = partial(_snapshot, hook, job, before, parts, is_new)
        made = make() if until is None else _within(max(0.0, until - time.monotonic()), make, patience_s)
        if made is None:
            return False
        # What another process has kept meanwhile is newer than what this one began with.
        if (line := store.line()) == before:
            break
    assert made is not None, "at least one was made"
    store.keep(made.line, made.parts, line)
    return True


def _snapshot(
    hook: StreambankHook,
    job: str,
    before: Mapping[str, Any] | None,
    parts: Collection[str] | None,
    is_new: bool,
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
        if known is None and not is_new:
            return None
        # Of another job of this name nothing is taken over.
        made = snapshot(declared, before=None if known is None else Snapshot(known), parts=parts)
    line = {**made.line, IDENTITY: identity}
    if not page_has_log():
        line["parts"] = {name: one for name, one in made.line["parts"].items() if name != "log"}
    return Snapshot(line, made.parts)


def identity_of(job: Job) -> str:
    """Tells jobs of one name apart, by where their records, checkpoints and savepoints are; says no place.

    By the declaration alone: the page shows a storage that cannot be reached, too.
    """
    places = [job.control, job.repository, *sorted(job.queries.values())]
    return blake2b("\n".join(map(str, places)).encode(), digest_size=8).hexdigest()


def keep_after_task(context: Mapping[str, Any]) -> None:
    """A callback of a task that has ended well, failed, or is tried again: keep the page of its job.

    Airflow calls it once the task's state is recorded, so it does not hold up what comes after the task. A
    DAG that is none of the job's own need not name the asset with which its page is kept, and Airflow would
    log that as an error: it keeps a page only where there is one.

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
    is_own = instance.dag_id.startswith(f"{job}.")
    try:
        keep_page(task.hook, job, task.page_parts, patience_s=PATIENCE_S, is_new=is_own)
    except Exception as error:
        _warn(job, error)


def job_of(task: Any) -> str | None:
    """The job whose page a task keeps; None for a task on a copy, on several jobs, or not rendered yet."""
    job = getattr(task, "job", None)
    if not isinstance(job, str) or not job or "{" in job or SEPARATOR in job:
        return None
    return None if getattr(task, "checkpoint", None) else job.partition("/")[0]


class WatchedPage:
    """Keeps a job's page beside its watch, in a thread: the watch itself is never held up.

    Args:
        hook: Finds the job.
        job: The declared job's name.
        clock: Seconds on a clock that never jumps.
    """

    def __init__(self, hook: StreambankHook, job: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._hook, self._job, self._clock = hook, job, clock
        self._work: asyncio.Future[None] | None = None
        self._driver: str | None = None
        self._line_at: float | None = None
        # After a start of the triggerer not all of its jobs at once.
        self._all_at = clock() - ALL_EVERY_S + random.uniform(0, LINE_EVERY_S)
        self._failed = False
        self._begun_at = 0.0
        self._late = False

    def after_look(self, driver: str | None) -> None:
        """Begin to keep what is due, unless the last time is not over yet; on the loop of the triggerer.

        Args:
            driver: The newest launch; where it changes, everything is due.
        """
        now = self._clock()
        if self._work is not None and not self._work.done():
            if now - self._begun_at > LATE_S and not self._late:
                self._late = True
                log.warning(
                    "The page of job %s has been under way for %g s.", self._job, now - self._begun_at
                )
            return
        is_other = driver != self._driver and self._line_at is not None
        if is_other or now - self._all_at >= ALL_EVERY_S:
            self._all_at = self._line_at = now
            parts = None
        elif self._line_at is None or now - self._line_at >= LINE_EVERY_S:
            self._line_at = now
            parts = (LINE,)
        else:
            return
        self._driver, self._begun_at, self._late = driver, now, False
        # By asgiref: Airflow before 3.2 answers no other threads of its triggerer.
        keep = sync_to_async(self._keep, thread_sensitive=False, executor=_threads())
        self._work = asyncio.ensure_future(keep(parts))

    def _keep(self, parts: Collection[str] | None) -> None:
        try:
            keep_page(self._hook, self._job, parts)
            self._failed = False
        except Exception as error:
            if not self._failed:
                _warn(self._job, error)
            self._failed = True


def page_of_watch(hook: StreambankHook, job: str) -> WatchedPage | None:
    """What keeps the page beside the watch of a job; None where the page is off, or the job is a copy."""
    if SEPARATOR in job or not page_is_on():
        return None
    return WatchedPage(hook, job.partition("/")[0])


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="streambank-page")


def _within(left_s: float, make: Callable[[], Snapshot | None], patience_s: float | None) -> Snapshot | None:
    """Make a snapshot in a thread, and wait for it for what is left of the patience.

    Raises:
        TimeoutError: It took longer.
    """
    future: Future[Snapshot | None] = Future()

    def run() -> None:
        try:
            future.set_result(make())
        except BaseException as error:
            future.set_exception(error)

    # No thread of a pool: the process must be able to end although this one hangs.
    Thread(target=copy_context().run, args=(run,), name="streambank-page", daemon=True).start()
    try:
        return future.result(left_s)
    except TimeoutError:
        if future.done():
            raise
        raise TimeoutError(f"it was not made within {patience_s:g} s") from None


def _warn(job: str, error: Exception) -> None:
    how = said(error) if isinstance(error, StreambankError) else f"{type(error).__name__}: {error}"
    log.warning("The page of job %s could not be kept: %s", job, how.splitlines()[0])
