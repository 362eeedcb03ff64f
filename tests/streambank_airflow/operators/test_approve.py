"""An answer that was not offered is no consent; the API of Airflow 3.2 takes one."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.timezone import utcnow

from streambank.recovery.approval import Choice
from streambank_airflow.operators.approve import ApprovePlanOperator


class Task:
    """What is used of a task instance."""

    def __init__(self) -> None:
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value


@pytest.mark.parametrize("offered", [(), (Choice("Restore", sink="accept", source="refuse", stop=False),)])
def test_an_answer_that_was_not_offered_fails_the_task(offered: tuple[Choice, ...]) -> None:
    choices = [one.to_dict() for one in offered]
    approve = ApprovePlanOperator(task_id="approve", job="flights", subject="?", choices=choices)
    answer = {"chosen_options": ["Yes"], "params_input": {}, "responded_at": utcnow()}
    task = Task()
    context: Any = {"ti": task}

    with pytest.raises(ValueError, match="Yes"):
        approve.execute_complete(context, {**answer, "responded_by_user": None})

    assert not task.pushed
