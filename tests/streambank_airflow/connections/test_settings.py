"""S3 as a connection says it, where the process itself has no credentials; and that nobody ever sees them."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from streambank.core.errors import InputError, StorageError
from streambank.driver.launchers.local import LocalLauncher
from streambank.repository.repository import Repository
from streambank.savepoint.verify import verify
from streambank.storage import S3Access, open_store, using_s3
from streambank_airflow.hooks.streambank import StreambankHook
from streambank_airflow.operators.restore import RestoreSavepointOperator
from streambank_airflow.operators.savepoint import CreateSavepointOperator, VerifySavepointOperator
from tests.support.airflow_face.metadata_db import run_dag, task_states
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.managed_job import Managed
from tests.support.refuses import refuses
from tests.support.storage.s3_servers import S3Server, free_ports, moto_server
from tests.support.waiting import poll

__all__ = ["moto_server"]  # a fixture
pytestmark = pytest.mark.usefixtures("airflow_database")

KEY = "AKIDOFTHECONNECTION"
# Made up again each time: Airflow keeps the source of a DAG, which for these tests is this file.
_MADE_UP = uuid.uuid4().hex
SECRET = f"{_MADE_UP}/of+the=secret"
TOKEN = f"{_MADE_UP}/of+the=token"
SECRETS = (_MADE_UP,)
ROLE = "arn:aws:iam::123456789012:role/savepoints"


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """boto3's own chain leads nowhere."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def connect(
    patch: pytest.MonkeyPatch,
    extra: Mapping[str, Any],
    *,
    name: str = "streambank_default",
    login: str | None = KEY,
    password: str | None = SECRET,
    kind: str = "streambank",
) -> None:
    connection = {"conn_type": kind, "login": login, "password": password, "extra": dict(extra)}
    patch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(connection))


def own_fields(server: S3Server) -> dict[str, str]:
    return {"s3_endpoint_url": server.endpoint, "s3_region": "us-east-1", "s3_session_token": TOKEN}


def checkpoint_at(server: S3Server, location: str) -> None:
    with using_s3(S3Access("tests", "own", endpoint_url=server.endpoint, region="us-east-1")):
        LiveCheckpoint(open_store(location)).run(3)


def everything_in(server: S3Server) -> bytes:
    """The names and bytes of all objects of the server's bucket."""
    with using_s3(S3Access("tests", "own", endpoint_url=server.endpoint, region="us-east-1")):
        bucket = open_store("s3://streambank")
        return b"".join(info.path.encode() + bucket.read(info.path) for info in bucket.list())


def rows_of_the_database() -> list[tuple[str, str]]:
    """Every row of every table but that of connections, which is where they are kept."""
    from airflow.utils.session import create_session
    from sqlalchemy import MetaData, select

    with create_session() as session:
        tables = MetaData()
        tables.reflect(session.get_bind())
        return [
            (table.name, repr(tuple(row)))
            for table in tables.sorted_tables
            for row in session.execute(select(table))
        ]


def leaks(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret in text]


@pytest.mark.storm
def test_a_whole_dag_works_with_what_the_connection_alone_says_and_nothing_shows_it(
    moto_server: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    checkpoint, restored = moto_server.location("s3a"), moto_server.location("s3a")
    repository = moto_server.location()
    checkpoint_at(moto_server, checkpoint)
    connect(monkeypatch, {"repository": repository, **own_fields(moto_server)})
    before = dict(os.environ)
    with DAG("on_s3", schedule=None) as dag:
        (
            CreateSavepointOperator(task_id="take", job="orders", checkpoint=checkpoint)
            >> VerifySavepointOperator(task_id="verify", job="orders", savepoint="latest", level="full")
            >> RestoreSavepointOperator(task_id="restore", job="orders", into=restored)
        )

    with caplog.at_level(logging.INFO):
        run = run_dag(dag)

    assert set(task_states(run).values()) == {"success"}
    stored = everything_in(moto_server).decode("latin-1")
    assert {place.rpartition("/")[2] in stored for place in (repository, restored)} == {True}
    rows = rows_of_the_database()
    assert "xcom" in {table for table, _ in rows}, "what is searched holds what the run left"
    shown = "".join(capfd.readouterr()) + caplog.text
    assert "holds batch 2" in shown[-1_000_000:]
    assert (leaks(stored), leaks(shown)) == ([], [])
    assert [table for table, row in rows if leaks(row)] == []
    # Airflow itself says there which task it runs.
    added = {name: value for name, value in os.environ.items() if before.get(name) != value}
    assert not leaks(str(added)) and not [name for name in added if name.startswith(("AWS_", "STREAMBANK_"))]


def test_without_the_connections_fields_nobody_gets_in(
    moto_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: it is the connection that opens the store."""
    location = moto_server.location()
    connect(monkeypatch, {"repository": location}, login=None, password=None)
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto_server.endpoint)

    with refuses(StorageError, "no-credentials", hint="connection"):
        StreambankHook().get_conn()


@pytest.mark.parametrize("role", [None, ROLE])
def test_an_aws_connection_can_be_named_instead(
    moto_server: S3Server, monkeypatch: pytest.MonkeyPatch, role: str | None
) -> None:
    location = moto_server.location()
    extra: dict[str, Any] = {
        "region_name": "us-east-1",
        "endpoint_url": moto_server.endpoint,
        "assume_role_method": "assume_role",
    }
    if role is not None:
        extra |= {"role_arn": role, "assume_role_kwargs": {"ExternalId": "shared"}}
        extra |= {"service_config": {"sts": {"endpoint_url": moto_server.endpoint}, "emr": {"x": 1}}}
    connect(monkeypatch, extra, name="lake", kind="aws")
    connect(monkeypatch, {"repository": location, "aws_conn_id": "lake"}, login=None, password=None)
    hook = StreambankHook()

    made = hook.declared.open_repository("orders", create=True)

    assert hook.test_connection() == (True, f"The repository {made.id} is there.")
    opened = asyncio.run(StreambankHook.aopen("streambank_default"))
    assert opened.declared.settings == hook.declared.settings
    assert opened.get_conn().id == made.id
    assert (
        SECRET
        not in f"{hook.declared.settings} {opened.declared.settings!r} {vars(hook)} {vars(hook.declared)}"
    )


def test_a_wait_in_the_triggerer_reads_records_and_checkpoints_with_it(
    moto_server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    location = moto_server.location("s3a")
    checkpoint_at(moto_server, f"{location}/ck")
    jobs_file = tmp_path / "streaming_jobs.toml"
    (tmp_path / "app.py").touch()
    jobs_file.write_text(
        f'repository = "{location}/repository"\n[jobs.flights]\napplication = "app.py"\n'
        f'checkpoint = "{location}/ck"\n'
    )
    connect(monkeypatch, own_fields(moto_server))

    async def look() -> Any:
        hook = await StreambankHook.aopen("streambank_default", str(jobs_file))
        watcher = await asyncio.to_thread(hook.watchers.job, "flights")
        assert SECRET not in repr(watcher)
        return await asyncio.to_thread(watcher.look)

    assert asyncio.run(look()).state == "never-started"
    took = StreambankHook(jobs_file=str(jobs_file)).savepoints.take("flights")
    assert took.batch == 2
    assert StreambankHook(jobs_file=str(jobs_file)).savepoints.verify("flights", level="full").ok


def test_a_driver_gets_nothing_of_it(
    managed: Managed, moto_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = managed.jobs_file.read_text()
    control = f"control = {str(managed.folder / 'control')!r}\n"
    repository = moto_server.location()
    managed.jobs_file.write_text(control + declared.replace('"repository"', f'"{repository}"'))
    connect(monkeypatch, own_fields(moto_server))
    hook = StreambankHook(jobs_file=str(managed.jobs_file))
    launches = list[list[str]]()
    submit = LocalLauncher.submit

    def noting(self: LocalLauncher, *args: Any, **kwargs: Any) -> Any:
        handle = submit(self, *args, **kwargs)
        launches.append([str(process.pid) for process in handle.processes])
        return handle

    monkeypatch.setattr(LocalLauncher, "submit", noting)
    hook.jobs.start("flights", obey_desired=False, by={})
    managed.wait_for_batch(1)
    (pids,) = launches
    assert pids
    for pid in pids:
        process = Path("/proc") / pid
        told = process.joinpath("environ").read_bytes() + process.joinpath("cmdline").read_bytes()
        assert b"PATH=" in told
        assert not [secret for secret in (*SECRETS, KEY) if secret.encode() in told]
    stopped = hook.jobs.stop("flights", savepoint=True)
    assert stopped.savepoints
    poll(lambda: not managed.driver_lives())
    files = [path for path in managed.folder.rglob("*") if path.is_file()]
    assert not [path for path in files if path.suffix != ".crc" and SECRET.encode() in path.read_bytes()]
    opened = (
        hook.get_conn() if hook.declared.settings.repository else hook.declared.open_repository("flights")
    )
    assert verify(opened, "flights", [one.savepoint for one in opened.manifests("flights")][-1], "full").ok


def test_an_error_says_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody_listens = f"http://{KEY}:{SECRET.replace('/', '-')}@127.0.0.1:{free_ports(1)[0]}"
    connect(
        monkeypatch, {"repository": "s3://bucket/r", "s3_endpoint_url": nobody_listens, "s3_region": "here"}
    )

    with refuses(StorageError, "not-reachable") as caught:
        StreambankHook().get_conn()

    works, said = StreambankHook().test_connection()
    assert not works
    for text in (said, str(caught.value), json.dumps(caught.value.to_dict())):
        assert not leaks(text) and KEY not in text


@pytest.mark.parametrize(
    ("extra", "aws", "wrong"),
    [
        ({"s3_secret": "hush"}, None, "'s3_secret'"),
        ({"s3_profile": "hush"}, None, "a profile and credentials"),
        (
            {"s3_region": "hush", "aws_conn_id": "lake"},
            {"region_name": "another"},
            "has two values in connection",
        ),
        ({"aws_conn_id": "lake"}, {"verify": "hush"}, "'verify'"),
        ({"aws_conn_id": "lake"}, {"assume_role_method": "hush"}, "'assume_role_method'"),
        (
            {"aws_conn_id": "lake"},
            {"session_kwargs": {"botocore_session": "hush"}},
            "session_kwargs.botocore",
        ),
        ({"aws_conn_id": "lake"}, {"region_name": 7}, "must be text"),
        ({"aws_conn_id": "nowhere"}, None, "no connection nowhere"),
    ],
)
def test_what_cannot_be_followed_is_refused_without_repeating_it(
    monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any], aws: dict[str, Any] | None, wrong: str
) -> None:
    connect(monkeypatch, {"repository": "s3://bucket/r", **extra})
    if aws is not None:
        connect(monkeypatch, aws, name="lake", kind="aws")

    for opened in (
        lambda: StreambankHook().declared.settings,
        lambda: asyncio.run(StreambankHook.aopen("streambank_default")),
    ):
        with pytest.raises(InputError, match=wrong) as caught:
            opened()
        text = json.dumps(caught.value.to_dict())
        assert "hush" not in text and SECRET not in text


def test_a_repository_of_a_hook_goes_on_working_after_the_call(
    moto_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, {"repository": moto_server.location(), **own_fields(moto_server)})
    repository: Repository = StreambankHook().declared.open_repository("orders", create=True)

    with repository.objects.writer() as writer:
        writer.add(b"x" * (2 << 20), 2 << 20)
    assert list(repository.store.list("objects"))
