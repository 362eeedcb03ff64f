"""A removal of one place: its neighbours, whose names begin likewise, are other places on every storage."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

import pytest

from streambank.core.errors import StreambankError
from streambank.storage import open_store
from streambank.storage.store import Store
from streambank.work.remove import remove_tree
from tests.support.storage.s3_servers import BUCKET, S3Server

_SERIAL = itertools.count()
NEIGHBOURS = ("ab", "a.g0002", "a-x", "a.quarantine-x", "a b", "A", "aa/a", "b/a", "a.streambank.json")
FILES = ("metadata", "offsets/0", "state/0/0/1.delta")


def filled(place: Store) -> dict[str, bytes]:
    """A place with `a`, and with neighbours of it."""
    for name in ("a", *NEIGHBOURS):
        for file in FILES:
            place.write(f"{name}/{file}", f"{name} {file}".encode())
    return {info.path: place.read(info.path) for info in place.list() if not info.path.startswith("a/")}


def left(place: Store) -> Mapping[str, bytes]:
    return {info.path: place.read(info.path) for info in place.list()}


@pytest.fixture(params=["memory", "disk", "moto_server"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    if request.param == "moto_server":
        server: S3Server = request.getfixturevalue("moto_server")
        return open_store(server.use(monkeypatch).location())
    return open_store(f"memory://prefix-{next(_SERIAL)}" if request.param == "memory" else tmp_path / "place")


@pytest.mark.parametrize("slash", ["", "/"])
def test_only_what_lies_below_a_place_goes(place: Store, slash: str) -> None:
    others = filled(place)
    files, _ = remove_tree(open_store(f"{place.uri}/a{slash}"), check=lambda: None)
    assert files == len(FILES)
    assert left(place) == others and len(others) == len(FILES) * len(NEIGHBOURS)


def test_a_place_that_is_not_there_takes_nothing_with_it(place: Store) -> None:
    filled(place)
    before = left(place)
    for name in ("a.g", "a.g000", "aa", "metadata"):
        assert remove_tree(open_store(f"{place.uri}/{name}"), check=lambda: None)[0] == (name == "aa") * 3
        if name == "aa":
            before = {path: data for path, data in before.items() if not path.startswith("aa/")}
        assert left(place) == before


@pytest.mark.parametrize(
    "key",
    [
        "a//metadata",
        *(
            pytest.param(key, marks=pytest.mark.storm)
            for key in ("a/../b/metadata", "a/./metadata", "a/x/../../b/metadata", "a//")
        ),
    ],
)
def test_an_odd_key_on_s3_leads_nowhere(
    moto_server: S3Server, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """It may be no file of ours: then nothing goes, as it is not known what that is."""
    place = open_store(moto_server.use(monkeypatch).location())
    filled(place)
    prefix = place.uri.removeprefix(f"s3://{BUCKET}/")
    before = left(place)
    with moto_server.client() as client:
        client.put_object(Bucket=BUCKET, Key=f"{prefix}/{key}", Body=b"odd")
        try:
            remove_tree(open_store(f"{place.uri}/a"), check=lambda: None)
        except StreambankError as error:
            assert error.exit_code != 70
            client.delete_object(Bucket=BUCKET, Key=f"{prefix}/{key}")
            assert left(place) == before, "it refused before anything was deleted"
        else:
            client.delete_object(Bucket=BUCKET, Key=f"{prefix}/{key}")
            assert left(place) == {one: data for one, data in before.items() if not one.startswith("a/")}
