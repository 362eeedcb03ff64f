"""From the engine's errors to Airflow's, by what Airflow should do next: retry, or fail the task for good.

A task's page shows the exception above its traceback, and Airflow logs more after both. So the last lines of
a failed task's log say it again in short ones: what failed, why, what caused that, and what to do.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowTaskTimeout,
)

from streambank.core.errors import StreambankError
from streambank.core.units import say_duration
from streambank_airflow.caller import running
from streambank_airflow.hints import hint_of

log = logging.getLogger("airflow.task")

_HINT = re.compile(r"\s+Hint: ")
_WORD = re.compile(r"[a-z]+[ ,]")
_LONGER = "Give the task a longer `execution_timeout`."
_GOES_ON = " What it has begun outside of its process, such as a driver, goes on."
_STOPS = " The log says above whether its `stop_on_kill` could ask the job to stop at a batch boundary."


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


class _Told:
    """An error of the hook in a task; its text has the hint, because Airflow logs only the text."""

    def __str__(self: Any) -> str:
        return describe(self)

    def __reduce__(self: Any) -> tuple[object, ...]:
        return type(self).__mro__[2], (self.message,), {"code": self.code, "hint": self.hint}


@cache
def _kind_in_task(kind: type[StreambankError]) -> type[StreambankError]:
    """The kind of error that says what to do, and is never retried where that cannot help.

    It stays what it was: a task that catches a `NotFoundError` of the hook, and asks it for its code, does.
    """
    final = () if kind.retryable else (AirflowFailException,)
    return type(kind.__name__, (_Told, kind, *final), {"__doc__": kind.__doc__})


@contextmanager
def told_in_task() -> Iterator[None]:
    """Run verbs of the hook in here: what they raise in a task says what to do, and whether to try again."""
    try:
        yield
    except StreambankError as error:
        if not isinstance(error, _Told) and running() is not None:
            error.__class__ = _kind_in_task(type(error))  # type: ignore[arg-type]  # classes are hashable
        raise


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
    """An `on_failure_callback` and `on_retry_callback`: the log ends with what, why, cause, and what to do.

    Args:
        context: As Airflow gives it to a callback.
    """
    raised = context.get("exception")
    task_instance: Any = context["ti"]
    task = task_instance.task
    found = _said_by(raised, task)
    if found is None:
        return  # not of ours: Airflow shows it as it shows all others
    why, cause, hint = found
    attempt, attempts = getattr(task_instance, "try_number", 1), getattr(task, "retries", 0) + 1
    again = attempt < attempts and not isinstance(raised, (AirflowFailException, AirflowSensorTimeout))
    then = f"attempt {attempt} of {attempts}, Airflow tries again" if again else "Airflow does not try again"
    log.info(END_GROUP)  # Airflow runs callbacks in the group Post Execute, which its page shows folded
    log.error("What: task %s.%s failed; %s.", task.dag_id, task.task_id, then)
    # What follows the first line of a hint is quoted, the end of a driver's log: it stands above already.
    way_out = hint.strip().partition("\n")[0]
    if _WORD.match(way_out):  # it went on with a sentence; what is no word is a name, such as an argument's
        way_out = way_out[0].upper() + way_out[1:]
    for name, text in (("Why", why), ("Cause", cause), ("What to do", way_out)):
        if text:
            log.error("%s: %s", name, text)


def _said_by(raised: object, task: Any) -> tuple[str, str, str] | None:
    """Why a task failed, what caused that where it is another error, and what to do; None for none of ours.

    What was raised last decides: it knows what came of the error that caused it, as that two drivers died.
    """
    if isinstance(raised, AirflowTaskTimeout):
        limit = getattr(task, "execution_timeout", None)
        after = "" if limit is None else f" of {say_duration(limit.total_seconds())}"
        then = _STOPS if getattr(task, "stop_on_kill", False) is True else _GOES_ON
        return f"It took longer than its execution_timeout{after}.", "", _LONGER + then
    error = engine_error(raised)
    inner = "" if error is None else f"{error.message} [{error.code}]"
    way_out = "" if error is None else hint_of(error, _job_of(task), _dag_of(task))
    if isinstance(raised, AirflowException) and not isinstance(raised, StreambankError):
        why, *hints = _HINT.split(str(raised), maxsplit=1)
        if error is None and not hints:
            return None
        is_same = why == inner
        return why, "" if is_same else inner, way_out if is_same or not hints else hints[0]
    return None if error is None else (inner, "", way_out)


def _job_here() -> str | None:
    """The job of the task that runs here; None outside of a task."""
    context = running()
    return None if context is None else _job_of(context.get("task"))


def _dag_of(task: Any) -> object:
    return task.dag if getattr(task, "has_dag", lambda: False)() else None


def _job_of(task: object) -> str | None:
    job = getattr(task, "job", None)
    return job.partition("/")[0] if isinstance(job, str) and job else None
