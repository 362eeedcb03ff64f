from __future__ import annotations

import pytest

from streambank.storage.settings import CREDENTIALS, variables_for


@pytest.mark.parametrize("location", ["/data/ck", "file:///data/ck", "memory://one"])
def test_nothing_passes_for_local_files(location: str) -> None:
    assert variables_for([location]) == frozenset()


@pytest.mark.parametrize(
    ("location", "passes", "stays"),
    [
        ("s3://bucket/ck", "AWS_SECRET_ACCESS_KEY", "AZURE_CLIENT_SECRET"),
        ("s3a://bucket/ck", "AWS_ENDPOINT_URL", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("gs://bucket/ck", "GOOGLE_APPLICATION_CREDENTIALS", "AWS_SECRET_ACCESS_KEY"),
        ("abfss://c@a.dfs.core.windows.net/ck", "AZURE_CLIENT_SECRET", "AWS_SECRET_ACCESS_KEY"),
        ("hdfs://name/ck", "KRB5CCNAME", "HTTPS_PROXY"),
        ("webhdfs://name:9870/ck", "KRB5CCNAME", "AWS_SECRET_ACCESS_KEY"),
    ],
)
def test_only_what_leads_to_a_location_passes(location: str, passes: str, stays: str) -> None:
    found = variables_for([location])
    assert passes in found and stays not in found


def test_of_several_locations_all_that_any_needs_passes() -> None:
    both = variables_for(["/local", "s3://bucket/ck", "gs://bucket/repository"])
    assert both == variables_for(["s3://a"]) | variables_for(["gs://b"])
    assert variables_for([]) == frozenset()


def test_every_credential_is_one_of_those_that_pass() -> None:
    assert variables_for(["s3://a", "abfs://b", "gs://c", "hdfs://d"]) > CREDENTIALS
