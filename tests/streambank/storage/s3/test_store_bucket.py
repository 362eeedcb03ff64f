"""What real servers say of a bucket's rules and of their clock."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from streambank.core.errors import StorageError
from streambank.core.units import utc_now
from streambank.doctor.checks.clocks import check_service
from streambank.doctor.checks.locations import check_rules
from streambank.storage import open_store
from streambank.storage.s3.client import S3Address
from streambank.storage.s3.store import S3Store
from streambank.storage.store import LifecycleRule, Served
from tests.support.storage.s3_servers import BUCKET, S3Server

RULES = [
    {"ID": "tidy", "Status": "Enabled", "Filter": {"Prefix": "streams/"}, "Expiration": {"Days": 30}},
    {"ID": "off", "Status": "Disabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 1}},
    {
        "ID": "cold",
        "Status": "Enabled",
        "Filter": {"And": {"Prefix": "", "Tags": [{"Key": "a", "Value": "b"}]}},
        "Transitions": [{"Days": 5, "StorageClass": "GLACIER"}],
    },
    {
        "ID": "parts",
        "Status": "Enabled",
        "Filter": {"Prefix": ""},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 3},
    },
]


@pytest.fixture
def ruled(moto_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Any:
    """moto's server, whose bucket has rules; its environment is this process's."""
    moto_server.use(monkeypatch)
    with moto_server.client() as client:
        client.put_bucket_lifecycle_configuration(Bucket=BUCKET, LifecycleConfiguration={"Rules": RULES})
        yield client
        client.delete_bucket_lifecycle(Bucket=BUCKET)


def test_rules_that_take_objects_away_are_told_and_others_are_not(ruled: Any) -> None:
    store = open_store(f"s3a://{BUCKET}/streams/orders")
    assert isinstance(store, Served)
    assert store.lifecycle_rules() == (
        LifecycleRule("tidy", "streams/", False, ("deletes objects after 30 days",)),
        LifecycleRule(
            "cold", "", True, ("archives objects in GLACIER after 5 days, where they cannot be read",)
        ),
    )
    (finding,) = check_rules("checkpoint", store)
    assert getattr(finding, "code", "") == "lifecycle-rule" and "'tidy'" in getattr(finding, "cause", "")
    assert not [*check_rules("checkpoint", open_store(f"s3://{BUCKET}/elsewhere"))]


def test_a_bucket_without_rules_has_none(store: S3Store) -> None:
    assert store.lifecycle_rules() == ()


def test_a_bucket_that_is_not_there_is_not_one_without_rules(server: S3Server) -> None:
    with pytest.raises(StorageError, match="NoSuchBucket"):
        S3Store("no-such-bucket-of-streambank").lifecycle_rules()


def test_the_server_says_its_time_and_it_is_ours(store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert abs(store.server_time() - utc_now()) < timedelta(seconds=30)
    assert not [*check_service(store, utc_now)]
    (finding,) = check_service(store, lambda: utc_now() + timedelta(minutes=3))
    assert getattr(finding, "code", "") == "clock-skew"
    answer: dict[str, Any] = {"ResponseMetadata": {"HTTPHeaders": {}}}
    monkeypatch.setattr(S3Address, "ask", lambda *args, **more: answer)
    with pytest.raises(StorageError, match="sends no time"):
        store.server_time()
