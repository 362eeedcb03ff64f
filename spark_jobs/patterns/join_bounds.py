"""Orders with their deliveries: a join of two streams with bounds of time, and the orders that got none.

    spark-submit join_bounds.py --input DIR --output DIR

`--input` has the folders `orders` and `deliveries`. A delivery belongs to an order if it comes from the
order's moment to three hours after it. Both sides have a watermark, and the bounds are part of the condition,
so Spark knows when a row can match no more: an order is kept until the watermark is three hours past it, a
delivery until the watermark is past it. Without bounds both sides are kept for ever.

It is a left outer join: an order without a delivery comes out with nulls, once it can match no more, which is
after three hours of event time *of both streams*, since the smaller watermark counts. If one of the streams
is silent, its watermark stands and so does the output. In Flink: an interval join; only that of SQL has an
outer form.
"""

from __future__ import annotations

import application
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

ORDERS = "event_time TIMESTAMP, order_id STRING, user STRING, cents BIGINT"
DELIVERIES = "event_time TIMESTAMP, order_id STRING, carrier STRING"


def delivered(orders: DataFrame, deliveries: DataFrame, within: str, watermark: str) -> DataFrame:
    """One row for each order and delivery, and for each order that got none in time."""
    left = orders.withColumnRenamed("event_time", "ordered_at").withWatermark("ordered_at", watermark)
    right = (
        deliveries.withColumnRenamed("event_time", "delivered_at")
        .withColumnRenamed("order_id", "delivered_order")
        .withWatermark("delivered_at", watermark)
    )
    matches = F.expr(
        "order_id = delivered_order AND delivered_at >= ordered_at "
        f"AND delivered_at <= ordered_at + interval {within}"
    )
    columns = ("order_id", "user", "cents", "ordered_at", "delivered_at", "carrier")
    return left.join(right, matches, "leftOuter").select(*columns)


def main() -> None:
    """Read both streams, append the pairs and the orders without one."""
    parser = application.arguments(__doc__)
    parser.add_argument("--within", default="3 hours")
    parser.add_argument("--watermark", default="1 minute")
    args = parser.parse_args()
    spark = application.session("join_bounds")
    orders = application.events(spark, args, ORDERS, "orders")
    deliveries = application.events(spark, args, DELIVERIES, "deliveries")
    application.append(delivered(orders, deliveries, args.within, args.watermark), args, "join_bounds")


if __name__ == "__main__":
    main()
