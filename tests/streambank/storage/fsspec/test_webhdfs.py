"""What a NameNode answers where the store of HDFS over HTTP and another writer are at one directory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import HTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from streambank.core.errors import StorageError
from streambank.storage import open_store
from streambank.storage.store import Store
from tests.support.serving import Quiet, serving

FULL = ("PathIsNotEmptyDirectoryException", "`/root/marks is non empty': Directory is not empty")
FILE = {
    "pathSuffix": "a.json",
    "type": "FILE",
    "length": 1,
    "modificationTime": 0,
    "owner": "o",
    "group": "g",
    "permission": "644",
}


class NameNode(HTTPServer):
    """One empty directory, of which a delete is refused; `filled` by another writer once it is asked."""

    refusal = FULL
    filled = False


class Answers(Quiet):
    """The part of the protocol that a prune uses."""

    server: NameNode

    def do_GET(self) -> None:
        asked = parse_qs(urlsplit(self.path).query)["op"][0]
        if asked == "GETFILESTATUS":
            self._answer(200, {"FileStatus": FILE | {"pathSuffix": "", "type": "DIRECTORY"}})
        else:
            there = [FILE] if self.server.filled else []
            self._answer(200, {"FileStatuses": {"FileStatus": there}})

    def do_DELETE(self) -> None:
        name, message = self.server.refusal
        self.server.filled = self.server.refusal == FULL
        self._answer(403, {"RemoteException": {"exception": name, "message": message}})

    def _answer(self, status: int, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def namenode() -> Iterator[NameNode]:
    server = NameNode(("127.0.0.1", 0), Answers)
    with serving(server):
        yield server


def store_at(namenode: NameNode) -> Store:
    return open_store(f"webhdfs://o@127.0.0.1:{namenode.server_port}/root")


def test_a_directory_that_another_writer_has_filled_stays_and_is_no_error(namenode: NameNode) -> None:
    store_at(namenode).prune("marks")
    assert namenode.filled, "a delete was asked for"


def test_what_else_keeps_a_directory_from_being_deleted_is_an_error(namenode: NameNode) -> None:
    namenode.refusal = ("SafeModeException", "Cannot delete /root/marks. Name node is in safe mode.")
    with pytest.raises(StorageError, match="RuntimeError"):
        store_at(namenode).prune("marks")
