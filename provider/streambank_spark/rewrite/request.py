"""What is asked of a savepoint's state, as data: by a command, or by a plan's file for spark-submit.

State holds no time of when it was read, so what is idle is told by writes alone; and expired rows are there
until a compaction takes them (docs/howto/rewrite-state.md: Flink's kinds of time to live).
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streambank.checkpoint.rewritable import check_earlier
from streambank.control.generations import Generation
from streambank.core.errors import InputError, NotFoundError, RefusedError, StreambankError
from streambank.repository.catalog import SavepointSummary
from streambank_spark.rewrite.derive import Derived, SourceSavepoint, derive
from streambank_spark.rewrite.expiry import ExpiredKeys, Idle, KeySelection, SkippedOperator, Where, expired
from streambank_spark.rewrite.migrate import migrate
from streambank_spark.rewrite.repair import repair_savepoint
from streambank_spark.rewrite.rewrite import rewrite
from streambank_spark.rewrite.rewrite_request import Planned, RewriteRequest
from streambank_spark.rewrite.validate_request import ValidateRequest
from streambank_spark.state.staging import materialized_savepoint, require_schemas, require_shared
from streambank_spark.state.state import QueryState
from streambank_spark.state.validate import validate_state


def carry_out(source: SourceSavepoint, order: RewriteRequest) -> Derived:
    """Do what is asked of a savepoint; what comes of it is another savepoint.

    Raises:
        InputError: The order cannot be meant, or does not fit the state.
        StreambankError: As `derive`.
    """
    order.check()
    planned, repository, job = Planned.of(order.planned), source.repository, source.job
    with ExitStack() as stack:
        since: QueryState | None = None
        reference = order.idle_since
        if order.idle_for_s is not None:
            reference = _older(source, order.idle_for_s, planned.now)
        if reference is not None:
            place, earlier = repository.find(reference, job)
            now, then = repository.load(job, source.savepoint), repository.load(place, earlier)
            check_earlier(earlier, (then.query_id, then.batch), (now.query_id, now.batch))
            laid = stack.enter_context(materialized_savepoint(repository, place, earlier, source.staging))
            since = QueryState(source.spark, laid.location)

        passed_over: list[SkippedOperator] = []

        def decide(state: QueryState) -> list[ExpiredKeys]:
            found = expired(state, _rule(order, since), passed_over)
            return found if order.max_rows is None else [one.at_most(order.max_rows) for one in found]

        derived = derive(
            source,
            order.operation,
            decide=None if order.operation in ("rescale", "migrate") else decide,
            most_keys=planned.keys,
            partitions=order.partitions,
            write=rewrite if order.provider is None else migrate,
            dry_run=order.dry_run,
            note=order.note,
        )
        return derived if order.key is None else replace(derived, passed_over=tuple(passed_over))


def validate(source: SourceSavepoint, order: ValidateRequest) -> dict[str, Any]:
    """Judge a savepoint's state, or repair it in another one; what the command prints with `--json`.

    Raises:
        StreambankError: As `validate_state`, `repair_savepoint` and `materialized_savepoint`.
    """
    rules, assignments = order.parsed()
    if assignments:
        repaired = repair_savepoint(
            source, rules, assignments, limit=order.samples, dry_run=order.dry_run, note=order.note
        )
        return repaired.to_dict() | {"dry_run": order.dry_run}
    with materialized_savepoint(source.repository, source.job, source.savepoint, source.staging) as found:
        require_schemas(found.manifest)
        require_shared(source.spark, found.location)
        state = QueryState(source.spark, found.location)
        judged = [each.to_dict() for each in validate_state(state, rules, order.samples)]
        return {
            "of": found.of,
            "batch": state.closure.batch,
            "ok": not any(each["broken"] for each in judged),
            "rules": judged,
            "repairs": [],
            "savepoint": None,
            "dry_run": order.dry_run,
        }


def check_where(spark: SparkSession, generation: Generation | None, order: RewriteRequest) -> None:
    """Let Spark look at an expression before a job is stopped for it, which may go on; no row is read.

    Raises:
        InputError: The expression cannot be used with the state (code `bad-expression`), or the operator or
            part does not exist, or has to be named.
        RefusedError: The operator keeps one state for all input (code `no-key`).
    """
    if generation is None or order.where is None:
        return
    try:
        expired(QueryState(spark, generation.location), _rule(order, None))
    except (InputError, RefusedError):
        raise
    except (StreambankError, PySparkException):
        return  # it goes on while it is looked at; the savepoint of the stop will tell


def _rule(order: RewriteRequest, since: QueryState | None) -> Where | Idle | KeySelection:
    if since is not None:
        return Idle(since, order.operator)
    if order.key is not None:
        return KeySelection(order.key, order.operator)
    assert order.where is not None
    planned = Planned.of(order.planned)
    return Where(order.where, order.operator, order.part, planned.now, order.from_form, planned.watermark_ms)


def _older(source: SourceSavepoint, seconds: float, now: datetime | None) -> str:
    job = source.job
    saved = [one for one in source.repository.manifests(job) if one.job == job]
    taken_at = _moment(next(one for one in saved if one.savepoint == source.savepoint))
    before = min(taken_at, now or taken_at) - timedelta(seconds=seconds)
    old = [one for one in saved if one.error is None and one.derived_from is None and _moment(one) <= before]
    if not old:
        raise NotFoundError(
            f"No savepoint of {job} was taken at {before:%Y-%m-%d %H:%M} UTC or earlier.",
            code="no-such-savepoint",
            hint="Which keys were idle for so long is not known: keep savepoints longer, or name keys by a "
            "condition.",
        )
    return max(old, key=_moment).savepoint


def _moment(summary: SavepointSummary) -> datetime:
    assert summary.taken_at is not None
    return summary.taken_at
