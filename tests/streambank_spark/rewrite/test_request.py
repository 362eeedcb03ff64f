"""What can be asked of a savepoint's state, and what not."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from streambank.core.errors import InputError, RefusedError
from streambank_spark.rewrite.derive import check_planned, meaning
from streambank_spark.rewrite.rewrite_request import Planned, RewriteRequest
from tests.support.refuses import refuses


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


def test_what_a_plan_showed_is_read_as_it_was_left() -> None:
    left = {"now": "2026-11-28T22:00:00Z", "watermark_ms": 5, "keys": {"0": 2000}}
    found = Planned.of(RewriteRequest(operation="compact", where="true", planned=left).planned)
    assert (found.watermark_ms, found.keys) == (5, {0: 2000})
    assert found.now == datetime(2026, 11, 28, 22, tzinfo=UTC)
    assert Planned.of(None) == Planned()


@pytest.mark.parametrize(
    "planned", [{"now": "then"}, {"keys": [1]}, {"keys": {"a": 1}}, {"watermark_ms": "x"}]
)
def test_what_no_plan_has_left_is_a_wrong_input(planned: Any) -> None:
    with pytest.raises(InputError, match="planned"):
        RewriteRequest(operation="erase", key="k1", planned=planned).check()


@pytest.mark.parametrize(("keys", "refused"), [((2000, 0), False), ((1999, 1), True), ((2001, 0), True)])
def test_more_keys_of_an_operator_than_a_plan_showed_are_refused(
    keys: tuple[int, int], refused: bool
) -> None:
    """Also where fewer go of another one; of an operator that the plan did not show none may go."""
    gone: Any = [SimpleNamespace(operator=SimpleNamespace(operator=one, name="dedupe")) for one in (0, 1)]
    if not refused:
        check_planned(gone, keys, {0: 2000})
        return
    with refuses(RefusedError, "approval-outdated"):
        check_planned(gone, keys, {0: 2000})
