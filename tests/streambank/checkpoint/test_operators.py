"""What operator metadata says of state variables and timers."""

from __future__ import annotations

import json

import pytest

from streambank.checkpoint.operators import parse_operator_metadata

VALUE = {"stateName": "rows", "stateVariableType": "ValueState", "ttlEnabled": False}
TIMERS = {"stateName": "$eventTimers_keyToTimestamp", "stateVariableType": "TimerState", "ttlEnabled": False}
"""As Spark 4.3.0 lists it where a processor uses timers of event time."""


def metadata(time_mode: str, *variables: dict[str, object]) -> bytes:
    properties = {"timeMode": time_mode, "outputMode": "Append", "stateVariables": variables}
    store = {"storeName": "default", "numColsPrefixKey": 0, "numPartitions": 2, "stateSchemaFilePaths": []}
    document = {
        "operatorInfo": {"operatorId": 0, "operatorName": "transformWithStateInPySparkExec"},
        "stateStoreInfo": [store],
        "operatorPropertiesJson": json.dumps(properties),
    }
    return f"v2\n{json.dumps(document)}".encode()


@pytest.mark.parametrize(("time_mode", "timers"), [("EventTime", True), ("NoTime", False)])
def test_a_variable_that_spark_keeps_timers_in_is_none_of_the_applications(
    time_mode: str, timers: bool
) -> None:
    found = parse_operator_metadata(metadata(time_mode, VALUE, TIMERS), "v2/0")
    assert (found.variables, found.timers) == (("rows",), timers)


@pytest.mark.parametrize("variables", [None, 3, [{"name": "x"}], ["x"]])
def test_properties_of_another_shape_name_no_variables(variables: object) -> None:
    data = metadata("EventTime", VALUE).decode()
    version, _, text = data.partition("\n")
    document = json.loads(text)
    document["operatorPropertiesJson"] = json.dumps({"stateVariables": variables})
    found = parse_operator_metadata(f"{version}\n{json.dumps(document)}".encode(), "v2/0")
    assert found.variables == ()
