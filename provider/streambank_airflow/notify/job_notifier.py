"""The notifier for tasks of a DAG of one's own: it alerts whom `[[jobs.NAME.notify]]` of a job names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier

from streambank.core.errors import check_choice
from streambank.declaration.notify import KINDS
from streambank_airflow.hooks.connection import DEFAULT_CONN_ID
from streambank_airflow.hooks.declared import as_plain, folder_of, given_for, located
from streambank_airflow.notify.alerts import CODES, Alert, code_of, send_alert, text_of
from streambank_airflow.templates import RendersTexts

if TYPE_CHECKING:
    from airflow.sdk import Context

    from streambank.declaration.streaming_job import StreamingJob
    from streambank_airflow.hooks.streambank import StreambankHook

KINDS_OF_TASKS = tuple(kind for kind in KINDS if kind != "sla")
"""What a task can alert of; what is found of an SLA has a verdict, and `CheckSlaOperator` sends that."""


class JobNotifier(RendersTexts, BaseNotifier):
    """Sends an alert of a job as Streambank's own tasks do, where Airflow takes a notifier as a callback.

    Those entries of the job's `notify` get it that name its kind, or no kinds. If the task failed by an error
    that has a kind, such as `checkpoint-lost`, that kind comes first. As for every alert, a notifier that
    fails is an error in the log, and changes nothing else.

    Args:
        job: The declared job, or `job/query`.
        kind: What the alert is: a kind of docs/howto/sla-notifications.md other than `sla`.
        message: What happened, for people; by default the task and its error.
        jobs_file: The file that declares the job; None for the one that the connection names.
        declaration: The job instead of a jobs file.
        context: What it is called with; Airflow gives it to the callback of a deadline.

    Raises:
        InputError: There is no such kind (code `bad-choice`).
    """

    template_fields: Sequence[str] = (
        "job",
        "message",
        "jobs_file",
        "declaration",
        "streambank_conn_id",
    )

    def __init__(
        self,
        *,
        job: str,
        kind: str,
        message: str = "",
        jobs_file: str | PathLike[str] | None = None,
        declaration: Mapping[str, Any] | StreamingJob | None = None,
        streambank_conn_id: str = DEFAULT_CONN_ID,
        context: Context | None = None,
    ) -> None:
        super().__init__(context)
        self.job = job
        self.kind = check_choice(kind, "kind", KINDS_OF_TASKS)
        self.message = message
        self.jobs_file = as_plain(jobs_file)
        self.declaration = as_plain(declaration)
        self.streambank_conn_id = streambank_conn_id

    def _found_by(self, context: Any) -> dict[str, Any]:
        dag = context.get("dag")  # a callback runs when the task does no more; a deadline's knows no DAG
        folder = None if dag is None else folder_of(dag)
        return {
            "streambank_conn_id": self.streambank_conn_id,
            "jobs_file": located(self.jobs_file, folder),
            "declaration": given_for(self.job, self.declaration, folder),
        }

    def notify(self, context: Context) -> None:
        """Send it, in the process of the task."""
        from streambank_airflow.hooks.streambank import StreambankHook

        self._send(StreambankHook(**self._found_by(context)), context)

    async def async_notify(self, context: Context) -> None:
        """Send it from the triggerer, as for a deadline."""
        from asgiref.sync import sync_to_async

        from streambank_airflow.hooks.streambank import StreambankHook

        hook = await StreambankHook.aopen(**self._found_by(context))
        await sync_to_async(self._send)(hook, context)

    def _send(self, hook: StreambankHook, context: Any) -> None:
        error = context.get("exception")
        code = code_of(error)
        where = _where(context)
        message = self.message or f"{where or self.job}: {text_of(error) if error else 'its log says more'}"
        kinds = tuple(dict.fromkeys((*([CODES[code]] if code in CODES else []), self.kind)))
        alert = Alert(kinds, message, subject="" if code in CODES else where, code=code)
        send_alert(hook, self.job, alert, context)


def _where(context: Any) -> str:
    """The task; of a deadline, the DAG run."""
    ti, run = context.get("ti"), context.get("dag_run")
    if ti is not None:
        return f"{ti.dag_id}.{ti.task_id}"
    return str(run.get("dag_run_id", "")) if isinstance(run, dict) else ""
