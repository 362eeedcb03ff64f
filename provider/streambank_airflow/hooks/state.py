"""The verbs on the state in a savepoint: another savepoint is made of one, with its state rewritten.

The engine's modules for them are loaded when they are needed.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streambank.core.errors import InputError
from streambank.core.names import MAIN
from streambank.core.units import to_json_time
from streambank_airflow.hooks.declared import DeclaredJobs, connected

if TYPE_CHECKING:
    from streambank_airflow.connections.spark import SparkChoice

_log = logging.getLogger(__name__)

_REQUEST = "streambank_spark.rewrite.request"


@dataclass(frozen=True, slots=True)
class StateVerbs:
    """What is done with the state of a job: `hook.state`."""

    declared: DeclaredJobs

    def check_request(self, request: Mapping[str, Any]) -> None:
        """Make sure that a request to rewrite state is valid, before anything is stopped for it.

        Raises:
            InputError: It is not valid (code `usage`).
        """
        importlib.import_module(_REQUEST).RewriteRequest.from_dict(request)

    @connected
    def foresee(self, ref: str, request: Mapping[str, Any], *, elsewhere: bool) -> None:
        """Refuse a request that could not be carried out, before the job is stopped for it.

        Args:
            ref: `job` or `job/query`.
            request: What is asked, as JSON.
            elsewhere: The Spark that does it has Python packages of its own.

        Raises:
            StreambankError: As `streambank.recovery.foresee.foresee`.
        """
        from streambank.recovery.foresee import foresee

        job, query = self.declared.find(ref)
        foresee(job, query, request, elsewhere=elsewhere)

    @connected
    def rewrite(
        self,
        ref: str,
        savepoint: str,
        request: Mapping[str, Any],
        *,
        spark: SparkChoice,
        unmoved: bool,
        by: Mapping[str, str],
    ) -> dict[str, Any]:
        """Have another savepoint made of one, by a Spark of its own.

        Args:
            ref: `job` or `job/query`; of several queries one has to be named.
            savepoint: Its id, the beginning of one, or `latest`.
            request: What is asked, as JSON (streambank_spark/rewrite/request.py).
            spark: Which Spark, beside what is declared.
            unmoved: Refuse where the query has gone on since, or has begun a batch.
            by: Who asks.

        Returns:
            What `streambank state compact --json` prints, with `generation`: the one that counts, by number,
            and `taken_at`: when the savepoint was taken.

        Raises:
            InputError: The request is not valid, or the query is missing (code `which-query`).
            RefusedError: The query has gone on (`query-went-on`, `batch-begun`), or the state cannot be
                rewritten.
            StreambankError: Whatever the rewrite raises.
        """
        from streambank.recovery.sinks import check_stands_at

        self.check_request(request)
        job, query = self.declared.find(ref)
        if query is None and MAIN not in job.queries:
            raise InputError(
                f"Job {job.name} has several queries; each has state of its own.",
                code="which-query",
                hint=f"Name one: {', '.join(f'{job.name}/{name}' for name in job.queries)}.",
            )
        repository = self.declared.open_repository(ref)
        name, found = repository.find(savepoint, ref)
        manifest = repository.load(name, found)
        current = job.records().generation(query)
        if unmoved and current is not None:
            check_stands_at(name, current.location, manifest.batch)
        plan = {
            "repository": repository.store.uri,
            "job": name,
            "savepoint": found,
            "order": dict(request),
            "work": job.state.work or f"{job.queries[query or MAIN]}.work",
            "by": dict(by),
        }
        report = spark.rewrite(
            plan,
            master=job.state.master or job.master,
            conf={**job.spark, **job.state.spark},
            say=_log.info,
        )
        return report | {
            "generation": current.number if current is not None else 1,
            "taken_at": to_json_time(manifest.taken_at),
        }
