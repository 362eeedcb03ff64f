"""From the engine's errors to Airflow's, by what Airflow should do next: retry, or fail the task for good.

A task's page shows the exception above its traceback, and Airflow logs more after both. So the last lines of
a failed task's log say it again in three short ones: what failed, why, and what to do.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from airflow.sdk import get_current_context

from streambank.core.errors import StreambankError
from streambank_airflow.hints import hint_of

log = logging.getLogger("airflow.task")

_HINT = re.compile(r"\s+Hint: ")


def describe(error: StreambankError) -> str:
    """An error as a failed task shows it: the sentence, its code, and the way out on a separate line."""
    hint = hint_of(error, _job_here())
    return f"{error.message} [{error.code}]" + (f"\nHint: {hint}" if hint else "")


def as_airflow(error: StreambankError) -> AirflowException:
    """The exception to raise for an engine error.

    Returns:
        `AirflowException`, which Airflow retries as the task says, where the same call may succeed later with
        nobody changing anything; `AirflowFailException`, which it never retries, everywhere else.
    """
    kind = AirflowException if error.retryable else AirflowFailException
    return kind(describe(error))


def said(error: BaseException) -> str:
    """Any error in a line: one of the engine as `describe` says it, another one with its type."""
    if not isinstance(error, StreambankError):
        return f"{type(error).__name__}: {error}"
    return describe(error).replace("\nHint: ", " Hint: ", 1)


@contextmanager
def airflow_failures() -> Iterator[None]:
    """Run engine calls in here: whatever they refuse leaves as Airflow's exception.

    What a person decides is raised without the engine's traceback, in which nothing helps to decide. What a
    retry may heal, and a defect of ours, keep theirs.

    Raises:
        AirflowFailException: The engine raised something that somebody has to decide or repair.
    """
    try:
        yield
    except StreambankError as error:
        if error.retryable or error.exit_code == StreambankError.exit_code:
            raise as_airflow(error) from error
        raise as_airflow(error) from None


def engine_error(error: object) -> StreambankError | None:
    """The engine's error behind a failure; None where there is none.

    Args:
        error: As Airflow gives it to a callback: of a task that was lost it is a text.
    """
    seen = error if isinstance(error, BaseException) else None
    while seen is not None and not isinstance(seen, StreambankError):
        seen = seen.__cause__ or seen.__context__
    return seen


END_GROUP = "::endgroup::"
"""Ends a group of lines in Airflow's view of a log; without one it means nothing."""


def close_log(context: Mapping[str, Any]) -> None:
    """An `on_failure_callback` and `on_retry_callback`: the log ends with what, why, and what to do.

    Args:
        context: As Airflow gives it to a callback.
    """
    raised = context.get("exception")
    task_instance: Any = context["ti"]
    error = engine_error(raised)
    if error is not None:
        task = task_instance.task
        why, hint = f"{error.message} [{error.code}]", hint_of(error, _job_of(task), _dag_of(task))
    elif isinstance(raised, AirflowException) and _HINT.search(str(raised)):
        why, hint = _HINT.split(str(raised), maxsplit=1)
    else:
        return  # not of ours: Airflow shows it as it shows all others
    task = task_instance.task
    attempt, attempts = getattr(task_instance, "try_number", 1), getattr(task, "retries", 0) + 1
    again = attempt < attempts and not isinstance(raised, AirflowFailException)
    then = f"attempt {attempt} of {attempts}, Airflow tries again" if again else "Airflow does not try again"
    log.info(END_GROUP)  # Airflow runs callbacks in the group Post Execute, which its page shows folded
    log.error("What: task %s.%s failed; %s.", task.dag_id, task.task_id, then)
    log.error("Why: %s", why)
    if hint:
        log.error("What to do: %s", hint)


def _job_here() -> str | None:
    """The job of the task that runs here; None outside of a task."""
    try:
        task = get_current_context().get("task")
    except RuntimeError:
        return None
    return _job_of(task)


def _dag_of(task: Any) -> object:
    return task.dag if getattr(task, "has_dag", lambda: False)() else None


def _job_of(task: object) -> str | None:
    job = getattr(task, "job", None)
    return job.partition("/")[0] if isinstance(job, str) and job else None
