"""Alerts: whom `[[jobs.NAME.notify]]` names is told what an operator has found, once for each incident.

They are sent by the task that finds something, and no alert decides anything: a notifier that fails is an
error in the task's log, and the task goes on, or fails, as it would without it. Notifiers are loaded when
there is something to send, so that neither the DAG processor nor a quiet task needs what they import.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from streambank.core.errors import InputError, StreambankError
from streambank.core.units import from_json_time, to_json_time, utc_now
from streambank.declaration.notify import Notify
from streambank.storage import S3Access, using_s3
from streambank_airflow.failures import describe, engine_error, said

if TYPE_CHECKING:
    from streambank.control.control import JobControl
    from streambank.declaration.declaration import Job
    from streambank_airflow.hooks.streambank import StreambankHook

log = logging.getLogger(__name__)

CODES = {
    "checkpoint-lost": "checkpoint-lost",
    "repository-lost": "repository-lost",
    "checkpoint-damaged": "checkpoint-damaged",
    "savepoint-damaged": "savepoint-damaged",
}
"""Codes of errors that are alerts wherever they end a task, and the kind of alert that each is."""
NOT_WATCHED = "not-watched"
FOUND_AGAIN = frozenset({*CODES.values(), NOT_WATCHED, "replica-failed", "drill-failed", "refresh-failed"})
"""Kinds that every scheduled run finds again as long as nobody repairs the cause."""
QUIET = timedelta(days=1)
"""How long the same incident of such a kind is not sent again."""
QUIET_LOST = timedelta(hours=1)
"""The same for a repository that is lost."""
NOT_FOUND = frozenset({"no-declaration", "no-such-job"})
"""Codes of errors of which nobody can be alerted, which an alert says itself: the job was not found."""
NOT_REMEMBERED = "repository-lost"
"""Nothing is written into a repository that may be another one than it was."""
APPROVAL_WAITS = "approval-waits"
EXCHANGES = ("compact", "rescale", "transform", "bootstrap")
"""DAGs of a job whose failure is `compaction-failed`."""
RESTORES = ("stop", "restore")
"""Tasks of `<job>.restore` whose failure leaves a job that nothing starts again."""
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
        ref: `job` or `job/query`.
        context: The task's. Templates of the notifiers see it, and `job`, `kind`, `message` and `code`.

    Returns:
        How many notifiers have got it.
    """
    try:
        job = _told_of(hook, ref)
        access = hook.declared.settings.s3
    except Exception as error:
        known = error if isinstance(error, StreambankError) and error.code in NOT_FOUND else None
        if known is None or known.message not in alert.message:
            log.error("No alert about job %s could be sent: %s", ref, said(error))
        return 0
    return send_alert_of(job, access, alert, context)


def _told_of(hook: StreambankHook, ref: str) -> Job:
    """The job; one whose declaration has a mistake too, if it says who is alerted.

    Raises:
        StreambankError: Nobody is known.
    """
    try:
        return hook.declared.job(ref)
    except InputError:
        broken = hook.declared.read().broken.get(re.split("[/@]", ref)[0])
        if broken is None or not broken.job.notify:
            raise
        return broken.job


def send_alert_of(job: Job, access: S3Access | None, alert: Alert, context: Mapping[str, Any]) -> int:
    """The same, of a job as it is known.

    Args:
        job: It, also where its declaration cannot be read any more.
        access: How S3 is reached; None for what the process's own settings say.
        context: As for `send_alert`; empty in a triggerer, where no task runs.

    Returns:
        How many notifiers have got it.
    """
    wanted: list[tuple[Notify, str, _Memory | None]] = []
    for notifier in job.notify:
        kind = _kind_for(notifier, alert)
        if kind is None or any(
            (notifier.teller, kind) == (other.teller, known) for other, known, _ in wanted
        ):
            continue
        with using_s3(access):
            memory = _memory_of(job, notifier, kind, alert, context)
            if memory is not None and memory.has_it():
                log.info(
                    "%s was already alerted of this (%s), and is not alerted again yet.", notifier.path, kind
                )
                continue
        wanted.append((notifier, kind, memory))
    sent = _send([(notifier, {**context, **_facts(job.name, kind, alert)}) for notifier, kind, _ in wanted])
    for (_, _, memory), has_it in zip(wanted, sent, strict=True):
        if has_it and memory is not None:
            with using_s3(access):
                memory.keep()
    return sum(sent)


def ask_approvers(hook: StreambankHook, ref: str, message: str, context: Mapping[str, Any]) -> int:
    """Tell those of `restore.ask`, and of the kind `approval-waits`, that a person is waited for.

    Args:
        ref: `job` or `job/query`.
        message: The question, and where it is answered.
        context: The task's, with `subject`, `body` and `link` of the question.

    Returns:
        How many notifiers have got it.
    """
    alert = Alert((APPROVAL_WAITS,), message)
    try:
        job = hook.declared.job(ref)
    except StreambankError as error:
        log.error("No alert could be sent that an approval is waiting: %s", describe(error))
        return 0
    own = (notifier for notifier in job.notify if APPROVAL_WAITS in notifier.kinds)
    wanted = {notifier.teller: notifier for notifier in (*job.restore.ask, *own)}.values()
    facts = _facts(job.name, APPROVAL_WAITS, alert)
    return sum(_send([(notifier, {**context, **facts}) for notifier in wanted]))


def _send(messages: Sequence[tuple[Notify, Mapping[str, Any]]]) -> list[bool]:
    """Let notifiers send, all at once; False for each that fails or takes too long, which is logged."""
    if not messages:
        return []
    from streambank_airflow.notify.send import send_all

    failed = send_all(messages)
    for (notify, _), why in zip(messages, failed, strict=True):
        if why:
            log.error("The notifier %s failed: %s", notify.path, why)
    return [not why for why in failed]


def alert_of_failure(context: Mapping[str, Any]) -> None:
    """Alert of a task that has failed for good, where its error or its operator is worth one.

    As `on_failure_callback` of every operator: it runs in the task's process, once its retries are used up.
    Of a task that was killed with its worker it runs in the DAG processor, where templates are not rendered:
    of `job/query` only the job counts.
    """
    task: Any = context["ti"].task
    job = getattr(task, "job", None)
    if not isinstance(job, str) or getattr(task, "checkpoint", None) is not None:
        return  # of several jobs, or of a query that is not declared: there is no `notify`
    job = job.partition("/")[0]
    error: Any = context.get("exception")
    code = code_of(error)
    by_code = [CODES[code]] if code in CODES else []
    own = _own_kinds(task, job, context)
    # What a job that stands still was found to lack is remembered for a day; that it stands still is not.
    kinds = tuple(dict.fromkeys((*own, *by_code) if _leaves_stopped(task, job) else (*by_code, *own)))
    if kinds:
        said = text_of(error) if error is not None else "it has failed; its log says why"
        more = _aftermath_of(task)
        if more and more not in said:
            said = f"{said} {more}"
        message = f"{task.dag_id}.{task.task_id}: {said}"
        about = "" if code in CODES else " ".join(filter(None, (code, getattr(task, "alert_subject", ""))))
        alert = Alert(kinds, message, subject=about, code=code)
        send_alert(task.hook, job, alert, context)


def text_of(error: BaseException | str) -> str:
    """An error, as Airflow gives it to a callback, as one paragraph of an alert."""
    return str(error).replace("\nHint: ", " Hint: ")


def code_of(error: BaseException | str | None) -> str:
    """The code of the engine's error behind a failure; empty where there is none.

    Args:
        error: As Airflow gives it to a callback: of a task that was lost it is a text.
    """
    found = engine_error(error)
    if found is not None:
        return found.code
    # A driver that refuses to run says why in its log and its records: as text.
    text = "" if error is None else str(error)
    return next((code for code in CODES if re.search(rf"(?<![\w-]){code}(?![\w-])", text)), "")


def _own_kinds(task: Any, job: str, context: Mapping[str, Any]) -> Sequence[str]:
    """What the failure of a task means, whatever its error."""
    own: Sequence[str] = getattr(task, "alert_kinds", ())
    if _leaves_stopped(task, job):
        return (*own, "giving-up")
    if task.dag_id not in [f"{job}.{verb}" for verb in EXCHANGES]:
        return own
    if (context.get("params") or {}).get("dry_run"):
        return ()  # whoever asked what would be done reads that it is refused
    # Where an exchange fails, the job is started again as it was: it is not given up yet.
    return ("compaction-failed", *(own if task.task_id == _EXCHANGED_BACK else ()))


def _leaves_stopped(task: Any, job: str) -> bool:
    return task.dag_id == f"{job}.restore" and task.task_id in RESTORES


def _aftermath_of(task: Any) -> str:
    """What the failure has left behind, where its operator knows: an error that is only a text does not."""
    aftermath = getattr(task, "aftermath", None)
    if aftermath is None:
        return ""
    try:
        return str(aftermath())
    except Exception as error:
        log.warning(
            "It is not known in which state the failure of %s left the job: %s", task.task_id, said(error)
        )
        return ""


def _kind_for(notify: Notify, alert: Alert) -> str | None:
    return next((kind for kind in alert.kinds if kind in notify.kinds), None)


def _facts(job: str, kind: str, alert: Alert) -> dict[str, Any]:
    return {"job": job, "kind": kind, "message": alert.message, "code": alert.code}


@dataclass(frozen=True)
class _Memory:
    """What a notifier was alerted of lately: incident to when, as `read` gives it and `write` replaces it."""

    notify: Notify
    incident: str
    quiet: timedelta
    read: Callable[[], Mapping[str, str]]
    write: Callable[[dict[str, str]], object]

    def has_it(self) -> bool:
        """Whether the notifier was alerted of the incident; False where that cannot be known."""
        try:
            return self.incident in self._recent()
        except Exception as error:
            log.warning("The earlier alerts to %s could not be read: %s", self.notify.path, said(error))
            return False

    def keep(self) -> None:
        """Keep that it was alerted now; where that fails it is alerted again the next time."""
        try:
            self.write({**self._recent(), self.incident: to_json_time(utc_now())})
        except Exception as error:
            log.warning("The alert to %s could not be recorded: %s", self.notify.path, said(error))

    def _recent(self) -> dict[str, str]:
        since = utc_now() - self.quiet
        return {incident: at for incident, at in self.read().items() if from_json_time(at) >= since}


def _in_records(notify: Notify, incident: str, records: JobControl) -> _Memory:
    """Among the job's records, for all its tasks together."""
    stream = records.stream(f"alerts/{notify.teller}")

    def read() -> Mapping[str, str]:
        record = stream.latest()
        return {} if record is None else dict(record.data["alerts"])

    def write(known: dict[str, str]) -> None:
        stream.append({"at": to_json_time(utc_now()), "format": 1, "alerts": known})

    return _Memory(notify, incident, QUIET, read, write)


def _in_airflow(notify: Notify, incident: str, instance: Any) -> _Memory:
    """In an XCom of the task, for its next runs: where the records may be another job's, or gone."""
    key = f"alerted_{notify.teller}"

    def read() -> Mapping[str, str]:
        return dict(instance.xcom_pull(task_ids=instance.task_id, key=key, include_prior_dates=True) or {})

    return _Memory(notify, incident, QUIET_LOST, read, lambda known: instance.xcom_push(key=key, value=known))


def _memory_of(
    job: Job, notify: Notify, kind: str, alert: Alert, context: Mapping[str, Any]
) -> _Memory | None:
    """What is remembered of an incident that every run finds again; None where each one is another.

    A checkpoint that is lost in the next generation is another one.
    """
    if kind not in FOUND_AGAIN and NOT_WATCHED not in alert.kinds:
        return None
    parts = [kind, alert.subject]
    if NOT_REMEMBERED in alert.kinds:
        return _in_airflow(notify, _joined(parts), context["ti"]) if "ti" in context else None
    try:
        records = job.records()
        if kind.startswith("checkpoint-"):
            found = [records.generation(name) for name in job.query_names]
            parts += [str(record.number) for record in found if record is not None]
        return _in_records(notify, _joined(parts), records)
    except Exception as error:
        log.warning("The earlier alerts to %s could not be read: %s", notify.path, said(error))
        return None


def _joined(parts: Sequence[str]) -> str:
    return " ".join(part for part in parts if part)[:200]
