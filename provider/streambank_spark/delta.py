"""Each batch once in a Delta table, by delta-rs: rows and the batch's number are one commit, without a JVM.

    def write(batch, batch_id):
        write_delta_once(batch, batch_id, "s3://lake/orders")

    orders.writeStream.foreachBatch(write).start()

A restore to an older batch rolls the table back, with the number that it remembers, if the job declares it
(`[[jobs.orders.sinks]]` with `kind = "delta"` and `table = "s3://lake/orders"`). It needs Spark 4.0 or newer,
and the package deltalake where the application runs (extra `delta`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streambank_spark.private.foreach_batch import compute, query_id_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_delta_once(
    frame: DataFrame,
    batch_id: int,
    table: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    **options: Any,
) -> bool:
    """Append a batch to a Delta table, unless the table has it already.

    The transaction identifier of the commit is the query id with the batch's number. A batch that the table
    has is computed, since Spark writes the state of a batch while it computes it, and not written. All rows
    pass through the memory of the driver.

    Args:
        frame: The batch, as `foreachBatch` gives it.
        batch_id: Its number, as `foreachBatch` gives it.
        table: The table's location; it is made at the first batch if it is not there.
        storage_options: Options of delta-rs for the storage.
        options: Further options of `deltalake.write_deltalake`, such as `partition_by`.

    Returns:
        Whether it was written.

    Raises:
        InputError: No streaming query calls (code `no-streaming-query`).
        deltalake.exceptions.DeltaError: The table cannot be written, or another driver has written the batch
            meanwhile.
    """
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

    query_id, reached = query_id_of(frame), dict(storage_options or {})
    into: str | DeltaTable = table
    if DeltaTable.is_deltatable(table, reached):
        # Written to the version that was asked: a driver that writes this batch meanwhile makes it fail.
        into = DeltaTable(table, storage_options=reached)
        done = into.transaction_version(query_id)
        if done is not None and done >= batch_id:
            compute(frame)
            return False
    properties = CommitProperties(app_transactions=[Transaction(query_id, batch_id)])
    write_deltalake(
        into,
        frame.toArrow(),
        mode="append",
        storage_options=reached,
        commit_properties=properties,
        **options,
    )
    return True
