"""Operators that take and verify savepoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from streambank.errors import NotFoundError
from streambank_airflow.assets import event_extra, savepoint_asset
from streambank_airflow.failures import airflow_failures
from streambank_airflow.operators.base import (
    SparkWork,
    as_bool,
    as_integer,
    asked_by,
    is_template,
)

if TYPE_CHECKING:
    from airflow.sdk import Context


class CreateSavepointOperator(SparkWork):
    """Takes a savepoint of a job, running or not. Its success is an event of the job's savepoint asset.

    Of a declared job the current generation is taken, with the sinks that its driver told of. Without a
    declaration, `checkpoint` names the directory of any Structured Streaming query, and the connection the
    repository.

    Args:
        checkpoint: The directory of a query that no jobs file declares.
        file_sinks: The output directories of file sinks of such a query.
        batch: An older batch that Spark still retains; None for the last committed one.
        closure: `safe`, or `minimal` for the fewest files; None for what is declared.
        pin: Keep the savepoint until somebody unpins it.
        new_query: Accept that another query than before runs under this job's name.
        skip_if_never_started: Skip, instead of failing, while the job was never started.
        kwargs: `job`, `jobs_file`, `streambank_conn_id`, `note`, those of `SparkWork`, and as for every
            operator.

    Returns:
        `savepoint`, `job`, `batch`, `files`, `bytes`, `new_bytes`, `seconds`, `replans`, `already_there`; of
            a job with several queries also `mutually_consistent`, which is false.
    """

    template_fields: Sequence[str] = (
        *SparkWork.template_fields,
        "checkpoint",
        "file_sinks",
        "batch",
        "closure",
        "pin",
        "new_query",
    )

    def __init__(
        self,
        *,
        checkpoint: str | None = None,
        file_sinks: Sequence[str] = (),
        batch: int | str | None = None,
        closure: str | None = None,
        pin: bool | str = False,
        new_query: bool | str = False,
        skip_if_never_started: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.checkpoint = checkpoint
        self.file_sinks = file_sinks
        self.batch = batch
        self.closure = closure
        self.pin = pin
        self.new_query = new_query
        self.skip_if_never_started = skip_if_never_started
        if not is_template(self.job):
            self.outlets = [*self.outlets, savepoint_asset(self.job)]

    def execute(self, context: Context) -> dict[str, Any]:
        """Take it; see the class."""
        with airflow_failures():
            try:
                result = self.hook.take(
                    self.job,
                    checkpoint=self.checkpoint,
                    file_sinks=list(self.file_sinks),
                    batch=as_integer(self.batch, "batch"),
                    closure=self.closure,
                    pin=as_bool(self.pin, "pin"),
                    new_query=as_bool(self.new_query, "new_query"),
                    note=self.why,
                    by=asked_by(context),
                    executor=self.machines,
                )
            except NotFoundError as error:
                if error.code == "never-started" and self.skip_if_never_started:
                    raise AirflowSkipException(error.message) from error
                raise
        for outlet in self.outlets:
            if outlet == savepoint_asset(self.job):
                context["outlet_events"][outlet].extra = event_extra(result)
        self.log.info("Savepoint %(savepoint)s holds batch %(batch)d: %(new_bytes)d new bytes.", result)
        return result


class VerifySavepointOperator(SparkWork):
    """Verifies a savepoint, and leaves a record of that beside it.

    Args:
        savepoint: Its id, the beginning of one, or `latest`.
        level: `quick` (everything there, sizes match), `full` (every byte read and compared), or `none` to
            skip.
        fail_on_findings: Fail the task where something is wrong; without it the result says so.
        kwargs: `job`, `jobs_file`, `streambank_conn_id`, those of `SparkWork`, and as for every operator.

    Returns:
        `savepoint`, `job`, `ok`, `level`, `findings` (their number), `files`, `bytes`, `seconds`.
    """

    template_fields: Sequence[str] = (*SparkWork.template_fields, "savepoint", "level")

    def __init__(
        self,
        *,
        savepoint: str = "latest",
        level: str = "quick",
        fail_on_findings: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.savepoint = savepoint
        self.level = level
        self.fail_on_findings = fail_on_findings

    def execute(self, context: Context) -> dict[str, Any]:
        """Verify it; see the class."""
        with airflow_failures():
            if self.level == "none":
                raise AirflowSkipException("No verification is wanted.")
            result, findings = self.hook.verify(
                self.job, str(self.savepoint), level=self.level, by=asked_by(context), executor=self.machines
            )
        for finding in findings:
            self.log.error("%s", finding)
        if findings and self.fail_on_findings:
            raise AirflowFailException(
                f"Savepoint {result['savepoint']} of job {self.job} is damaged: {findings[0]}"
                + (f" (and {len(findings) - 1} more, in the log above)" if len(findings) > 1 else "")
                + " Hint: take a new savepoint; restore another one."
            )
        return result
