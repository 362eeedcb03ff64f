"""What a bucket does to objects by itself, and what time its service has."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from streambank.core.errors import StorageError
from streambank.storage.s3.client import Service, call
from streambank.storage.store import LifecycleRule

_NO_RULES = "NoSuchLifecycleConfiguration"


def lifecycle_rules(service: Service, bucket: str, uri: str) -> tuple[LifecycleRule, ...]:
    """The rules of a bucket that take away objects, or make them unreadable, and are enabled.

    Raises:
        StorageError: The service does not say.
    """
    answer = call(service, uri, "get_bucket_lifecycle_configuration", expect=(404,), Bucket=bucket)
    refused = answer.get("Error", {}).get("Code")
    if refused == _NO_RULES:
        return ()
    if refused is not None:
        raise StorageError(
            f"The lifecycle rules of the bucket of {uri} cannot be read ({refused}).",
            code="storage",
            hint="Give these credentials s3:GetLifecycleConfiguration, or look at the rules by hand.",
        )
    found = (_rule(one) for one in answer.get("Rules", ()) if one.get("Status") == "Enabled")
    return tuple(rule for rule in found if rule.does)


def _rule(said: Mapping[str, Any]) -> LifecycleRule:
    asked = said.get("Filter") or {}
    both = asked.get("And") or asked
    tagged = bool(both.get("Tag") or both.get("Tags"))
    # Rules of the first kind have their prefix beside the filter.
    prefix = both.get("Prefix") or said.get("Prefix") or ""
    return LifecycleRule(str(said.get("ID") or "without a name"), str(prefix), tagged, tuple(_does(said)))


def _does(said: Mapping[str, Any]) -> list[str]:
    expiration = said.get("Expiration") or {}
    found = []
    if expiration.get("Days") is not None:
        found.append(f"deletes objects after {expiration['Days']} days")
    if expiration.get("Date") is not None:
        found.append(f"deletes objects on {expiration['Date']:%Y-%m-%d}")
    for move in said.get("Transitions") or ():
        if str(move.get("StorageClass")) in ("GLACIER", "DEEP_ARCHIVE"):
            when = f"after {move['Days']} days" if move.get("Days") is not None else "on a date"
            found.append(f"archives objects in {move['StorageClass']} {when}, where nobody can read them")
    return found


def server_time(service: Service, bucket: str, uri: str) -> datetime:
    """The time by the service's clock, to the second.

    Raises:
        StorageError: It does not answer, or says no time.
    """
    answer = call(service, uri, "head_bucket", Bucket=bucket)
    said = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
    try:
        return parsedate_to_datetime(said).astimezone(UTC)
    except (TypeError, ValueError) as error:
        raise StorageError(
            f"The service of {uri} says no time in its answers.",
            code="storage",
            hint="Compare its clock with this machine's by hand.",
        ) from error
