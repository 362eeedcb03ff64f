"""The operator that makes a declared copy of a job's state from a savepoint, and makes it again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from streambank.core.choices import SOURCE_CHOICES
from streambank_airflow.choices import check_form_copy
from streambank_airflow.failures import airflow_failures
from streambank_airflow.hints import in_data, in_words
from streambank_airflow.markdown import rows_table
from streambank_airflow.operators.base import (
    REPORT_KEY,
    StreambankOperator,
    as_text,
    asked_by,
    known_or_template,
)

if TYPE_CHECKING:
    from airflow.sdk import Context


class RefreshCopyOperator(StreambankOperator):
    """Makes a copy of a job's state, or makes it again, while the job runs on; see docs/howto/copies.md.

    Nothing of the live job is touched. The copy in use stays until the new one is whole, so a task that is
    killed leaves it; the next one begins again. While a job runs on the copy, the refresh is refused.

    Args:
        copy: The copy that the job declares, such as `staging`.
        savepoint: Which savepoint of each query: `latest-good`, or what names one of each, such as a time.
        repository: The repository or replica that it comes from, or `nearest`; None for what is declared.
        source: `refuse` where a source lacks input that the copy would read next, or cannot be asked;
            `accept` to go on without it; None for what is declared.
        from_form: `repository` comes from a form: only what the job declares is taken.
        kwargs: `job`, `jobs_file`, `streambank_conn_id`, `note` (why), and as for every operator.

    Returns:
        What `streambank fork --json` gives, without `by`, `why`, `dry_run` and `refusals`.
    """

    template_fields: Sequence[str] = (
        *StreambankOperator.template_fields,
        "copy",
        "savepoint",
        "repository",
        "source",
    )
    alert_kinds = ("refresh-failed",)

    def __init__(
        self,
        *,
        copy: str,
        savepoint: str = "latest-good",
        repository: str | None = None,
        source: str | None = None,
        from_form: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.copy = copy
        self.savepoint = savepoint
        self.repository = repository
        self.source = None if source is None else known_or_template(source, "source", SOURCE_CHOICES)
        self.from_form = from_form

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
            repository = as_text(self.repository)
            if self.from_form:
                check_form_copy(self.hook.declared.job(self.job), self.copy, repository)
            report = self.hook.recovery.refresh(
                self.job,
                self.copy,
                savepoint=as_text(self.savepoint) or "latest-good",
                repository=repository,
                source=as_text(self.source),
                note=self.why,
                by=asked_by(context),
            )
        shown = rows_table([("copy", report.runs_as), *report.rows()])
        self.log.info("The report:\n%s", shown)
        for warning in report.warnings:
            self.log.warning("%s", in_words(warning))
        task_instance: Any = context["ti"]
        task_instance.xcom_push(key=REPORT_KEY, value=shown)
        left_out = ("by", "why", "dry_run", "refusals")
        whole = in_data(report.to_dict())
        return {name: value for name, value in whole.items() if name not in left_out}
