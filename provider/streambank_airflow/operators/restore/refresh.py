"""The operator that makes a declared copy of a job's state from a savepoint, and makes it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streambank.core.verb_options import RefreshOptions
from streambank_airflow.arguments import RefreshArguments, Templated
from streambank_airflow.choices import check_form_copy
from streambank_airflow.failures import airflow_failures
from streambank_airflow.hints import in_data, in_words
from streambank_airflow.operators.base import StreambankOperator, asked_by

if TYPE_CHECKING:
    from airflow.sdk import Context


class RefreshCopyOperator(StreambankOperator, RefreshArguments):
    """Makes a copy of a job's state, or makes it again, while the job runs on; see docs/howto/copies.md.

    Nothing of the live job is touched. The copy in use stays until the new one is whole, so a task that is
    killed leaves it; the next one begins again. While a job runs on the copy, the refresh is refused.

    Args:
        copy: The copy that the job declares, such as `staging`.
        from_form: `repository` comes from a form: only what the job declares is taken.

    Returns:
        What `streambank fork --json` gives, without `by`, `why`, `dry_run` and `refusals`.
    """

    alert_kinds = ("refresh-failed",)

    copy: Templated[str]
    from_form: bool = False

    @property
    def alert_subject(self) -> str:
        """What an alert of its failure is about, besides the error: each copy is another problem."""
        return str(self.copy)

    def execute(self, context: Context) -> dict[str, Any]:
        """Make it; see the class.

        Raises:
            AirflowFailException: It is refused: a person has to decide.
        """
        with airflow_failures():
            if self.from_form:
                check_form_copy(self.whole_job("A copy"), self.copy, self.repository)
            report = self.hook.recovery.refresh(
                self.job,
                copy=self.copy,
                note=self.why,
                by=asked_by(context),
                **self.values_of(RefreshOptions),
            )
        self.leave_report(context, [("copy", report.runs_as), *report.rows()])
        for warning in report.warnings:
            self.log.warning("%s", in_words(warning))
        left_out = ("by", "why", "dry_run", "refusals")
        whole = in_data(report.to_dict())
        return {name: value for name, value in whole.items() if name not in left_out}
