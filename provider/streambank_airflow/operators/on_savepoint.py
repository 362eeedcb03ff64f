"""What operators on a savepoint share: a link to its page, and its lineage where OpenLineage asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from airflow.providers.common.compat.sdk import conf
from airflow.sdk import BaseOperatorLink
from airflow.sdk.execution_time.xcom import XCom

from streambank_airflow.configuration import page_is_on
from streambank_airflow.operators.base import StreambankOperator
from streambank_airflow.page.names import job_of

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import TaskInstanceKey
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import BaseOperator

    from streambank_airflow.lineage import SavepointWork, Verb

SAVEPOINT_KEY = "streambank_savepoint_link"
"""XCom key under which a task leaves the URL; the API server reads it from there."""


def page_url(job: str, savepoint: str | None = None) -> str:
    """The URL of the page of a job, or of one of its savepoints, in Airflow.

    Args:
        job: The job's name, or `job/query`.
        savepoint: The id of a savepoint; None for the job's own page.
    """
    base = str(conf.get("api", "base_url", fallback="") or "").rstrip("/")
    page = f"{base}/plugin/streambank/{quote(job.partition('/')[0], safe='')}"
    return page if savepoint is None else f"{page}/savepoints/{quote(savepoint, safe='')}"


class SavepointLink(BaseOperatorLink):
    """Leads to the page of the savepoint that a task took, verified, restored or made."""

    name = "Savepoint"

    @property
    def xcom_key(self) -> str:
        """Where the URL is kept."""
        return SAVEPOINT_KEY

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """The URL, or an empty string (no button) for a task without a savepoint.

        Airflow asks at the end of each task, too, and keeps the answer.
        """
        page = getattr(operator, "savepoint_page", None)
        return str(page or XCom.get_value(ti_key=ti_key, key=self.xcom_key) or "")


class OnSavepoint(StreambankOperator):
    """An operator on savepoints."""

    operator_extra_links = (SavepointLink(),)
    savepoint_page = cast("str | None", None)  # annotated, it would be an argument
    """The URL of the page that its link leads to; None for none."""
    work = cast("Sequence[SavepointWork]", ())
    """What it did with which savepoint."""

    def did(self, verb: Verb, *results: Mapping[str, Any]) -> None:
        """Keep what was done with which savepoints, for the link and for OpenLineage.

        Args:
            results: Of each savepoint the engine's result: `job`, `savepoint`, of a restore `repository` and
                `location`, of a rewrite `of`, which begins with the job.
        """
        from streambank_airflow.lineage import SavepointWork

        self.work = [SavepointWork.of_result(verb, one) for one in results]
        if self.work:
            alone = self.work[0].savepoint if len(self.work) == 1 else None
            has_page = page_is_on() and job_of(self) is not None
            self.savepoint_page = page_url(self.work[0].job, alone) if has_page else None

    def get_openlineage_facets_on_start(self) -> OperatorLineage:
        """What is known before it is done: nothing, since the savepoint is chosen or made by then."""
        from streambank_airflow.lineage import Touched, as_openlineage

        return as_openlineage(Touched())

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage:
        """What it has read and written."""
        from streambank_airflow.lineage import as_openlineage, touched_by

        return as_openlineage(touched_by(self.hook.declared, self.work))
