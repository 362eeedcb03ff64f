"""What the state of a query looks like: operators, parts, and the columns of each."""

from __future__ import annotations

from typing import Any

from streambank_spark.state.state import PARTITION, QueryState


def schema_of(state: QueryState) -> dict[str, Any]:
    """The schema of all state, as JSON; no row is read."""
    facts = state.closure.spark
    return {
        "batch": state.closure.batch,
        "provider": facts.provider,
        "checkpoint_format": facts.checkpoint_format,
        "codec": facts.codec,
        "operators": [
            {
                "operator": operator.operator,
                "name": operator.name,
                "stores": [
                    {"store": store.store, "partitions": store.partitions, "rows": store.rows}
                    for store in operator.stores
                ],
                "parts": [
                    {
                        "part": part.name,
                        "columns": [
                            {
                                "column": field.name,
                                "type": field.dataType.simpleString(),
                                "nullable": field.nullable,
                            }
                            for field in state.frame(part).schema.fields
                            if field.name != PARTITION
                        ],
                    }
                    for part in state.parts(operator)
                ],
            }
            for operator in state.operators()
        ],
    }
