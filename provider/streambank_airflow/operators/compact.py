"""Operators that remove what a job's checkpoints do not need: dead files, and directories that were left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException

from streambank.core.errors import InputError
from streambank.core.verb_options import CleanOptions, CompactOptions
from streambank_airflow.arguments import CleanArguments, CompactArguments, Templated, argument
from streambank_airflow.failures import airflow_failures, as_airflow
from streambank_airflow.hints import in_words
from streambank_airflow.operators.base import StreambankOperator, asked_by, flat, measured, tried_by

if TYPE_CHECKING:
    from airflow.sdk import Context

    from streambank.compaction.compact import CompactionReport


class CompactCheckpointOperator(StreambankOperator, CompactArguments):
    """Moves dead files of a job's current checkpoints into a quarantine beside each.

    While no driver lives, everything goes that no kept batch needs, and no driver can start meanwhile. Beside
    a driver only old unfinished writes go. A retry goes on where the first try broke off, and what is done is
    not done again.

    Returns:
        `job`, `mode` (`stopped`, `running`), `dry_run`, `already_done`, `queries`, `files`, `bytes` (what was
            moved), `kept_files`, `kept_bytes` (over all queries), `quarantine` (of a job with one query;
            none where nothing was moved), `seconds`.
    """

    operation = "compact_checkpoint"

    alert_kinds = ("compaction-failed",)

    # One that a template leaves empty is refused.
    keep_batches: Templated[int | None] = argument(1)  # type: ignore[assignment]  # a wider type
    only_if: Templated[bool] = argument(True)

    @measured
    def execute(self, context: Context) -> dict[str, Any]:
        """Compact; see the class."""
        with airflow_failures():
            if not self.only_if:
                raise AirflowSkipException("This run does not include this step.")
            if self.keep_batches is None:
                raise InputError(
                    "keep_batches must be a whole number, not empty.",
                    code="bad-option",
                    hint="Keep at least one: the query goes on from it.",
                )
            reports = self.hook.checkpoints.compact(
                self.job, note=self.why, by=tried_by(context), **self.values_of(CompactOptions)
            )
        for report in reports.values():
            self._tell(report)
        return _result(self.job, list(reports.values()))

    def _tell(self, report: CompactionReport) -> None:
        told = report.to_dict()
        for reason in told["reasons"]:
            self.log.info(
                "%s: %d files, %d bytes: %s.",
                reason["reason"],
                reason["files"],
                reason["bytes"],
                reason["why"],
            )
        for note in report.notes:
            self.log.warning("%s", in_words(note))
        for refusal in report.refusals:
            self.log.warning("Refused now: %s", refusal.message)
        if report.quarantine is not None:
            self.log.info(
                "The files are in %s, for PurgeQuarantineOperator to delete or UndoCompactionOperator to "
                "bring back.",
                report.quarantine,
            )


def _result(job: str, reports: Sequence[CompactionReport]) -> dict[str, Any]:
    told = [report.to_dict() for report in reports]
    sums = {
        name: sum(one[name] or 0 for one in told) for name in ("files", "bytes", "kept_files", "kept_bytes")
    }
    return {
        "job": job,
        "mode": reports[0].mode,
        "dry_run": reports[0].dry_run,
        "already_done": all(report.already_done for report in reports),
        "queries": len(reports),
        **sums,
        "quarantine": reports[0].quarantine if len(reports) == 1 else None,
        "seconds": round(sum(report.seconds for report in reports), 3),
    }


class _QuarantineOperator(StreambankOperator):
    """An operator on one quarantine of a job's checkpoint.

    Args:
        quarantine: Where it is: the `quarantine` in the result of `CompactCheckpointOperator`. Empty or None,
            as there where nothing was moved, skips the task.
    """

    quarantine: Templated[str | None]
    only_if: Templated[bool] = argument(True)

    def place(self) -> str:
        """The quarantine, where there is something to do.

        Raises:
            AirflowSkipException: There is nothing to do.
        """
        if not self.only_if:
            raise AirflowSkipException("This run does not include this step.")
        if self.quarantine is None:
            raise AirflowSkipException("No quarantine is named: the compaction moved nothing.")
        return str(self.quarantine).strip()


class UndoCompactionOperator(_QuarantineOperator):
    """Brings back what a compaction has moved out of a job's checkpoint.

    No driver may live, unless only unfinished writes were moved, and none can start meanwhile. It is refused
    once the query has committed another batch. A retry finds what the first try has done.

    Returns:
        `checkpoint`, `quarantine`, `files`, `bytes` (what is in the checkpoint again), `already_done`,
            `left_files` (how many stay in the quarantine, since other files have their names).
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Bring it back; see the class."""
        with airflow_failures():
            report = self.hook.checkpoints.undo(self.job, self.place(), note=self.why, by=asked_by(context))
        for path in report.left:
            self.log.warning("Left in %s, since another file has its name: %s", report.quarantine, path)
        for path in report.missing:
            self.log.error("Missing from both the checkpoint and the quarantine: %s", path)
        if report.missing:
            raise AirflowFailException(
                f"{report.files} files are back in {report.checkpoint}; {len(report.missing)} are missing "
                f"from both the checkpoint and the quarantine, such as {report.missing[0]}. Hint: verify the "
                "job's last savepoint before it starts."
            )
        return {**flat(report.to_dict()), "left_files": len(report.left)}


class PurgeQuarantineOperator(_QuarantineOperator):
    """Deletes for good what a compaction has moved out of a job's checkpoint; its driver may live.

    It is refused where the compaction broke off, until the query has committed another batch. A retry goes on
    where the first try broke off.

    Returns:
        `checkpoint`, `quarantine`, `files`, `bytes` (what was deleted), `already_done`.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Delete it; see the class."""
        with airflow_failures():
            report = self.hook.checkpoints.purge(self.job, self.place(), note=self.why, by=asked_by(context))
        return flat(report.to_dict())


class CleanJobOperator(StreambankOperator, CleanArguments):
    """Removes what work on a job has left and nothing needs any more, such as earlier generations.

    A driver may run meanwhile. One directory that cannot be removed does not keep the others from it; then
    the task fails, and a retry goes on.

    Args:
        plan_only: Change nothing; only say what would go.

    Returns:
        `job`, `dry_run`, `directories` (how many were found), `removed`, `bytes` (of those), `failed`.
    """

    plan_only: Templated[bool] = argument(False)
    only_if: Templated[bool] = argument(True)

    def execute(self, context: Context) -> dict[str, Any]:
        """Clean; see the class."""
        with airflow_failures():
            if not self.only_if:
                raise AirflowSkipException("This run does not include this step.")
            report = self.hook.checkpoints.clean(
                self.job,
                plan_only=self.plan_only,
                note=self.why,
                by=asked_by(context),
                **self.values_of(CleanOptions),
            )
        for one in report.decisions:
            what, size = one.directory.location, one.directory.bytes
            self.log.info("%s (%s, %d bytes): %s: %s", what, one.directory.kind, size, one.state, one.why)
        for location, why in report.unread:
            self.log.warning("%s was not read: %s", location, why)
        errors = [one.error for one in report.having("failed") if one.error is not None]
        for error in errors:
            self.log.error("%s", error.message)
        if errors:
            first = min(errors, key=lambda error: not error.retryable)
            raise as_airflow(first) from first
        document = report.to_dict()
        return {
            **{name: document[name] for name in ("job", "dry_run", "removed", "bytes", "failed")},
            "directories": len(report.decisions),
        }
