"""The operator that looks for what will hurt a job before it does."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException
from airflow.sdk import BaseOperator

from streambank_airflow.arguments import OfJob, OneOf, Templated, argument
from streambank_airflow.failures import airflow_failures
from streambank_airflow.hooks.streambank import DEFAULT_CONN_ID
from streambank_airflow.operators.base import RESULT_KEY, Declaration, FindsJobs

if TYPE_CHECKING:
    from airflow.sdk import Context

FailOn = Literal["error", "warning", "never"]


class DiagnoseStreamingJobOperator(FindsJobs, BaseOperator):
    """Looks at a job, its checkpoint, its savepoints and this machine, and says what will hurt.

    Args:
        fail_on: From which severity on the task fails, and is not tried again: `error`, `warning` or `never`.

    Returns:
        `job`, `errors`, `warnings`, `infos` (numbers), `worst` (a sentence, or None), and `findings`: each
            with `query`, `code`, `severity`, `file`, `cause`, `effect`, `hint`.
    """

    page_parts: ClassVar[tuple[str, ...]] = ("line", "findings")

    job: OfJob[str]
    jobs_file: Templated[str | PathLike[str] | None] = argument(None)
    declaration: OfJob[Declaration | None] = argument(None)
    streambank_conn_id: Templated[str] = argument(DEFAULT_CONN_ID)
    fail_on: OneOf[FailOn] = argument("error")
    only_if: Templated[bool] = argument(True)

    def execute(self, context: Context) -> dict[str, Any]:
        """Look; see the class.

        Raises:
            AirflowFailException: Something of that severity was found, or the job cannot be looked at.
            AirflowSkipException: It is not to be looked at.
        """
        from streambank_airflow.watch.paused import note_watchers

        with airflow_failures():
            if not self.only_if:
                raise AirflowSkipException(f"This run does not diagnose job {self.job}.")
            note_watchers(context, [self.hook.slas.find(self.job)])
            findings = self.hook.jobs.diagnose(self.job)
        self._log(findings)
        result = result_of(self.job, findings)
        # A task that fails returns nothing, and what it found is wanted most then.
        self.leave(context, {RESULT_KEY: result})
        if (self.fail_on != "never" and result["errors"]) or (
            self.fail_on == "warning" and result["warnings"]
        ):
            raise AirflowFailException(str(result["worst"]))
        return result

    def _log(self, findings: Sequence[dict[str, Any]]) -> None:
        says = {"error": self.log.error, "warning": self.log.warning}
        for one in findings:
            says.get(one["severity"], self.log.info)("%s", sentence(one))


def result_of(job: str, findings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the operator returns; see there."""
    numbers = {
        kind: sum(one["severity"] == kind for one in findings) for kind in ("error", "warning", "info")
    }
    bad = sorted(
        (one for one in findings if one["severity"] != "info"), key=lambda one: one["severity"] != "error"
    )
    return {
        "job": job,
        "errors": numbers["error"],
        "warnings": numbers["warning"],
        "infos": numbers["info"],
        "worst": sentence(bad[0]) if bad else None,
        "findings": list(findings),
    }


def sentence(finding: dict[str, Any]) -> str:
    """A finding for people, on one line."""
    where = f" {finding['file']}" if finding["file"] else ""
    of = f" [query {finding['query']}]" if finding["query"] else ""
    return (
        f"{finding['severity']}: {finding['code']}{where}{of}: {finding['cause']} {finding['effect']} "
        f"Hint: {finding['hint']}"
    )
