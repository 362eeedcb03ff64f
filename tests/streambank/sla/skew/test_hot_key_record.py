"""How large the largest key is, as Spark found it, is kept beside the job for whoever judges."""

from __future__ import annotations

from typing import Any

from streambank.control.control import JobControl
from streambank.control.pruning import Retention, prune_records
from streambank.core.errors import FormatError
from streambank.core.units import utc_now
from streambank.sla.skew.hot_key_record import keep_hot_keys, read_hot_keys
from tests.support.refuses import refuses

HOT: dict[str, Any] = {"operator": 0, "keys": 320, "times_mean": 31.25, "rows": 4711, "partitions": [6]}
EMPTY: dict[str, Any] = {"operator": 1, "keys": 0, "times_mean": None, "rows": None, "partitions": None}


def test_the_newest_look_counts_and_an_operator_without_keys_has_none(control: JobControl) -> None:
    assert read_hot_keys(control) is None
    keep_hot_keys(control, None, of="flights/b000003-1", batch=3, operators=[{**HOT, "times_mean": 2.0}])
    keep_hot_keys(control, None, of="flights/b000004-2", batch=4, operators=[HOT, EMPTY])
    found = read_hot_keys(control)
    assert found is not None and len(found) == 1
    fact = found[0]
    assert (fact.value, fact.subject) == (31.25, "operator 0")
    assert "4,711 rows, in partition 6, and is one of 320 keys of flights/b000004-2 (batch 4)" in fact.what
    assert read_hot_keys(control, "left") is None, "of another query"


def test_a_damaged_record_is_an_error_and_not_an_older_one(control: JobControl) -> None:
    keep_hot_keys(control, "left", of="flights/left/b000004-2", batch=4, operators=[HOT])
    control.store.write("sla/hot-keys/left/0000000002.json", b'{"at": "yesterday", "operators": []}')
    with refuses(FormatError, "damaged-record"):
        read_hot_keys(control, "left")
    keep_hot_keys(control, "right", of="x", batch=4, operators=[{**HOT, "rows": None}])
    with refuses(FormatError, "damaged-record", match="operator 0 has a largest key without its rows"):
        read_hot_keys(control, "right")


def test_old_looks_are_pruned(control: JobControl) -> None:
    for batch in range(5):
        keep_hot_keys(control, None, of="flights", batch=batch, operators=[HOT])
    assert prune_records(control, Retention(2, utc_now())) == 3
    left = [one for one in control.store.names("sla/hot-keys/main") if "pruned" not in one]
    assert len(left) == 2
