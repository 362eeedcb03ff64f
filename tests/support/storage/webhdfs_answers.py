"""A store of HDFS over HTTP whose NameNode says what a test wants, without a network."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from requests import PreparedRequest, Response
from requests.adapters import BaseAdapter

from streambank.storage import open_store
from streambank.storage.store import Store

STATUS = {
    "pathSuffix": "a.json",
    "type": "FILE",
    "length": 4,
    "modificationTime": 1764000000000,
    "fileId": 17,
    "owner": "o",
    "group": "g",
    "permission": "644",
}
FOLDER = STATUS | {"pathSuffix": "marks", "type": "DIRECTORY", "length": 0}


class Answers(BaseAdapter):
    """Answers without a network.

    Args:
        bodies: What is said, by operation (`LISTSTATUS below`: of any directory but the root) and status;
            of several for one operation the last counts. 404 where nothing is said.
    """

    def __init__(self, bodies: Mapping[str, bytes]) -> None:
        super().__init__()
        self.bodies = bodies
        self.below = any(key.startswith("LISTSTATUS below") for key in bodies)
        self.asked = 0

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        self.asked += 1
        address = urlsplit(str(request.url))
        name = parse_qs(address.query).get("op", ["OPEN"])[0]
        if name == "LISTSTATUS" and address.path.rstrip("/") != "/webhdfs/v1/root" and self.below:
            name = "LISTSTATUS below"
        found = [key for key in self.bodies if key.rpartition(" ")[0] == name]
        key = found[-1] if found else f"{name} 404"
        response = Response()
        response.status_code = int(key.rpartition(" ")[2])
        response.url = str(request.url)
        response.raw = io.BytesIO(self.bodies.get(key, b""))
        response.headers["Location"] = f"http://datanode:9864{address.path}"
        return response

    def close(self) -> None:
        """Nothing is open."""


def answered(bodies: Mapping[str, bytes]) -> tuple[Store, Answers]:
    """A store that gets these answers, and who gives them."""
    store, answers = open_store("webhdfs://o@namenode:9870/root"), Answers(bodies)
    session = store._opened()[0].session  # type: ignore[attr-defined]  # where a network begins
    for scheme in ("http://", "https://"):
        session.mount(scheme, answers)
    return store, answers
