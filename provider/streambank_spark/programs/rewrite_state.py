"""The driver of `rewrite_state.py`: carries out an order on a savepoint's state, on a cluster too.

The plan is a JSON file: `repository`, `job`, `savepoint`, `order` (change/request.py, or `verify`
for a deep verification), and where there is need `work`, `by` and, of an erasure, `search`: the `replicas`,
the `live` directories and those `left` behind in which the key may be besides. The report is one, too: what
the command prints with `--json`, or `error`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j ships no types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streambank.cleaning.left_directory import LeftDirectories
from streambank.core.errors import InputError, StorageError, StreambankError
from streambank.core.json_text import loads
from streambank.core.shape import decode
from streambank.repository.repository import Repository
from streambank.storage import open_store
from streambank_spark.change.carry_out import carry_out as change
from streambank_spark.change.request import BootstrapRequest, Request, TransformRequest, request_of
from streambank_spark.failures import condition_of, first_line, refuse_wrong_schema, say, say_error
from streambank_spark.programs.execute_plan import plan_and_report
from streambank_spark.rewrite.derive import Derived, SourceSavepoint
from streambank_spark.rewrite.expiry import KeySelection
from streambank_spark.rewrite.key_locations import not_searched, search
from streambank_spark.rewrite.key_places import Live
from streambank_spark.rewrite.request import carry_out, validate
from streambank_spark.rewrite.rewrite_request import RewriteRequest
from streambank_spark.rewrite.validate_request import VALIDATE, ValidateRequest
from streambank_spark.state.staging import Staging
from streambank_spark.state.verify import look_deep
from streambank_spark.submit.session import silence_contexts

VERIFY = "verify"
"""The operation that only opens all state."""
READING = (VERIFY, VALIDATE)
SPARK_FAILED = "spark-failed"


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out the plan that the arguments name."""
    options = plan_and_report(argv, "rewrite_state.py", "Rewrite the state of a savepoint.")
    try:
        document: dict[str, Any] = _work(_read(options.plan))
    except StreambankError as error:
        _write(options.report, {"error": error.to_dict()})
        return say_error(error)
    _write(options.report, document)
    return 0


def _read(path: Path) -> dict[str, Any]:
    try:
        plan = loads(path.read_text(encoding="utf-8"))
        return {name: plan[name] for name in ("repository", "job", "savepoint", "order")} | {
            name: plan.get(name) for name in ("work", "by", "search")
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} is not a valid plan: {error}.", code="usage", hint="See docs/howto/compaction.md."
        ) from error


def _write(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _work(plan: dict[str, Any]) -> dict[str, Any]:
    operation = plan["order"].get("operation")
    order = None if operation == VERIFY else request_of(plan["order"])
    repository = Repository.open(open_store(plan["repository"]))
    which = repository.find(plan["savepoint"], plan["job"])
    spark = SparkSession.builder.appName(f"streambank-{operation}").getOrCreate()
    typed = _is_typed(order)
    if typed:
        spark.sparkContext.setLogLevel("OFF")  # what tasks fail with quotes rows, too
        silence_contexts()
    try:
        staging = Staging(spark.sparkContext.master or "", plan["work"], say)
        source = SourceSavepoint(spark, repository, *which, staging, plan["by"], say)
        if order is None:
            findings = look_deep(spark, repository, *which, staging)
            return {"findings": [each.to_dict() for each in findings]}
        if isinstance(order, ValidateRequest):
            return validate(source, order)
        if isinstance(order, (TransformRequest, BootstrapRequest)):
            return change(source, order)
        done = carry_out(source, order)
        document = done.to_dict() | {"operation": order.operation, "dry_run": order.dry_run}
        if order.key is not None:
            document |= _search(source, done, KeySelection(order.key, order.operator), plan["search"])
        return document
    except (PySparkException, Py4JError) as error:
        refuse_wrong_schema(error)
        if typed:
            raise _unquoted(condition_of(error)) from error
        raise StorageError(
            f"Spark could not {'read' if operation in READING else 'rewrite'} the state: {first_line(error)}",
            code=SPARK_FAILED,
            hint="The full message is in the driver's log. The savepoint is unchanged.",
        ) from error
    except StorageError as error:
        if typed and error.code == SPARK_FAILED:
            raise _unquoted(condition_of(error.__cause__ or error)) from error
        raise
    finally:
        spark.stop()


def _is_typed(order: Request | None) -> bool:
    """Whether an expression, or a table, comes from a form: what Spark says of it may carry data."""
    if isinstance(order, RewriteRequest):
        return order.where is not None and order.from_form
    return isinstance(order, (TransformRequest, BootstrapRequest)) and order.from_form


def _unquoted(condition: str) -> StorageError:
    """What the failure of an expression comes to that was typed into a form."""
    return StorageError(
        f"Spark could not compute the expression of the form: {condition}.",
        code=SPARK_FAILED,
        hint="Spark's own message may quote the state, so it is not repeated here. Who may read the state "
        "tries the expression on the command line.",
    )


def _search(
    source: SourceSavepoint, done: Derived, key: KeySelection, where: dict[str, Any] | None
) -> dict[str, Any]:
    """Where else the key is that was erased; the new savepoint is there, whatever becomes of the search."""
    if where is None:
        return not_searched("it was not asked for")
    live = [Live(each["location"], each["generation"], each["current"]) for each in where["live"]]
    try:
        left = decode(LeftDirectories, where["left"], "request", at="left")
        found = search(source, done, key, replicas=where["replicas"], live=live, left=left)
    except StreambankError as error:
        return not_searched(error.message)
    return found.to_dict() | {"replicas": where["replicas"]}
