"""What is asked of a savepoint's state, as data: by a command, or by a plan's file for spark-submit.

State holds no time of when it was read, so what is idle is told by writes alone; and expired rows are there
until a compaction takes them (docs/howto/rewrite-state.md: Flink's kinds of time to live).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streambank.control.generations import Generation
from streambank.core.errors import InputError, NotFoundError, RefusedError, StreambankError
from streambank.repository.catalog import SavepointSummary
from streambank.repository.repository import Repository
from streambank_spark.rewrite.derive import Derived, Say, derive
from streambank_spark.rewrite.expiry import Expired, Idle, Key, PassedOver, Where, expired
from streambank_spark.rewrite.migrate import migrate
from streambank_spark.rewrite.repair import Assignment, repair_savepoint
from streambank_spark.rewrite.rewrite import rewrite
from streambank_spark.state.staging import Staging, materialized_savepoint, require_schemas, require_shared
from streambank_spark.state.state import QueryState
from streambank_spark.state.validate import Rule, validate_state

OPERATIONS = ("compact", "erase", "rescale", "migrate")
PROVIDERS = ("rocksdb",)
VALIDATE = "validate"


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteRequest:
    """What is asked; JSON by `to_dict`.

    Attributes:
        operation: One of `OPERATIONS`.
        where: Compact: keys go for whose rows this SQL expression holds.
        idle_since: Compact: keys go that have the same rows in this earlier savepoint.
        idle_for_s: Compact: the same, of the newest savepoint that is so many seconds older, or more.
        key: Erase: keys that have these fields go.
        partitions: Rescale: how many state partitions there are to be. Migrate: the same, besides.
        provider: Migrate: what is to keep the state, one of `PROVIDERS`.
        operator: Of this operator only.
        part: Judged by these rows alone.
        max_rows: So many rows go at most, of each operator.
        from_form: Somebody typed `where` into a form: what Spark says of it may carry data of the state, and
            is not repeated.
        dry_run: Only say what would go.
        note: A note for the new savepoint.
    """

    operation: str
    where: str | None = None
    idle_since: str | None = None
    idle_for_s: float | None = None
    key: str | None = None
    partitions: int | None = None
    provider: str | None = None
    operator: int | None = None
    part: str | None = None
    max_rows: int | None = None
    from_form: bool = False
    dry_run: bool = False
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RewriteRequest:
        """From what `to_dict` gave.

        Raises:
            InputError: It is no order (code `usage`).
        """
        unknown = set(data) - {one.name for one in fields(cls)}
        if unknown or data.get("operation") not in OPERATIONS:
            raise InputError(
                f"The request is not valid: {', '.join(sorted(unknown)) or data.get('operation')}.",
                code="usage",
                hint=f"The operation must be one of {', '.join(OPERATIONS)}.",
            )
        order = cls(**data)
        order.check()
        return order

    def check(self) -> None:
        """Make sure that it can be meant.

        Raises:
            InputError: It cannot (code `usage`).
        """
        rules = [self.where, self.idle_since, self.idle_for_s, self.key, self.provider or self.partitions]
        given = sum(rule is not None for rule in rules)
        needs = {
            "compact": "a condition (where), a savepoint (idle since), or a time (idle for)",
            "erase": "a key",
            "rescale": "a number of partitions",
            "migrate": "the provider rocksdb",
        }
        migrates = self.operation == "migrate"
        if (
            given != 1
            or migrates is not (self.provider is not None)
            or self.provider not in (None, *PROVIDERS)
        ):
            raise InputError(
                f"{self.operation} needs {needs[self.operation]}, and nothing besides.",
                code="usage",
                hint="Give exactly one rule that says what to do.",
            )
        if (self.partitions is not None and self.partitions < 1) or (
            self.max_rows is not None and self.max_rows < 1
        ):
            raise InputError(
                "The number of partitions and the limit of rows must be at least 1.",
                code="usage",
                hint="Give a whole number above 0.",
            )


def carry_out(
    spark: SparkSession,
    repository: Repository,
    job: str,
    savepoint: str,
    order: RewriteRequest,
    staging: Staging,
    *,
    by: Mapping[str, str] | None = None,
    say: Say = lambda text: None,
) -> Derived:
    """Do what is asked of a savepoint; what comes of it is another savepoint.

    Args:
        spark: A session.
        repository: Where the savepoint is.
        job: `job` or `job/query`.
        savepoint: Its id.
        order: What is asked.
        staging: Where state is laid out.
        by: Who asks.
        say: Told what is being done.

    Raises:
        InputError: The order cannot be meant, or does not fit the state.
        StreambankError: As `derive`.
    """
    order.check()
    with ExitStack() as stack:
        since: QueryState | None = None
        reference = order.idle_since
        if order.idle_for_s is not None:
            reference = _older(repository, job, savepoint, order.idle_for_s)
        if reference is not None:
            place, earlier = repository.find(reference, job)
            _check_earlier(repository, job, savepoint, place, earlier)
            laid = stack.enter_context(materialized_savepoint(repository, place, earlier, staging))
            since = QueryState(spark, laid.location)

        passed_over: list[PassedOver] = []

        def decide(state: QueryState) -> list[Expired]:
            found = expired(state, _rule(order, since), passed_over)
            return found if order.max_rows is None else [one.at_most(order.max_rows) for one in found]

        derived = derive(
            spark,
            repository,
            job,
            savepoint,
            staging,
            operation=order.operation,
            decide=None if order.operation in ("rescale", "migrate") else decide,
            partitions=order.partitions,
            write=rewrite if order.provider is None else migrate,
            dry_run=order.dry_run,
            note=order.note,
            by=by,
            say=say,
        )
        return derived if order.key is None else replace(derived, passed_over=tuple(passed_over))


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateRequest:
    """Rules for state, and what becomes of rows that break one; JSON by `to_dict`.

    Attributes:
        rules: Expressions that must be true of every row, as `Rule.parse` reads them.
        repairs: What broken rows are set to, as `Assignment.parse` reads it; none to judge alone.
        operator: Of which operator where a rule or a repair does not say.
        part: Of which part where it does not say.
        samples: How many broken rows are shown for each rule and part.
        dry_run: Only say what would be repaired.
        note: A note for the new savepoint.
    """

    operation: str = VALIDATE
    rules: tuple[str, ...]
    repairs: tuple[str, ...] = ()
    operator: int | None = None
    part: str | None = None
    samples: int = 10
    dry_run: bool = False
    note: str = ""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ValidateRequest:
        """From JSON.

        Raises:
            InputError: No rule is given (code `usage`), or one cannot be one (as `parsed`).
        """
        order = cls(
            **{**data, "rules": tuple(data.get("rules") or ()), "repairs": tuple(data.get("repairs") or ())}
        )
        if not order.rules:
            raise InputError(
                "validate needs a rule.",
                code="usage",
                hint="Give an expression that must be true of every row, such as value.count >= 0.",
            )
        order.parsed()
        return order

    def parsed(self) -> tuple[list[Rule], list[Assignment]]:
        """The rules and repairs.

        Raises:
            InputError: One is none (code `bad-expression`).
            RefusedError: A repair would change a key (code `repair-key`).
        """
        return (
            [Rule.parse(text, self.operator, self.part) for text in self.rules],
            [Assignment.parse(text, self.operator, self.part) for text in self.repairs],
        )


def validate(
    spark: SparkSession,
    repository: Repository,
    job: str,
    savepoint: str,
    order: ValidateRequest,
    staging: Staging,
    *,
    by: Mapping[str, str] | None = None,
    say: Say = lambda text: None,
) -> dict[str, Any]:
    """Judge a savepoint's state by rules; where repairs are given, another savepoint comes of it.

    Args:
        spark: A session.
        repository: Where the savepoint is.
        job: `job` or `job/query`.
        savepoint: Its id.
        order: What is asked.
        staging: Where state is laid out.
        by: Who asks.
        say: Told what is being done.

    Returns:
        What `streambank state validate --json` prints.

    Raises:
        StreambankError: As `validate_state`, `repair_savepoint` and `materialized_savepoint`.
    """
    rules, assignments = order.parsed()
    if assignments:
        repaired = repair_savepoint(
            spark,
            repository,
            job,
            savepoint,
            rules,
            assignments,
            staging,
            limit=order.samples,
            dry_run=order.dry_run,
            note=order.note,
            by=by,
            say=say,
        )
        return repaired.to_dict() | {"dry_run": order.dry_run}
    with materialized_savepoint(repository, job, savepoint, staging) as found:
        require_schemas(found.manifest)
        require_shared(spark, found.location)
        state = QueryState(spark, found.location)
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


def request_of(data: Mapping[str, Any]) -> RewriteRequest | ValidateRequest:
    """What is asked, from JSON.

    Raises:
        InputError: It is not valid (code `usage`).
    """
    kind = ValidateRequest if data.get("operation") == VALIDATE else RewriteRequest
    return kind.from_dict(data)


def check_where(spark: SparkSession, generation: Generation | None, order: RewriteRequest) -> None:
    """Let Spark look at an expression before a job is stopped for it; no row of the state is read.

    Args:
        spark: A session.
        generation: Where the query works, which may go on meanwhile.
        order: What is asked.

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


def _rule(order: RewriteRequest, since: QueryState | None) -> Where | Idle | Key:
    if since is not None:
        return Idle(since, order.operator)
    if order.key is not None:
        return Key(order.key, order.operator)
    assert order.where is not None
    return Where(order.where, order.operator, order.part, from_form=order.from_form)


def _head(repository: Repository, job: str, savepoint: str) -> SavepointSummary:
    return next(one for one in repository.manifests(job) if (one.job, one.savepoint) == (job, savepoint))


def _older(repository: Repository, job: str, savepoint: str, seconds: float) -> str:
    taken_at = _moment(_head(repository, job, savepoint))
    before = taken_at - timedelta(seconds=seconds)
    old = [
        one
        for one in repository.manifests(job)
        if one.job == job and one.error is None and one.derived_from is None and _moment(one) <= before
    ]
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


def _check_earlier(repository: Repository, job: str, savepoint: str, place: str, earlier: str) -> None:
    now, then = repository.load(job, savepoint), repository.load(place, earlier)
    if now.query_id != then.query_id or then.batch >= now.batch:
        raise InputError(
            f"{earlier} is of batch {then.batch} of query {then.query_id}, which is not earlier than batch "
            f"{now.batch} of query {now.query_id}.",
            code="not-earlier",
            hint="Name a savepoint of the same query with a lower batch.",
        )
