"""Rows that cost much: collections, hot keys, uneven partitions."""

from __future__ import annotations

from streambank.checkpoint.schema.store import parse_state_schema
from streambank.doctor.checks.rows import check_hot_keys, check_nested, check_skew
from streambank.doctor.checks.state_growth import StateColumns
from streambank.sla.fact import Fact
from tests.support.checkpoint.doctor_inputs import columns, found, planned, schema_v2, skipped
from tests.support.sla.progress_records import at, operator

ARRAY = {"type": "array", "elementType": "long", "containsNull": True}
NESTED = StateColumns(
    0, "stateStoreSave", parse_state_schema(schema_v2({"k": "string"}, {"all": ARRAY}), "x")
)


def test_collections_are_named_where_rows_are_large_or_updates_slow() -> None:
    large = operator(numRowsTotal=10, customMetrics={"rocksdbSstFileSize": 1_000_000})
    finding = found(check_nested([NESTED], {0: [large]}))["nested-state"]
    assert "(all array<long>), and a row has 100 kB on average (1 MB in 10 rows)" in finding.cause
    slow = operator(numRowsUpdated=600, allUpdatesTimeMs=3000)
    finding = found(check_nested([NESTED], {0: [slow, slow]}))["nested-state"]
    assert "an update of one took 5 ms on average (1,200 of 2 batches)" in finding.cause


def test_small_rows_quick_updates_and_rows_without_collections_are_nothing() -> None:
    small = operator(
        numRowsTotal=1000,
        numRowsUpdated=5000,
        allUpdatesTimeMs=50,
        customMetrics={"rocksdbSstFileSize": 10**6},
    )
    assert not [*check_nested([NESTED], {0: [small]})]
    few = operator(numRowsUpdated=10, allUpdatesTimeMs=1000)
    assert not [*check_nested([NESTED], {0: [few]})], "a mean of ten says nothing"
    large = operator(numRowsTotal=1, customMetrics={"rocksdbSstFileSize": 10**6})
    assert not [*check_nested(columns("4.3.0/rocksdb-window"), {0: [large]})]
    (told,) = check_nested([NESTED], {})
    assert "no progress records" in skipped([told])[0].why


def test_hot_keys_are_those_that_spark_found() -> None:
    hot = Fact(at(0), 31.25, "operator 0", "It has 4,711 rows.")
    finding = found(check_hot_keys([hot, Fact(at(0), 3.0, "operator 1")]))["hot-key"]
    assert (
        finding.file == "operator 0" and "31.2 times the mean" in finding.cause and "4,711" in finding.cause
    )
    assert not [*check_hot_keys([Fact(at(0), 3.0, "operator 1")])]
    assert [one.what for one in skipped(check_hot_keys(None))] == ["hot keys"]


def test_why_traffic_is_not_measured_is_said_beside_what_the_state_says() -> None:
    (told,) = skipped(check_hot_keys(None, "operator 0 (Join): two sides", declared=True))
    assert (told.what, told.why) == ("hot keys by traffic", "operator 0 (Join): two sides.")
    hot = Fact(at(0), 31.25, "operator 0")
    both = [*check_hot_keys([hot], "operator 1 (Join): two sides")]
    assert len(both) == 2 and skipped(both)[0].why == "operator 1 (Join): two sides."
    assert "hot-key" in found(both)
    (told,) = skipped(check_hot_keys(None, declared=True))
    assert "no batch was measured yet" in told.why


def test_a_driver_that_does_not_count_is_named_also_where_the_state_was_counted() -> None:
    even = Fact(at(0), 3.0, "operator 0")
    for keys in ([even], None):
        (said,) = skipped(check_hot_keys(keys, declared=True, without="20261127-1"))
        assert said.what == "hot keys by traffic" and "launch 20261127-1 does not count" in said.why
        assert "Restart the job" in said.hint
    assert not [*check_hot_keys([even], declared=True)]


def test_uneven_stores_are_named_and_even_ones_are_not() -> None:
    closure, _ = planned("4.3.0/rocksdb-window")
    assert not [*check_skew(closure, "ck")]
    (operator_,) = closure.operators
    (store,) = operator_.stores
    parts = tuple(
        type(store.parts[0])(number, rows, 1, rows, 100 * rows, 0, 0, 0)
        for number, rows in enumerate([5_000_000, 1000, 1000, 1000])
    )
    uneven = type(closure)(
        **{
            **{name: getattr(closure, name) for name in closure.__slots__},
            "operators": (type(operator_)(0, "dedupe", (type(store)("default", 4, None, 1, parts),)),),
        }
    )
    finding = found(check_skew(uneven, "ck"))["uneven-state"]
    assert finding.file == "state/0" and "Partition 0 has 4.0 times the mean" in finding.cause
