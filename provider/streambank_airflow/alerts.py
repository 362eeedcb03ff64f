"""Alerts: whom `[[jobs.NAME.notify]]` names is told what an operator has found, once for each incident.

They are sent by the task that finds something, and no alert decides anything: a notifier that fails is an
error in the task's log, and the task goes on, or fails, as it would without it. Notifiers are loaded when
there is something to send, so that neither the DAG processor nor a quiet task needs what they import.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from streambank.errors import StreambankError
from streambank.job.notify import Notify
from streambank.job.records import RecordStream
from streambank.storage import using_s3
from streambank.times import from_json_time, to_json_time, utc_now
from streambank_airflow.failures import describe

if TYPE_CHECKING:
    from streambank.job.control import JobControl
    from streambank.job.declaration import Job
    from streambank_airflow.hooks.streambank import StreambankHook

log = logging.getLogger(__name__)

CODES = {
    "checkpoint-lost": "checkpoint-lost",
    "repository-lost": "repository-lost",
    "checkpoint-damaged": "checkpoint-damaged",
    "savepoint-damaged": "savepoint-damaged",
}
"""Codes of errors that are alerts wherever they end a task, and the kind of alert that each is."""
FOUND_AGAIN = frozenset({"checkpoint-lost", "checkpoint-damaged", "savepoint-damaged", "replica-failed"})
"""Kinds that every scheduled run finds again as long as nobody repairs the cause."""
QUIET = timedelta(days=1)
"""How long the same incident of such a kind is not sent again."""
NOT_REMEMBERED = "repository-lost"
"""Nothing is written into a repository that may be another one than it was."""
APPROVAL_WAITS = "approval-waits"
EXCHANGES = ("compact", "rescale")
"""DAGs of a job whose failure is `compaction-failed`."""
_EXCHANGED_BACK = "start_again"


@dataclass(frozen=True, slots=True)
class Alert:
    """What is sent.

    Attributes:
        kinds: What it is, the most special first; whoever wants several of them gets it once.
        message: What happened and what to do, for people.
        subject: What it is about, where the same incident may be found again: a savepoint, a code.
        code: The code of the error; empty without one.
    """

    kinds: tuple[str, ...]
    message: str
    subject: str = ""
    code: str = ""


def send_alert(hook: StreambankHook, ref: str, alert: Alert, context: Mapping[str, Any]) -> int:
    """Send an alert to whom the job names for it. Whatever goes wrong is logged, and raises nothing.

    Args:
        hook: Finds the job.
        ref: `job` or `job/query`.
        alert: What is sent.
        context: The task's. Templates of the notifiers see it, and `job`, `kind`, `message` and `code`.

    Returns:
        How many notifiers have got it.
    """
    try:
        job, _ = hook.declared(ref)
        wanted = [(one, kind) for one in job.notify if (kind := _kind_for(one, alert)) is not None]
        if not wanted:
            return 0
        access = hook.settings.s3
        with using_s3(access):
            records = None if NOT_REMEMBERED in alert.kinds else job.records()
    except Exception as error:
        log.error("Nobody could be alerted of job %s: %s", ref, _said(error))
        return 0
    sent = 0
    for one, kind in wanted:
        with using_s3(access):
            incident = _incident(job, records, kind, alert)
            if not _is_due(records, one, incident):
                log.info("%s was alerted of this (%s) within the last day.", one.path, kind)
                continue
        if not deliver(one, {**context, **_facts(job.name, kind, alert)}):
            continue
        sent += 1
        with using_s3(access):
            _remember(records, one, incident)
    return sent


def ask_approvers(hook: StreambankHook, ref: str, message: str, context: Mapping[str, Any]) -> int:
    """Tell those of `restore.ask`, and of the kind `approval-waits`, that a person is waited for.

    Args:
        hook: Finds the job.
        ref: `job` or `job/query`.
        message: The question, and where it is answered.
        context: The task's, with `subject`, `body` and `link` of the question.

    Returns:
        How many notifiers have got it.
    """
    alert = Alert((APPROVAL_WAITS,), message)
    try:
        job, _ = hook.declared(ref)
    except StreambankError as error:
        log.error("Nobody could be told that an approval waits: %s", describe(error))
        return 0
    own = (one for one in job.notify if APPROVAL_WAITS in one.kinds)
    wanted = {one.teller: one for one in (*job.restore.ask, *own)}.values()
    facts = _facts(job.name, APPROVAL_WAITS, alert)
    return sum(deliver(one, {**context, **facts}) for one in wanted)


def deliver(notify: Notify, context: Mapping[str, Any]) -> bool:
    """Let one notifier send what its templates make of a context; False where it fails, which is logged."""
    from streambank_airflow.notifiers import load_notifier
    from streambank_airflow.telling import send_once

    try:
        send_once(load_notifier(notify), dict(context))
    except Exception as error:
        log.error("The notifier %s failed: %s", notify.path, _said(error))
        return False
    return True


def alert_of_failure(context: Mapping[str, Any]) -> None:
    """Alert of a task that has failed for good, where its error or its operator is worth one.

    As `on_failure_callback` of every operator: it runs in the task's process, once its retries are used up.
    """
    task: Any = context["ti"].task
    job = getattr(task, "job", None)
    if not isinstance(job, str):
        return
    error: Any = context.get("exception")
    code = code_of(error)
    kinds = tuple(dict.fromkeys((*([CODES[code]] if code in CODES else []), *_own_kinds(task, job))))
    if kinds:
        where = f"{task.dag_id}.{task.task_id}"
        said = str(error) if error is not None else "it has failed; its log says why"
        alert = Alert(kinds, f"{where}: {said}", subject=code, code=code)
        send_alert(task.hook, job, alert, context)


def code_of(error: BaseException | None) -> str:
    """The code of the engine's error behind a failure; empty where there is none."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, StreambankError):
            return seen.code
        seen = seen.__cause__
    # A driver that refuses to run says why in its log and its records: as text.
    text = "" if error is None else str(error)
    return next((code for code in CODES if re.search(rf"(?<![\w-]){code}(?![\w-])", text)), "")


def _own_kinds(task: Any, job: str) -> Sequence[str]:
    """What the failure of a task means, whatever its error."""
    name = job.partition("/")[0]
    own: Sequence[str] = getattr(task, "alert_kinds", ())
    if task.dag_id not in [f"{name}.{verb}" for verb in EXCHANGES]:
        return own
    # Where an exchange fails, the job is started again as it was: it is not given up yet.
    return ("compaction-failed", *(own if task.task_id == _EXCHANGED_BACK else ()))


def _kind_for(notify: Notify, alert: Alert) -> str | None:
    return next((kind for kind in alert.kinds if kind in notify.kinds), None)


def _facts(job: str, kind: str, alert: Alert) -> dict[str, Any]:
    return {"job": job, "kind": kind, "message": alert.message, "code": alert.code}


def _stream(records: JobControl, notify: Notify) -> RecordStream:
    return RecordStream(records.store, f"alerts/{notify.teller}")


def _incident(job: Job, records: JobControl | None, kind: str, alert: Alert) -> str | None:
    """What an incident that may be found again is known by; None where each one is another.

    A checkpoint that is lost in the next generation is another one.
    """
    if records is None or kind not in FOUND_AGAIN:
        return None
    parts = [kind, alert.subject]
    try:
        if kind.startswith("checkpoint-"):
            found = [records.generation(name) for name in job.query_names]
            parts += [str(one.number) for one in found if one is not None]
    except StreambankError as error:
        log.warning("The generations of job %s are not known: %s", job.name, describe(error))
    return " ".join(part for part in parts if part)[:200]


def _open(records: JobControl, notify: Notify) -> dict[str, str]:
    """What this notifier was alerted of within the last day: incident to when."""
    record = _stream(records, notify).latest()
    known = {} if record is None else dict(record.data.get("alerts", {}))
    since = utc_now() - QUIET
    return {key: at for key, at in known.items() if from_json_time(at) >= since}


def _is_due(records: JobControl | None, notify: Notify, incident: str | None) -> bool:
    if records is None or incident is None:
        return True
    try:
        return incident not in _open(records, notify)
    except Exception as error:
        log.warning("What %s was alerted of is not known: %s", notify.path, _said(error))
        return True


def _remember(records: JobControl | None, notify: Notify, incident: str | None) -> None:
    if records is None or incident is None:
        return
    try:
        now = to_json_time(utc_now())
        kept = {**_open(records, notify), incident: now}
        _stream(records, notify).append({"at": now, "format": 1, "alerts": kept})
    except Exception as error:
        log.warning("It could not be kept that %s was alerted: %s", notify.path, _said(error))


def _said(error: Exception) -> str:
    return describe(error) if isinstance(error, StreambankError) else f"{type(error).__name__}: {error}"
