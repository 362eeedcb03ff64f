"""The policies of docs/howto/access.md on a server that enforces them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streambank.control.control import JobControl
from streambank.core.errors import StorageError
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.paths import ROOT
from tests.support.storage.s3_servers import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server, versitygw

__all__ = ["versitygw"]  # a fixture

PLACES = {"SAVEPOINTS": "savepoints", "CONTROL": "control", "CHECKPOINTS": "shop"}


def policy(who: str) -> dict[str, Any]:
    """A policy of the page for a user of the same name, as the bucket takes it."""
    text = (ROOT / "docs" / "howto" / "policies" / f"{who}.json").read_text(encoding="utf-8")
    for name, place in {"BUCKET": BUCKET, **PLACES}.items():
        text = text.replace(name, place)
    document: dict[str, Any] = json.loads(text)
    for statement in document["Statement"]:
        statement["Principal"] = {"AWS": [who]}
    return document


@pytest.fixture
def as_user(versitygw: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes this process a user with a policy of the page, and root again."""
    command = [str(ROOT / ".streambank" / "go" / "versitygw"), "admin", "--endpoint-url", versitygw.endpoint]
    command += ["--access", ACCESS_KEY, "--secret", SECRET_KEY]

    def become(who: str | None) -> None:
        versitygw.use(monkeypatch)
        if who is None:
            return
        made = ["create-user", "--access", who, "--secret", f"{who}-secret", "--role", "user"]
        subprocess.run([*command, *made], check=False, capture_output=True, timeout=60)
        with versitygw.client() as client:
            client.put_bucket_policy(Bucket=BUCKET, Policy=json.dumps(policy(who)))
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", who)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", f"{who}-secret")

    yield become
    become(None)
    with versitygw.client() as client:
        client.delete_bucket_policy(Bucket=BUCKET)


def place(name: str) -> str:
    return f"s3://{BUCKET}/{name}"


def saved() -> tuple[Repository, str]:
    """A query with a savepoint."""
    live = LiveCheckpoint(open_store(place("shop/orders")))
    live.plan()
    live.commit()
    repository = Repository.open(open_store(place("savepoints/prod")), create=True)
    return repository, take(TakeRequest(open_store(place("shop/orders")), repository, "orders")).savepoint


def test_each_policy_allows_what_the_page_says(as_user: Any, tmp_path: Path) -> None:
    as_user("airflow")
    repository, savepoint = saved()
    assert verify(repository, "orders", savepoint, "full").findings == ()
    restore(RestoreRequest(repository, savepoint, into=open_store(place("shop/again"))))
    JobControl.open(place("control/prod"), "orders").set_desired("stopped", by={"user": "ann"})
    with pytest.raises(StorageError):
        open_store(place("elsewhere/x")).write("a", b"1")

    as_user("driver")
    JobControl.open(place("control/prod"), "orders").set_desired("running", by={"user": "driver"})
    assert open_store(place("shop/orders")).exists("metadata")
    with pytest.raises(StorageError):
        open_store(place("savepoints/prod")).write("forged", b"1")
    with pytest.raises(StorageError):
        open_store(place("savepoints/prod")).read("repository.json")

    as_user("reader")
    repository = Repository.open(open_store(place("savepoints/prod")))
    report = verify(repository, "orders", savepoint, "full", record=False)
    assert report.findings == ()
    into = open_store(str(tmp_path / "own"))
    restore(RestoreRequest(repository, savepoint, into=into))
    for key in ("savepoints/prod/x", "control/prod/x", "shop/x"):
        with pytest.raises(StorageError):
            open_store(place(key)).write("a", b"1")
    with pytest.raises(StorageError):
        JobControl.open(place("control/prod"), "orders").desired()


def test_savepoints_are_added_and_none_goes_without_the_right_to_delete(as_user: Any) -> None:
    as_user("airflow")
    repository, first = saved()
    live = LiveCheckpoint(open_store(place("shop/sales")))
    live.plan()
    live.commit()

    as_user("append-only")
    repository = Repository.open(open_store(place("savepoints/prod")))
    second = take(TakeRequest(open_store(place("shop/sales")), repository, "sales"))
    assert second.new_files > 0
    for job, savepoint in (("orders", first), ("sales", second.savepoint)):
        assert verify(repository, job, savepoint, "full").ok
    for info in list(repository.store.list()):
        with pytest.raises(StorageError):
            repository.store.delete(info.path)
    with pytest.raises(StorageError):
        open_store(place("shop/orders")).write("x", b"1")
    assert verify(repository, "orders", first, "full").ok
