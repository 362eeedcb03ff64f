"""The deadline of a restore: Airflow watches it, and this tells when it is missed.

Airflow calls it in the triggerer, with the DAG run as a dict. Notifiers are loaded there and not before, so
that the DAG processor does not need what they import.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException

from streambank.errors import StreambankError
from streambank.job.notify import Notify
from streambank_airflow.failures import describe

if TYPE_CHECKING:
    from airflow.sdk import BaseNotifier
    from airflow.sdk.definitions.deadline import DeadlineAlert

    from streambank.job.declaration import Job

log = logging.getLogger(__name__)


def restore_deadline(job: Job) -> list[DeadlineAlert]:
    """What guards `<job>.restore`: nothing where no deadline is declared."""
    if job.restore.deadline_s is None:
        return []
    from airflow.sdk.definitions.callback import AsyncCallback
    from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

    arguments = {
        "job": job.name,
        "deadline_s": job.restore.deadline_s,
        # As text: Airflow compares callbacks by the hash of their arguments.
        "notify": json.dumps([asdict(one) for one in job.restore.notify]),
    }
    alert = DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=timedelta(seconds=job.restore.deadline_s),
        callback=AsyncCallback(tell_late_restore, kwargs=arguments),
        name="restore",
    )
    return [alert]


async def tell_late_restore(job: str, deadline_s: float, notify: str, context: Mapping[str, Any]) -> str:
    """Tell everybody who is declared that a restore is late; one who cannot be told hinders no other.

    Args:
        job: The job.
        deadline_s: How long its restore may take.
        notify: Who is told, as JSON.
        context: What Airflow says: `dag_run` and `deadline`, both dicts. Templates of the notifiers see it,
            and `job`, `deadline_s` and `message`.

    Returns:
        What was told.

    Raises:
        AirflowException: Somebody could not be told.
    """
    run = context.get("dag_run") or {}
    message = (
        f"The restore of job {job} is late: run {run.get('dag_run_id')} of {job}.restore has not ended "
        f"{deadline_s:g} s after it was queued."
    )
    log.warning("%s", message)
    from streambank_airflow.notifiers import load_notifier

    failed: list[str] = []
    for data in json.loads(notify):
        declared = Notify(**data)
        seen = {**context, "job": job, "deadline_s": deadline_s, "message": message}
        try:
            await _tell(load_notifier(declared), seen)
        except StreambankError as error:
            failed.append(f"{declared.path}: {describe(error)}")
        except Exception as error:
            failed.append(f"{declared.path}: {type(error).__name__}: {error}")
    if failed:
        raise AirflowException(f"{message} Not everybody could be told: {'; '.join(failed)}")
    return message


async def _tell(notifier: BaseNotifier, context: dict[str, Any]) -> None:
    """By the way that the notifier knows; a synchronous one must not hold up the triggerer."""
    from airflow.sdk import BaseNotifier

    one: Any = notifier
    if type(notifier).async_notify is BaseNotifier.async_notify:
        await asyncio.to_thread(one, context)
        return
    one.context = context
    await one
