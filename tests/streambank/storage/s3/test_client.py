"""A bucket may have a profile that says how it is reached, whatever the environment says of the others."""

from __future__ import annotations

import json
import os
import socketserver
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import InputError, StorageError
from streambank.storage import S3Access, answering_within, open_store, using_s3
from streambank.storage.s3 import client
from streambank.storage.s3.client import PROFILES_VARIABLE, credentials_alone, object_store_options
from streambank.storage.s3.profile import session_of_profile
from streambank.storage.settings import variables_for
from tests.support.refuses import refuses
from tests.support.storage.s3_profiles import use_profiles
from tests.support.storage.s3_servers import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server


def elsewhere(patch: pytest.MonkeyPatch) -> None:
    """The environment names a service that is not there, and credentials that no server knows."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL_STS"):
        patch.setenv(name, "http://127.0.0.1:1")
    patch.setenv("AWS_ACCESS_KEY_ID", "AKIDOFSOMEBODYELSE")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    patch.setenv("AWS_SESSION_TOKEN", "of-another")
    patch.setenv("AWS_REGION", "eu-north-1")


def test_the_profile_of_a_bucket_comes_before_environment_and_connection(
    seaweedfs: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere(monkeypatch)
    use_profiles({BUCKET: seaweedfs}, tmp_path, monkeypatch)
    location = seaweedfs.location()
    open_store(location).write("a", b"x")
    with using_s3(S3Access("AKIDOFTHECONNECTION", "secret", endpoint_url="http://127.0.0.1:2")):
        assert open_store(location.replace("s3://", "s3a://")).read("a") == b"x"
        other = open_store("s3://another-bucket/x")
    options = object_store_options(location)
    assert (options["AWS_ENDPOINT_URL"], options["AWS_ACCESS_KEY_ID"]) == (seaweedfs.endpoint, ACCESS_KEY)
    assert other._service().client.meta.endpoint_url == "http://127.0.0.1:2"  # type: ignore[attr-defined]  # its S3
    assert PROFILES_VARIABLE in variables_for([location]), "drivers get it"


def test_files_are_not_copied_by_a_service_that_has_only_one_of_the_buckets(
    seaweedfs: S3Server, moto_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moto_server.use(monkeypatch)
    with seaweedfs.client() as client:
        client.create_bucket(Bucket="west")
    use_profiles({"west": seaweedfs}, tmp_path, monkeypatch)
    east, west = open_store(moto_server.location()), open_store("s3://west/profiles")
    east.write("a", b"x")
    assert not west.copy_from(east, "a", "b")
    west.write("b", east.read("a"))
    assert west.read("b") == b"x"


@pytest.mark.parametrize("value", ["west", "=west", "west=", "a=b,c"])
def test_what_cannot_be_read_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROFILES_VARIABLE, value)
    with pytest.raises(InputError) as caught:
        open_store("s3://west/x").exists("a")
    assert caught.value.code == "bad-setting" and PROFILES_VARIABLE in caught.value.message


def test_a_profile_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv(PROFILES_VARIABLE, "west=nowhere")
    with refuses(StorageError, "no-credentials", match="s3://west"):
        open_store("s3://west/x").exists("a")


OWN_KEYS = f"aws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"


def written(text: str, folder: Path, patch: pytest.MonkeyPatch, profiles: str) -> Path:
    """A file with profiles, which is boto3's."""
    file = folder / "config"
    file.write_text(text, encoding="utf-8")
    patch.setenv("AWS_CONFIG_FILE", str(file))
    patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "none"))
    patch.setenv(PROFILES_VARIABLE, profiles)
    return file


def endpoint_of(location: str) -> str:
    return str(client.service(location).client.meta.endpoint_url)


def test_a_profile_without_an_endpoint_leads_to_amazon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere(monkeypatch)
    written(f"[profile west]\nregion = us-west-1\n{OWN_KEYS}", tmp_path, monkeypatch, "west=west")
    amazon = "https://s3.us-west-1.amazonaws.com"
    assert endpoint_of("s3://west/x") == amazon and endpoint_of("s3://east/x") == "http://127.0.0.1:1"
    options = object_store_options("s3://west/x")
    assert options["AWS_ENDPOINT_URL"] == options["AWS_ENDPOINT_URL_S3"] == amazon


ROLE = "role_arn = arn:aws:iam::123456789012:role/streambank\nsource_profile = base\nregion = us-east-1\n"


@pytest.mark.parametrize("by_service", [True, False])
def test_the_role_of_a_profile_is_assumed_where_the_profile_says(
    by_service: bool, moto_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere(monkeypatch)
    address = f"endpoint_url = {moto_server.endpoint}\n"
    services = f"[services west]\ns3 =\n  {address}sts =\n  {address}"
    text = f"[profile base]\n{OWN_KEYS}[profile west]\n{ROLE}{'services = west' if by_service else address}\n"
    written(text + services, tmp_path, monkeypatch, f"{BUCKET}=west")
    store = open_store(moto_server.location())
    store.write("a", b"x")
    assert store.read("a") == b"x"
    used = client.service(store.uri).client._request_signer._credentials
    assert used.method == "assume-role" and used.access_key != ACCESS_KEY


def test_a_role_is_assumed_at_amazon_where_the_profile_names_no_service_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from botocore.endpoint import Endpoint

    elsewhere(monkeypatch)
    services = "services = west\n[services west]\ns3 =\n  endpoint_url = http://127.0.0.1:2\n"
    text = f"[profile base]\n{OWN_KEYS}[profile west]\n{ROLE}{services}"
    written(text, tmp_path, monkeypatch, "west=west")
    asked = list[str]()

    def no_network(_: Endpoint, request: Any) -> None:
        asked.append(request.url)
        raise ConnectionError

    monkeypatch.setattr(Endpoint, "_send", no_network)
    with pytest.raises(ConnectionError):
        open_store("s3://west/x").exists("a")
    assert asked == ["https://sts.us-east-1.amazonaws.com/"]


@pytest.mark.parametrize("by", ["the connection", "a profile", "the profile of a bucket"])
def test_a_look_gives_up_the_service_of_a_role_as_soon_as_any_other(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[bytes]()

    class Silent(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            asked.append(self.request.recv(65536))
            self.request.recv(1)  # until the other side hangs up

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Silent)
    server.daemon_threads = True
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        elsewhere(monkeypatch)
        text = f"[profile base]\n{OWN_KEYS}[profile west]\n{ROLE}endpoint_url = {address}\n"
        written(text, tmp_path, monkeypatch, "west=west" if by == "the profile of a bucket" else "")
        access = S3Access(profile="west" if by == "a profile" else None)
        if by == "the connection":
            role = "arn:aws:iam::123456789012:role/streambank"
            access = S3Access("AKID", "secret", region="us-east-1", role_arn=role, sts_endpoint_url=address)
        elif by == "a profile":
            monkeypatch.setenv("AWS_ENDPOINT_URL_STS", address)
        with using_s3(access), answering_within(0.4):
            store = open_store("s3://west/x")
        with pytest.raises(StorageError):
            store.exists("a")
        server.shutdown()
    assert len(asked) == 2, "as often as a bucket is asked, not as botocore tries by itself"


def test_native_code_takes_no_session_token_of_another_service(monkeypatch: pytest.MonkeyPatch) -> None:
    def seen() -> str:  # what is there for code that is not Python: a child without `env` gets just that
        done = subprocess.run(
            ["printenv", "AWS_SESSION_TOKEN"], stdout=subprocess.PIPE, text=True, check=False
        )
        return done.stdout.strip()

    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-another")
    with credentials_alone({"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}):
        assert seen() == "" and os.environ["AWS_SESSION_TOKEN"] == "of-another"
    assert seen() == "of-another"
    with credentials_alone({"AWS_ACCESS_KEY_ID": "a", "AWS_SESSION_TOKEN": "own"}):
        assert seen() == "of-another"


def test_a_profile_is_read_again_only_when_its_file_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"[profile west]\nregion = us-west-1\n{OWN_KEYS}endpoint_url = "
    file = written(f"{text}http://127.0.0.1:2", tmp_path, monkeypatch, "west=west")
    made = list[str]()

    def noting() -> object:
        made.append("session")
        return session_of_profile()

    monkeypatch.setattr(client, "session_of_profile", noting)
    assert endpoint_of("s3://west/x") == "http://127.0.0.1:2"
    before = len(made)
    assert endpoint_of("s3://west/y") == "http://127.0.0.1:2" and len(made) == before
    file.write_text(f"{text}http://127.0.0.1:65000", encoding="utf-8")
    assert endpoint_of("s3://west/x") == "http://127.0.0.1:65000" and len(made) > before


def test_slow_credentials_of_one_service_do_not_hold_up_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, started, go = tmp_path / "program.sh", tmp_path / "started", tmp_path / "go"
    answer = json.dumps({"Version": 1, "AccessKeyId": ACCESS_KEY, "SecretAccessKey": SECRET_KEY})
    program.write_text(
        f"touch {started}\nwhile [ ! -e {go} ]; do sleep 0.05; done\necho '{answer}'\n", encoding="utf-8"
    )
    where = "region = us-east-1\nendpoint_url = http://127.0.0.1:2\n"
    text = f"[profile slow]\n{where}credential_process = sh {program}\n[profile quick]\n{where}{OWN_KEYS}"
    written(text, tmp_path, monkeypatch, "slow=slow,quick=quick")
    with ThreadPoolExecutor() as pool:
        try:
            slow = pool.submit(client.service, "s3://slow/x")
            while not started.exists():
                assert not slow.done()
                time.sleep(0.05)
            quick = pool.submit(client.service, "s3://quick/x")
            assert quick.result(timeout=120) and not slow.done()
        finally:
            go.touch()
        assert slow.result() is not quick.result()
        assert client.service("s3://slow/y") is slow.result()
