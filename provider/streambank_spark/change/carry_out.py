"""Carries out a request to transform state or to make it from a table, for a command or for spark-submit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from streambank.repository.repository import Repository
from streambank_spark.change.bootstrap import bootstrap_savepoint
from streambank_spark.change.request import BootstrapRequest, TransformRequest
from streambank_spark.change.transform import transform_savepoint
from streambank_spark.rewrite.derive import Say, SourceSavepoint
from streambank_spark.state.staging import Staging


def carry_out(
    spark: SparkSession,
    repository: Repository,
    job: str,
    savepoint: str,
    request: TransformRequest | BootstrapRequest,
    staging: Staging,
    *,
    by: Mapping[str, str] | None = None,
    say: Say = lambda text: None,
) -> dict[str, Any]:
    """Make a savepoint as a request says, from another one.

    Args:
        job: `job` or `job/query`.

    Returns:
        What `streambank state transform --json` and `state bootstrap --json` print.

    Raises:
        StreambankError: As `transform_savepoint` and `bootstrap_savepoint`.
    """
    source = SourceSavepoint(spark, repository, job, savepoint, staging, by, say)
    if isinstance(request, TransformRequest):
        document = transform_savepoint(source, request).to_dict()
    else:
        document = bootstrap_savepoint(source, request).to_dict()
    return document | {"operation": request.operation, "dry_run": request.dry_run}
