"""What a plan that goes out to machines elsewhere must be."""

from __future__ import annotations

import json

import pytest

from streambank.core.errors import FormatError
from streambank.work.plan_lines import PLAN, run_portion


@pytest.mark.parametrize("version", [PLAN + 1, None, "1"])
def test_a_plan_of_another_version_is_refused_before_anything_is_done(version: object) -> None:
    header = json.dumps({"plan": version, "kind": "copy"})
    with pytest.raises(FormatError, match="The plan is of version") as raised:
        run_portion(header, "no portion is looked at")
    assert raised.value.code == "unknown-format" and repr(version) in str(raised.value)
    assert "same installation" in raised.value.hint
