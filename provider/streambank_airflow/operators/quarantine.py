"""The operators on what a compaction has moved out of a checkpoint: bring it back, or delete it for good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from streambank_airflow.failures import airflow_failures
from streambank_airflow.operators.base import StreambankOperator, as_bool, asked_by, flat

if TYPE_CHECKING:
    from airflow.sdk import Context


class _QuarantineOperator(StreambankOperator):
    """An operator on one quarantine of a job's checkpoint.

    Args:
        quarantine: Where it is: the `quarantine` in the result of `CompactCheckpointOperator`. Empty or None,
            as there where nothing was moved, skips the task.
        only_if: Skip unless this is true; for a form's answer.
        kwargs: `job`, `jobs_file`, `streambank_conn_id`, `note`, and as for every operator.
    """

    template_fields: Sequence[str] = (*StreambankOperator.template_fields, "quarantine", "only_if")

    def __init__(self, *, quarantine: str | None, only_if: bool | str = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.quarantine = quarantine
        self.only_if = only_if

    def place(self) -> str:
        """The quarantine, where there is something to do.

        Raises:
            AirflowSkipException: There is nothing to do.
            InputError: `only_if` is neither yes nor no.
        """
        if not as_bool(self.only_if, "only_if"):
            raise AirflowSkipException("This run is to do without it.")
        found = "" if self.quarantine is None else str(self.quarantine).strip()
        if found in ("", "None"):  # a template that is rendered as text makes this of a None
            raise AirflowSkipException("No quarantine is named: the compaction moved nothing.")
        return found


class UndoCompactionOperator(_QuarantineOperator):
    """Brings back what a compaction has moved out of a job's checkpoint.

    No driver may live, unless only unfinished writes were moved, and none can start meanwhile. It is refused
    once the query has committed another batch. A retry finds what the first try has done.

    Args:
        kwargs: `quarantine`, `only_if`, and `job`, `jobs_file`, `streambank_conn_id`, `note`, as for every
            operator.

    Returns:
        `checkpoint`, `quarantine`, `files`, `bytes` (what is in the checkpoint again), `already_done`,
            `left_files` (how many stay in the quarantine, since other files have their names).
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Bring it back; see the class."""
        with airflow_failures():
            report = self.hook.undo_compaction(self.job, self.place(), note=self.why, by=asked_by(context))
        for path in report.left:
            self.log.warning("Left in %s, since another file has its name: %s", report.quarantine, path)
        for path in report.missing:
            self.log.error("In neither place: %s", path)
        if report.missing:
            raise AirflowFailException(
                f"{report.files} files are back in {report.checkpoint}; {len(report.missing)} are in neither "
                f"place, such as {report.missing[0]}. Hint: verify the job's last savepoint before it starts."
            )
        return {**flat(report.to_dict()), "left_files": len(report.left)}


class PurgeQuarantineOperator(_QuarantineOperator):
    """Deletes for good what a compaction has moved out of a job's checkpoint; its driver may live.

    It is refused where the compaction broke off, until the query has committed another batch. A retry goes on
    where the first try broke off.

    Args:
        kwargs: `quarantine`, `only_if`, and `job`, `jobs_file`, `streambank_conn_id`, `note`, as for every
            operator.

    Returns:
        `checkpoint`, `quarantine`, `files`, `bytes` (what was deleted), `already_done`.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Delete it; see the class."""
        with airflow_failures():
            report = self.hook.purge_quarantine(self.job, self.place(), note=self.why, by=asked_by(context))
        return flat(report.to_dict())
