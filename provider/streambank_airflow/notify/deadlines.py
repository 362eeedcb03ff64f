"""The deadline of a restore: Airflow watches it, and this alerts when it is missed.

Airflow calls it in the triggerer, with the DAG run as a dict. Notifiers are loaded there and not before, so
that the DAG processor does not need what they import. Airflow counts a run as late that has failed in time:
what became of the run decides whether anybody is alerted, and with which words.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException

from streambank.core.errors import StreambankError
from streambank.core.json_text import loads
from streambank.core.units import from_json_time
from streambank.declaration.notify import Notify
from streambank_airflow.airflow_versions import AsyncCallback, named_deadline
from streambank_airflow.failures import describe
from streambank_airflow.hooks.connection import DEFAULT_CONN_ID

if TYPE_CHECKING:
    from airflow.sdk.definitions.deadline import DeadlineAlert

    from streambank.declaration.declaration import Job

log = logging.getLogger(__name__)
_PLACES = ("name", "folder", "dag_folder", "application", "checkpoint", "queries", "repository", "control")
_OF_TABLES = {
    "replicate": ("to",),
    "restore": ("deadline", "notify"),
    "standby": ("checkpoint", "repository", "control"),
}
"""Fields of a declaration, and of its tables, that say where a job is, and who waits for its restore."""
FoundBy = tuple[str, str | None, Mapping[str, Any] | None]
"""What a hook is opened with."""


def restore_deadline(job: Job, declared_by: Mapping[str, Any], conn_id: str) -> list[DeadlineAlert]:
    """What guards `<job>.restore`: nothing where no deadline is declared.

    Args:
        declared_by: `jobs_file`, or `declaration`, as tasks have them.
    """
    if job.restore.deadline_s is None:
        return []
    from airflow.sdk.definitions.deadline import DeadlineReference

    arguments = {
        "job": job.name,
        **{name: _needed(job, one) if name == "declaration" else one for name, one in declared_by.items()},
        "streambank_conn_id": conn_id,
        "deadline_s": job.restore.deadline_s,
    }
    # With a jobs file not who is alerted: Airflow keeps the arguments, and logs them, and notifiers have
    # secrets in theirs.
    alert = named_deadline(
        "restore",
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=timedelta(seconds=job.restore.deadline_s),
        callback=AsyncCallback(tell_late_restore, kwargs=arguments),
    )
    return [alert]


def _needed(job: Job, declaration: Mapping[str, Any]) -> dict[str, Any]:
    """Of a declaration what a late restore needs: where the job is, and who is alerted of that."""
    kept = {name: one for name, one in declaration.items() if name in _PLACES}
    for table, fields in _OF_TABLES.items():
        if table in declaration:
            kept[table] = {name: one for name, one in declaration[table].items() if name in fields}
    listed = zip(declaration.get("notify", ()), job.notify, strict=True)  # there `kinds` are filled in
    told = [one for one, read in listed if "late-restore" in read.kinds]
    return {**kept, "notify": [{"class": one["class"], "args": one.get("args", {})} for one in told]}


def _notified(job: Job) -> tuple[Notify, ...]:
    """Those of `restore.notify`, and of the job's own `notify` with the kind `late-restore`."""
    own = (one for one in job.notify if "late-restore" in one.kinds)
    return tuple({one.teller: one for one in (*job.restore.notify, *own)}.values())


async def tell_late_restore(
    job: str,
    deadline_s: float,
    context: Mapping[str, Any],
    jobs_file: str | None = None,
    streambank_conn_id: str = DEFAULT_CONN_ID,
    notify: str | None = None,
    declaration: Mapping[str, Any] | None = None,
) -> str:
    """Alert everybody who is declared that a restore is late or has failed; one that fails hinders no other.

    A restore that ended well, and one that was rejected, which ends well too, alerts nobody. Nor does one
    that failed where another has restored the job since.

    Args:
        deadline_s: How long its restore may take.
        context: What Airflow says: `dag_run` and `deadline`, both dicts. Templates of the notifiers see it,
            and `job`, `kind`, `deadline_s` and `message`.
        jobs_file: The file that declares the job, and whom to alert; None in what an earlier version has
            stored.
        notify: Who is alerted, as JSON, in what an earlier version has stored.
        declaration: The job instead of a jobs file.

    Returns:
        The message, or why there is none.

    Raises:
        AirflowException: A notifier has failed, or the declaration cannot be read.
    """
    run = context.get("dag_run") or {}
    name = f"run {run.get('dag_run_id')} of {job}.restore"
    state = await _state_of(run)
    if state == "success":
        return _silent(f"The restore of job {job} is not late: {name} has succeeded.")
    if state == "failed":
        restored_by = await _restored_by(job, (streambank_conn_id, jobs_file, declaration), run)
        if restored_by not in (None, run.get("dag_run_id")):
            return _silent(f"{name} has failed, but the job has been restored since, by {restored_by}.")
        left = "the job is not restored" if restored_by is None else "the job was restored but may not run"
        message = f"The restore of job {job} has not succeeded: {name} failed, and {left}."
    else:
        message = (
            f"The restore of job {job} is late: {name} has not ended {deadline_s:g} s after it was queued."
        )
    log.warning("%s", message)
    from streambank_airflow.notify.send import send_all

    seen = {
        **context,
        "job": job,
        "kind": "late-restore",
        "code": "",
        "deadline_s": deadline_s,
        "message": message,
    }
    if notify is None:
        declared = await _declared(job, (streambank_conn_id, jobs_file, declaration), message)
    else:
        declared = tuple(Notify(**data) for data in loads(notify))
    # In threads: neither one that hangs nor one that blocks may hold up the triggerer.
    ends = await asyncio.to_thread(send_all, [(one, seen) for one in declared], native=True)
    failed = [f"{one.path}: {why}" for one, why in zip(declared, ends, strict=True) if why]
    if failed:
        raise AirflowException(f"{message} Some alerts could not be sent: {'; '.join(failed)}")
    return message


async def _declared(job: str, found_by: FoundBy, message: str) -> tuple[Notify, ...]:
    from streambank_airflow.hooks.streambank import StreambankHook

    try:
        hook = await StreambankHook.aopen(*found_by)
        return _notified(await asyncio.to_thread(hook.declared.job, job))
    except StreambankError as error:
        raise AirflowException(f"{message} No alert could be sent: {describe(error)}") from error


def _silent(why: str) -> str:
    log.info("%s No alert is sent.", why)
    return why


async def _state_of(run: Mapping[str, Any]) -> str:
    """The state of the DAG run now.

    Airflow's context says what it was when the scheduler saw the deadline pass; a triggerer that was down
    reads that later. So a run that had not ended then is asked about again, as triggers of Airflow ask.
    """
    known = str(run.get("state") or "")
    if known in ("success", "failed") or not run.get("dag_id"):
        return known
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
    from asgiref.sync import sync_to_async

    try:
        ask = sync_to_async(RuntimeTaskInstance.get_dagrun_state)
        found: Any = await ask(str(run["dag_id"]), str(run["dag_run_id"]))
        return str(getattr(found, "value", found))
    except Exception:
        log.warning("The state of %s could not be read", run.get("dag_run_id"), exc_info=True)
        return known


async def _restored_by(job: str, found_by: FoundBy, run: Mapping[str, Any]) -> str | None:
    """Who has restored the job since the run was queued: a run's id, or another name; None for nobody.

    Where that cannot be read nobody has: an alert too many is better than a restore that is missed.
    """
    from streambank_airflow.hooks.streambank import StreambankHook

    query = (run.get("conf") or {}).get("query")
    try:
        since: datetime = from_json_time(str(run["queued_at"]))
        hook = await StreambankHook.aopen(*found_by)
        return await asyncio.to_thread(hook.recovery.restored_by, f"{job}/{query}" if query else job, since)
    except Exception as error:
        log.warning("It is not known whether job %s has been restored since: %s", job, error)
        return None
