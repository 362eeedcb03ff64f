"""The operator that lets a person approve a plan, and how a plan is shown to people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException
from airflow.providers.standard.operators.hitl import ApprovalOperator, HITLOperator

from streambank.core.options import as_data
from streambank.core.units import say_duration
from streambank.recovery.approval import CHOICE_KEY, Choice, chosen_of
from streambank_airflow.airflow_versions import TaskWaitsForPerson
from streambank_airflow.arguments import OfJob, Templated, argument
from streambank_airflow.failures import airflow_failures
from streambank_airflow.hooks.streambank import DEFAULT_CONN_ID
from streambank_airflow.operators.base import Declaration, FindsJobs

if TYPE_CHECKING:
    from airflow.sdk import Context

PLAN_KEY = "plan_markdown"
"""XCom key under which a plan leaves its plan as Markdown, for the body of an approval."""
SUBJECT_KEY = "subject"
"""XCom key under which it leaves the question of an approval."""
CHOICES_KEY = "choices"
"""XCom key under which it leaves what an approval offers."""


ASKED_AGAIN = (
    "An earlier try of the task has ended. If it had asked this, and you have answered, the answer is lost, "
    "and nothing was done. The plan is the same."
)
"""Airflow tells a task not whether a try has asked: it may have failed before."""


def is_retry(context: Context) -> bool:
    """Whether Airflow has tried the task before by itself; one that a person has cleared begins again."""
    instance: Any = context["ti"]
    before = instance.max_tries - (instance.task.retries or 0)  # clearing raises max_tries
    return bool(instance.try_number - before > 1)


class ApprovePlanOperator(FindsJobs, ApprovalOperator):
    """Asks a person whether a plan is to be done, and how, where the form's answers do not settle it.

    It offers what the plan found possible beside *Reject*. Silence is no consent either: then the task fails,
    for no person has decided. What was chosen of several is in XCom `choice`, for `RestoreSavepointOperator`.
    Whom the job's `restore.ask` and `notify` name is told that it waits.

    Args:
        choices: What a plan left in its XCom `choices`; nothing: only *Approve*.
        shown: The generations that the plan was of (its XCom `planned_generations`): nothing is asked about a
            plan where another one counts since.
    """

    page_parts: ClassVar[tuple[str, ...]] = ()  # it changes nothing

    job: OfJob[str]
    choices: Templated[Sequence[Mapping[str, Any]] | str | None] = argument(None)
    only_if: Templated[bool] = argument(True)
    shown: Templated[Mapping[str, int] | str | None] = argument(None)
    jobs_file: Templated[str | PathLike[str] | None] = argument(None)
    declaration: OfJob[Declaration | None] = argument(None)
    streambank_conn_id: Templated[str] = argument(DEFAULT_CONN_ID)
    if TYPE_CHECKING:  # and what Airflow's `ApprovalOperator` takes

        def __init__(self, *, job: str, **kwargs: Any) -> None: ...

    def execute(self, context: Context) -> Any:
        """Ask; see the class.

        Raises:
            AirflowFailException: This run has asked already, and Airflow would show that question; or the
                plan is not of how things are.
            AirflowSkipException: Nobody is to be asked.
            TaskAwaitingInput: The task waits for a person; before Airflow 3.3 it is `TaskDeferred`.
        """
        with airflow_failures():
            if not self.only_if:
                raise AirflowSkipException("This run needs no approval.")
            self.check_shown(context, self.shown)
        self._take_choices()
        self._check_question(context)
        try:
            return super().execute(context)
        except TaskWaitsForPerson:
            self._say_that_it_waits(context)
            raise

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Go on with what was chosen; see the class."""
        chosen = self._take_choices()
        label = next(iter(event.get("chosen_options") or ()), None)
        if event.get("timedout") and label == self.REJECT:
            dag_id = context["dag_run"].dag_id
            raise AirflowFailException(
                f"No person has answered in time: {self.subject} So nothing was changed. Hint: trigger "
                f"{dag_id} again: its plan shows how things are then."
            )
        if "error" in event or label not in chosen:
            return super().execute_complete(context, event)
        result = HITLOperator.execute_complete(self, context, event)
        self.hitl_summary_extra["approved"] = True
        self.leave(context, {CHOICE_KEY: chosen[label].to_dict()})
        who = (event.get("responded_by_user") or {}).get("name") or "Somebody"
        self.log.info("%s chose: %s", who, label)
        return result

    def _say_that_it_waits(self, context: Context) -> None:
        from streambank_airflow.notify.alerts import ask_approvers

        try:
            link = self.generate_link_to_ui_from_context(context=context)
        except ValueError:  # no base_url is configured
            link = ""
        where = f" Answer it at {link}." if link else " Answer it under Required Actions in Airflow."
        until = (
            f" Without an answer it is rejected after {say_duration(self.response_timeout.total_seconds())}."
            if (self.response_timeout)
            else ""
        )
        again = ASKED_AGAIN if is_retry(context) else ""
        if again:
            self.log.warning("%s", again)
        seen = {**context, "subject": self.subject, "body": self.body, "link": link}
        said = f"{again} {self.subject}{where}{until}".strip()
        ask_approvers(self.hook, self.job, said, seen)

    def _take_choices(self) -> dict[str, Choice]:
        """What the plan offers, by label; from now on the options of this question."""
        choices = as_data(self.choices)
        given = choices if isinstance(choices, Sequence) else ()
        offered = [chosen_of(one) for one in given if isinstance(one, Mapping)]
        found = {one.label: one for one in offered if one is not None}
        self.options = [*(found or [self.APPROVE]), self.REJECT]
        return found

    def _check_question(self, context: Context) -> None:
        """Make sure that Airflow shows this question: of a run it keeps the first one that it got.

        Raises:
            AirflowFailException: It would show another plan, from before the task was cleared.
        """
        from airflow.sdk.execution_time import task_runner
        from airflow.sdk.execution_time.comms import CreateHITLDetailPayload

        task_instance: Any = context["ti"]
        users = [dict(one) for one in self.assigned_users or ()]
        stored: Any = task_runner.SUPERVISOR_COMMS.send(
            msg=CreateHITLDetailPayload.model_validate(
                {
                    "ti_id": task_instance.id,
                    "options": self.options,
                    "subject": self.subject,
                    "body": self.body,
                    "defaults": self.defaults,
                    "multiple": self.multiple,
                    "params": self.serialized_params,
                    "assigned_users": users,
                }
            )
        )
        if (stored.subject, stored.body, stored.options) != (self.subject, self.body, self.options):
            raise AirflowFailException(
                "This run asked for approval before it was cleared, and Airflow would show the old plan "
                f"instead of the new one. Nothing was changed. Hint: trigger {task_instance.dag_id} again."
            )
