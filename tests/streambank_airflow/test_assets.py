from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from airflow.sdk import Asset

from streambank_airflow.assets import event_extra, sanitize_uri, savepoint_asset


def test_each_job_has_one_asset_and_its_queries_share_it() -> None:
    assert savepoint_asset("flights") == savepoint_asset("flights/hourly")
    assert savepoint_asset("flights") != savepoint_asset("trains")
    assert savepoint_asset("flights").uri == "streambank://savepoints/flights"


def test_other_dags_can_name_the_asset_without_this_package() -> None:
    assert Asset(name="streambank/flights/savepoints", uri="streambank://savepoints/flights") == Asset(
        name=savepoint_asset("flights").name, uri=savepoint_asset("flights").uri
    )


@pytest.mark.parametrize(
    "uri",
    ["streambank://flights", "streambank://savepoints/", "streambank://savepoints/a/b", "streambank:///a"],
)
def test_other_uris_of_the_scheme_are_refused(uri: str) -> None:
    with pytest.raises(ValueError, match="streambank://savepoints/JOB"):
        sanitize_uri(urlsplit(uri))


def test_an_event_says_what_was_saved_and_never_where_or_with_which_secret() -> None:
    result = {
        "savepoint": "b000007-0123456789ab",
        "batch": 7,
        "bytes": 10,
        "repository": "s3://user:secret@bucket",
        "conf": {"spark.password": "secret"},
    }

    assert event_extra(result) == {"savepoint": "b000007-0123456789ab", "batch": 7, "bytes": 10}
