"""Carries out a request to transform state or to make it from a table, for a command or for spark-submit."""

from __future__ import annotations

from typing import Any

from streambank_spark.change.bootstrap import bootstrap_savepoint
from streambank_spark.change.request import BootstrapRequest, TransformRequest
from streambank_spark.change.transform import transform_savepoint
from streambank_spark.rewrite.derive import SourceSavepoint


def carry_out(source: SourceSavepoint, request: TransformRequest | BootstrapRequest) -> dict[str, Any]:
    """Make a savepoint from another one, as a request says; what the command prints with `--json`.

    Raises:
        StreambankError: As `transform_savepoint` and `bootstrap_savepoint`.
    """
    if isinstance(request, TransformRequest):
        document = transform_savepoint(source, request)
    else:
        document = bootstrap_savepoint(source, request)
    return document | {"operation": request.operation, "dry_run": request.dry_run}
