"""The policies that the docs offer: each gives no more than it says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.paths import ROOT

FOLDER = ROOT / "docs" / "howto" / "policies"
PLACES = {
    "airflow": {"SAVEPOINTS", "CONTROL", "CHECKPOINTS"},
    "append-only": {"SAVEPOINTS", "CHECKPOINTS"},
    "driver": {"CONTROL", "CHECKPOINTS"},
    "reader": {"SAVEPOINTS"},
}


def statements(who: str) -> list[dict[str, Any]]:
    document = json.loads((FOLDER / f"{who}.json").read_text(encoding="utf-8"))
    assert document["Version"] == "2012-10-17"
    return list(document["Statement"])


def test_every_policy_is_here() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(PLACES)


@pytest.mark.parametrize("who", PLACES)
def test_a_policy_reaches_its_places_and_nothing_beside_them(who: str) -> None:
    below: set[str] = set()
    for one in statements(who):
        assert one["Effect"] == "Allow"
        for resource in one["Resource"]:
            _, _, path = resource.removeprefix("arn:aws:s3:::").partition("/")
            if path:
                assert path.endswith("/*"), (
                    "without the slash it would match a neighbour whose name begins alike"
                )
                below.add(path.removesuffix("/*"))
            else:
                assert set(one["Action"]) <= {"s3:ListBucket", "s3:ListBucketMultipartUploads"}
        for prefix in one.get("Condition", {}).get("StringLike", {}).get("s3:prefix", []):
            assert prefix.removesuffix("/*") in PLACES[who]
    assert below == PLACES[who]


def test_a_reader_only_reads() -> None:
    actions = {action for one in statements("reader") for action in one["Action"]}
    assert actions == {"s3:GetObject", "s3:ListBucket"}


def test_who_only_adds_deletes_nothing_and_writes_no_checkpoint() -> None:
    for one in statements("append-only"):
        assert not [action for action in one["Action"] if "Delete" in action]
        if any("CHECKPOINTS" in resource for resource in one["Resource"]):
            assert one["Action"] == ["s3:GetObject"]


def test_no_policy_has_a_wildcard_for_its_actions() -> None:
    assert not [who for who in PLACES for one in statements(who) for action in one["Action"] if "*" in action]
