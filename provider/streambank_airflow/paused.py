"""What Airflow says of the DAG that keeps a job running: whether it is paused, and whether its run is over.

A trigger cannot ask that, a task can. A DAG that is paused goes on leaving signs that it watches, from the
triggerer, while nothing that it wants to do is done any more: so whoever judges a job asks Airflow, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from streambank.errors import StreambankError
from streambank.storage import using_s3

if TYPE_CHECKING:
    from airflow.sdk import Context

    from streambank.job.watch import WatchView
    from streambank_airflow.judging import SlaSubject

_log = logging.getLogger(__name__)


def is_paused(context: Context, dag_id: str) -> bool | None:
    """Whether a DAG is paused; None where Airflow does not say, or does not know it.

    Args:
        context: That of a task that runs.
        dag_id: The DAG.
    """
    found = _asked(lambda task: task.get_dag(dag_id).is_paused, context)
    return found if isinstance(found, bool) else None


def why_idle(context: Context, watcher: WatchView) -> tuple[bool, str | None]:
    """Why a watcher cannot act, as Airflow knows it.

    Args:
        context: That of a task that runs.
        watcher: The watcher.

    Returns:
        Whether this Airflow knows the watcher's run, and why it cannot act; None where it can.
    """
    dag_id, run_id = watcher.by.get("dag_id"), watcher.by.get("run_id")
    if not dag_id or not run_id:
        return False, None
    state = _asked(lambda task: task.get_dagrun_state(dag_id, run_id), context)
    if state is None:
        return False, None
    state = str(getattr(state, "value", state))
    if state in ("success", "failed"):
        return True, f"its run is over ({state})"
    return True, f"{dag_id} is paused" if is_paused(context, dag_id) else None


def note_watcher(context: Context, subject: SlaSubject) -> None:
    """Leave behind in a job's records whether its watcher can act. What cannot be asked ends nothing.

    Args:
        context: That of a task that runs.
        subject: The job.
    """
    if subject.job is None:
        return
    try:
        with using_s3(subject.access):
            watches = subject.job.records().watches
            watcher = watches.view()
            if watcher is None or watcher.end:
                return
            known, why = why_idle(context, watcher)
            if known:
                watches.note_idle(watcher, why)
    except StreambankError as error:
        _log.warning("Whether %s can act was not asked: %s", subject.ref, error.message)


def _asked(ask: Callable[[Any], Any], context: Context) -> Any:
    try:
        return ask(context["ti"])
    except Exception as error:
        # An Airflow without that answer, or one that does not know the run: nothing is known then.
        _log.info("Airflow does not say: %s", error)
        return None
