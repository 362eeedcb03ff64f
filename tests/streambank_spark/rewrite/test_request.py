"""What can be asked of a savepoint's state, and what not."""

from __future__ import annotations

import pytest

from streambank.core.errors import InputError
from streambank_spark.rewrite.derive import meaning
from streambank_spark.rewrite.request import Order


def test_an_order_is_the_same_after_a_way_through_json() -> None:
    order = Order(operation="compact", where="value.n > 3", operator=1, max_rows=5, note="x")
    assert Order.from_dict(order.to_dict()) == order


@pytest.mark.parametrize(
    "order",
    [
        Order(operation="compact"),
        Order(operation="compact", where="true", idle_for_s=3.0),
        Order(operation="erase"),
        Order(operation="rescale"),
        Order(operation="rescale", partitions=0),
        Order(operation="rescale", provider="rocksdb"),
        Order(operation="migrate"),
        Order(operation="migrate", partitions=3),
        Order(operation="migrate", provider="hdfs"),
        Order(operation="migrate", provider="rocksdb", where="true"),
        Order(operation="compact", where="true", max_rows=0),
    ],
)
def test_what_cannot_be_meant_is_a_wrong_input(order: Order) -> None:
    with pytest.raises(InputError):
        order.check()
    with pytest.raises(InputError):
        Order.from_dict(order.to_dict())


def test_no_operation_and_unknown_fields_are_wrong_inputs() -> None:
    with pytest.raises(InputError, match="melt"):
        Order.from_dict({"operation": "melt", "where": "true"})
    with pytest.raises(InputError, match="colour"):
        Order.from_dict({"operation": "compact", "where": "true", "colour": "red"})


def test_every_kind_of_operator_has_its_own_meaning() -> None:
    names = (
        "stateStoreSave",
        "sessionWindowStateStoreSaveExec",
        "dedupe",
        "symmetricHashJoin",
        "transformWithStateExec",
    )
    assert len({meaning(name) for name in (*names, None)}) == len(names) + 1
    assert meaning("dedupeWithinWatermark") == meaning("dedupe")
    assert meaning("applyInPandasWithState") == meaning("transformWithStateInPySparkExec")
