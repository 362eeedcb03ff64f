"""An answer that was not offered is no consent; the API of Airflow 3.2 takes one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk.timezone import utcnow

from streambank.core.approval import outdated
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


def context_of(try_number: int = 1, max_tries: int = 3, retries: int = 3) -> Any:
    task: Any = Task()
    task.task_id = "approve"
    task.try_number, task.max_tries = try_number, max_tries
    task.task = SimpleNamespace(retries=retries)
    run = SimpleNamespace(dag_id="flights.restore", run_id="manual__1", triggering_user_name=None)
    return {"ti": task, "dag_run": run}


@pytest.mark.parametrize(("timed_out", "fails"), [(True, True), (False, False)])
def test_silence_is_no_answer_and_the_run_is_not_green(timed_out: bool, fails: bool) -> None:
    approve = ApprovePlanOperator(task_id="approve", job="flights", subject="Restore flights?", choices=[])
    answer = {"chosen_options": ["Reject"], "params_input": {}, "responded_at": utcnow()}
    by = None if timed_out else {"id": "1", "name": "ann"}
    event = {**answer, "responded_by_user": by, "timedout": timed_out}
    if not fails:
        assert approve.execute_complete(context_of(), event)["chosen_options"] == ["Reject"]
        return
    with pytest.raises(
        AirflowFailException, match="No person has answered in time: Restore flights"
    ) as failed:
        approve.execute_complete(context_of(), event)
    assert "trigger flights.restore again" in str(failed.value)


@pytest.mark.parametrize(
    ("try_number", "max_tries", "again"),
    [(1, 3, False), (2, 3, True), (2, 4, False), (3, 4, True)],
    ids=["first", "retried", "cleared", "cleared and retried"],
)
def test_another_try_says_that_an_answer_may_be_lost(
    monkeypatch: pytest.MonkeyPatch, try_number: int, max_tries: int, again: bool
) -> None:
    """Airflow may end a task that has just been resumed, and its answer goes with it."""
    asked: list[str] = []
    monkeypatch.setattr(
        "streambank_airflow.notify.alerts.ask_approvers", lambda hook, job, said, seen: asked.append(said)
    )
    approve = ApprovePlanOperator(task_id="approve", job="flights", subject="Restore flights?", choices=[])
    monkeypatch.setattr(approve, "generate_link_to_ui_from_context", lambda context: "https://a/b")
    approve._say_that_it_waits(context_of(try_number, max_tries))
    (said,) = asked
    assert ("the answer is lost, and nothing was done" in said) is again
    assert "This is asked again" not in said, "the earlier try may have failed before it asked"
    assert "Restore flights? Answer it at https://a/b." in said


def test_an_outdated_plan_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where somebody else has restored before another try asks again."""
    checked: list[Any] = []

    def check(self: Any, ref: str, shown: Any, *, by: dict[str, str]) -> None:
        checked.append((ref, shown, by["dag_id"], by["run_id"]))
        raise outdated("Another generation counts.")

    monkeypatch.setattr("streambank_airflow.hooks.recovery.RecoveryVerbs.check_generations", check)
    approve = ApprovePlanOperator(task_id="approve", job="flights", subject="?", shown="{'flights': 1}")
    with pytest.raises(AirflowFailException, match="approval-outdated"):
        approve.execute(context_of())
    assert checked == [("flights", {"flights": 1}, "flights.restore", "manual__1")]
