from __future__ import annotations

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from streambank.core import errors
from streambank_airflow.failures import airflow_failures

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.StreambankError)
]


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_retry_may_heal_is_retried_and_the_rest_fails_for_good(
    kind: type[errors.StreambankError],
) -> None:
    with pytest.raises(AirflowException) as caught, airflow_failures():
        raise kind("Batch 7 is gone.", code="some-code", hint="Take batch 8.")

    assert isinstance(caught.value, AirflowFailException) is not kind.retryable
    assert str(caught.value) == "Batch 7 is gone. [some-code] Hint: Take batch 8."
    assert isinstance(caught.value.__cause__, kind)


def test_conflicts_and_storage_errors_are_the_ones_that_are_retried() -> None:
    assert {kind for kind in KINDS if kind.retryable} == {errors.ConflictError, errors.StorageError}


def test_an_error_without_a_hint_promises_none() -> None:
    with pytest.raises(AirflowException, match=r"^Broken. \[internal\]$"), airflow_failures():
        raise errors.InternalError("Broken.")


def test_a_bug_stays_a_bug() -> None:
    with pytest.raises(ZeroDivisionError), airflow_failures():
        _ = 1 // 0
