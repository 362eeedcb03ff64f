from __future__ import annotations

from typing import Any

import pytest

from streambank.errors import InputError
from streambank_airflow.choices import new_sink_choices


@pytest.mark.parametrize(
    "given",
    [
        {"/out": "/new"},
        ["/out=/new"],
        "/out=/new",
        "  /out=/new\n\n",
        ("/out=/new", " "),
    ],
)
def test_new_sinks_may_be_said_in_several_ways(given: Any) -> None:
    assert new_sink_choices(given) == {"/out": "/new"}


@pytest.mark.parametrize("given", [None, "", "None", [], {}])
def test_none_may_be_said_too(given: Any) -> None:
    assert new_sink_choices(given) == {}


def test_uris_are_left_as_they_are() -> None:
    assert new_sink_choices("s3a://a/out=s3a://b/out\nfile:/x=file:///y") == {
        "s3a://a/out": "s3a://b/out",
        "file:/x": "file:///y",
    }


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (["/out=new"], "bad-option"),
        (["out=/new"], "bad-option"),
        ({"/out": "~/new"}, "bad-option"),
        (5, "bad-option"),
        (["/out"], "bad-new-sink"),
        ("/out=/a\n/out=/b", "bad-new-sink"),
    ],
)
def test_what_would_mean_nothing_to_another_process_is_refused(given: Any, code: str) -> None:
    with pytest.raises(InputError) as refused:
        new_sink_choices(given)
    assert refused.value.code == code
