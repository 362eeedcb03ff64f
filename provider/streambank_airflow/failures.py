"""From the engine's errors to Airflow's, by what Airflow should do next: retry, or fail the task for good."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from streambank.core.errors import StreambankError


def describe(error: StreambankError) -> str:
    """An error as a failed task shows it: the sentence, its code, and the way out."""
    hint = f" Hint: {error.hint}" if error.hint else ""
    return f"{error.message} [{error.code}]{hint}"


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
    return describe(error) if isinstance(error, StreambankError) else f"{type(error).__name__}: {error}"


@contextmanager
def airflow_failures() -> Iterator[None]:
    """Run engine calls in here: whatever they refuse leaves as Airflow's exception, its cause kept.

    Raises:
        AirflowException: The engine raised something that a retry may heal.
        AirflowFailException: The engine raised something that somebody has to decide or repair.
    """
    try:
        yield
    except StreambankError as error:
        raise as_airflow(error) from error
