"""What Airflow says of the DAG that keeps a job running: whether it is paused, and whether its run is over.

A trigger cannot ask that, a task can. A DAG that is paused goes on leaving signs that it watches, from the
triggerer, while nothing that it wants to do is done any more: so whoever judges a job asks Airflow, too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from streambank.core.errors import StreambankError
from streambank.core.units import utc_now
from streambank.storage import using_s3

if TYPE_CHECKING:
    from airflow.sdk import Context

    from streambank.control.watch import WatchView
    from streambank_airflow.watch.sla import SlaSubject

_log = logging.getLogger(__name__)

PATIENCE_S = 120.0
"""How long the signs of watchers are waited for that are late although their runs go on."""
POLL_S = 5.0
"""How often they are looked for."""


def is_paused(context: Context, dag_id: str) -> bool | None:
    """Whether a DAG is paused; None where Airflow does not say, or does not know it."""
    found = _asked(lambda task: task.get_dag(dag_id).is_paused, context)
    return found if isinstance(found, bool) else None


def why_idle(context: Context, watcher: WatchView) -> tuple[str | None, str | None]:
    """Why a watcher cannot act, as Airflow knows it.

    Returns:
        The state of the watcher's run, None where this Airflow does not know it; and why the watcher cannot
        act, None where it can.
    """
    dag_id, run_id = watcher.by.get("dag_id"), watcher.by.get("run_id")
    if not dag_id or not run_id:
        return None, None
    state = _asked(lambda task: task.get_dagrun_state(dag_id, run_id), context)
    if state is None:
        return None, None
    state = str(getattr(state, "value", state))
    if state in ("success", "failed"):
        return state, f"its run is over ({state})"
    return state, f"{dag_id} is paused" if is_paused(context, dag_id) else None


def note_watchers(context: Context, subjects: Iterable[SlaSubject]) -> None:
    """Leave behind in the jobs' records whether their watchers can act. What cannot be asked ends nothing.

    After an outage of Airflow the triggerer takes its time until it has all its triggers back, and a run that
    was missed may judge before. So where Airflow says that a watcher's run goes on and its signs are missing,
    the next sign is waited for, at most `PATIENCE_S` for all jobs together.
    """
    silent = [subject for subject in subjects if _note_watcher(context, subject)]
    give_up_s = time.monotonic() + PATIENCE_S
    while silent and time.monotonic() < give_up_s:
        _log.info(
            "Waiting for the next sign of the run that watches %s.", ", ".join(one.ref for one in silent)
        )
        time.sleep(POLL_S)
        silent = [one for one in silent if _note_watcher(context, one)]


def _note_watcher(context: Context, subject: SlaSubject) -> bool:
    """Leave that behind for one job; whether its watcher can act by what Airflow says, and is silent."""
    if subject.job is None:
        return False
    try:
        with using_s3(subject.access):
            watches = subject.job.records().watches
            watcher = watches.view()
            if watcher is None or watcher.end:
                return False
            state, why = why_idle(context, watcher)
            if state is not None:
                watches.note_idle(watcher, why)
            return state == "running" and why is None and watcher.is_silent(utc_now())
    except StreambankError as error:
        _log.warning(
            "Whether the run that watches %s can act could not be checked: %s", subject.ref, error.message
        )
        return False


def _asked(ask: Callable[[Any], Any], context: Context) -> Any:
    try:
        return ask(context["ti"])
    except Exception as error:
        # An Airflow without that answer, or one that does not know the run: nothing is known then.
        _log.info("Airflow did not answer: %s", error)
        return None
