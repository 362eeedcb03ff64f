"""What can be asked of a savepoint's state, and what not."""

from __future__ import annotations

import pytest

from streambank.core.errors import InputError
from streambank_spark.rewrite.derive import meaning
from streambank_spark.rewrite.rewrite_request import RewriteRequest


def test_an_order_is_the_same_after_a_way_through_json() -> None:
    order = RewriteRequest(operation="compact", where="value.n > 3", operator=1, max_rows=5, note="x")
    assert RewriteRequest.from_dict(order.to_dict()) == order


@pytest.mark.parametrize(
    "order",
    [
        RewriteRequest(operation="compact"),
        RewriteRequest(operation="compact", where="true", idle_for_s=3.0),
        RewriteRequest(operation="erase"),
        RewriteRequest(operation="rescale"),
        RewriteRequest(operation="rescale", partitions=0),
        RewriteRequest(operation="rescale", provider="rocksdb"),
        RewriteRequest(operation="migrate"),
        RewriteRequest(operation="migrate", partitions=3),
        RewriteRequest(operation="migrate", provider="hdfs"),
        RewriteRequest(operation="migrate", provider="rocksdb", where="true"),
        RewriteRequest(operation="compact", where="true", max_rows=0),
    ],
)
def test_what_cannot_be_meant_is_a_wrong_input(order: RewriteRequest) -> None:
    with pytest.raises(InputError):
        order.check()
    with pytest.raises(InputError):
        RewriteRequest.from_dict(order.to_dict())


def test_no_operation_and_unknown_fields_are_wrong_inputs() -> None:
    with pytest.raises(InputError, match="melt"):
        RewriteRequest.from_dict({"operation": "melt", "where": "true"})
    with pytest.raises(InputError, match="colour"):
        RewriteRequest.from_dict({"operation": "compact", "where": "true", "colour": "red"})


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
