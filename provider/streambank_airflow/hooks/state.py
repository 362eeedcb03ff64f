"""The verbs on the state in a savepoint: it is read and judged, and another savepoint is made of one.

The engine's modules for them are loaded when they are needed.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streambank.core.errors import InputError
from streambank.core.names import MAIN, QueryRef
from streambank.core.units import to_json_time
from streambank.declaration.launch import LOCAL_MASTER
from streambank.driver.installed import installation_for_state
from streambank_airflow.connections.spark import SparkChoice
from streambank_airflow.hooks.declared import DeclaredJobs
from streambank_airflow.hooks.verbs import CALLER, connected

if TYPE_CHECKING:
    from streambank.declaration.declaration import Job
    from streambank.drills.report import DrillReport
    from streambank.repository.repository import Repository

_log = logging.getLogger(__name__)

_REQUESTS = "streambank_spark.change.request"
_PLACES = "streambank_spark.rewrite.key_places"


@dataclass(frozen=True, slots=True)
class StateVerbs:
    """What is done with the state of a job: `hook.state`.

    The first argument of a verb is `job` or `job/query`.
    """

    declared: DeclaredJobs

    def check_request(self, request: Mapping[str, Any]) -> None:
        """Make sure that a request about state is valid, before anything is stopped for it.

        Raises:
            InputError: It is not valid (code `usage`; `bad-expression` for a rule or a repair).
            RefusedError: A repair would change a key (code `repair-key`).
        """
        importlib.import_module(_REQUESTS).request_of(request)

    @connected
    def foresee(self, ref: str, request: Mapping[str, Any], *, elsewhere: bool = False) -> None:
        """Refuse a request that could not be carried out, before the job is stopped for it.

        Args:
            request: What is asked, as JSON.
            elsewhere: The Spark that does it has Python packages of its own.

        Raises:
            StreambankError: As `streambank.recovery.foresee.foresee`, or as `installation_for_state`.
        """
        from streambank.recovery.foresee import foresee

        job, query = self.declared.find(ref)
        installation_for_state(job)
        foresee(job, query, request, elsewhere=elsewhere)

    @connected
    def foresee_rehearsal(self, ref: str) -> None:
        """Refuse a rehearsal that could not run the job's application, before a savepoint is made for it.

        Raises:
            StreambankError: As `streambank.drills.foreseen.foresee_rehearsal`.
        """
        from streambank.drills.foreseen import foresee_rehearsal

        job, _ = self.declared.find(ref)
        foresee_rehearsal(job, job.records())

    @connected
    def rewrite(
        self,
        ref: str,
        savepoint: str,
        request: Mapping[str, Any],
        *,
        spark: SparkChoice | None = None,
        unmoved: bool = False,
        by: Mapping[str, str] = CALLER,
        search: Sequence[str] | None = None,
    ) -> dict[str, Any]:
        """Have another savepoint made of one, or its state judged, by its own Spark.

        Args:
            ref: `job` or `job/query`; of several queries one has to be named.
            savepoint: Its id, the beginning of one, or `latest`.
            request: What is asked, as JSON (streambank_spark/change/request.py).
            spark: Which Spark, beside what is declared.
            unmoved: Refuse where the query has gone on since, or has begun a batch.
            search: Of an erasure: look for the key in all other savepoints too, in those of these replicas
                beside the declared ones, and in what work on the job has left behind; None to look nowhere.

        Returns:
            What `streambank state compact --json` prints (or `state erase`, `state validate`), with
            `generation`: the one that counts, by number; `taken_at`: when the savepoint was taken; and
            `watermark_ms`: its event-time watermark.

        Raises:
            InputError: The request is not valid, or the query is missing (code `which-query`).
            RefusedError: The query has gone on (`query-went-on`, `batch-begun`), or the state cannot be
                rewritten.
        """
        from streambank.recovery.sinks.sinks import check_stands_at

        self.check_request(request)
        job, query = self.declared.find(ref)
        if query is None and MAIN not in job.queries:
            raise InputError(
                f"Job {job.name} has several queries; each has its own state.",
                code="which-query",
                hint=f"Name one: {', '.join(f'{job.name}/{name}' for name in job.queries)}.",
            )
        repository = self.declared.open_repository(ref)
        name, found = repository.find(savepoint, ref)
        manifest = repository.load(name, found)
        current = job.records().generation(query)
        if unmoved and current is not None:
            check_stands_at(name, current.location, manifest.batch)
        more: dict[str, Any] = {"by": dict(by)}
        if search is not None:
            from streambank.cleaning.left_directories import left_directories

            live = importlib.import_module(_PLACES).live_places(repository, name, job)
            more["search"] = {
                "replicas": list(dict.fromkeys([*search, *job.replicate.to])),
                "live": [each.to_dict() for each in live],
                "left": left_directories(job, QueryRef.parse(name).name).to_dict(),
            }
        report = submit(repository, name, found, request, spark or SparkChoice(), job, more)
        return report | {
            "generation": current.number if current is not None else 1,
            "taken_at": to_json_time(manifest.taken_at),
            "watermark_ms": manifest.watermark_ms,
        }

    @connected
    def rehearse(
        self,
        ref: str,
        savepoint: str,
        *,
        batches: int | None = None,
        by: Mapping[str, str] = CALLER,
        say: Callable[[str], None] = _log.info,
    ) -> DrillReport:
        """Run the job's own application on a copy of a savepoint that was made; see `rehearse_made`.

        Args:
            batches: How many batches of the live query are executed again; None for the declared number.
            say: Called when a step begins, in words.

        Raises:
            InputError, RefusedError: As `streambank.drills.drill.rehearse`.
        """
        from streambank.drills.of_savepoint import rehearse_made

        job, query = self.declared.find(ref)
        repository = self.declared.open_repository(ref).store.uri
        place = job.savepoint_name(query)
        return rehearse_made(job, place, savepoint, repository, batches=batches, by=by, say=say)


def submit(
    repository: Repository,
    name: str,
    savepoint: str,
    request: Mapping[str, Any],
    spark: SparkChoice,
    job: Job | None,
    more: Mapping[str, Any],
) -> dict[str, Any]:
    """Have a Spark of its own do something with the state of a savepoint.

    Args:
        repository: Where the savepoint is.
        name: `job` or `job/query`.
        request: What is asked, as JSON.
        spark: Which Spark, beside what is declared.
        job: The declared job; None for a query that no file declares.
        more: What else the plan says (streambank_spark/programs/rewrite_state.py).
    """
    installation = installation_for_state(job)
    master, conf, work = LOCAL_MASTER, {}, None
    if job is not None:
        master, conf = job.state.master or job.master, {**job.spark, **job.state.spark}
        work = job.work_location(QueryRef.parse(name).name)
    plan = {
        "repository": repository.store.uri,
        "job": name,
        "savepoint": savepoint,
        "order": dict(request),
        "work": work,
        **more,
    }
    return spark.rewrite(plan, installation=installation, master=master, conf=conf, say=_log.info)
