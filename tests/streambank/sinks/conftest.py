"""Tables of each kind with batches 0 to 4 of one query, three rows each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.exceptions import RESTError

from tests.support.sinks.books import Books
from tests.support.sinks.guarded import QUERY, batch_rows, with_batches
from tests.support.sinks.iceberg import NAME, IceTable, s3_properties
from tests.support.sinks.lake import Lake
from tests.support.sinks.postgres import running_postgres
from tests.support.storage.s3_servers import ACCESS_KEY, SECRET_KEY, S3Server, run_seaweedfs
from tests.support.waiting import wait_for


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return with_batches(Lake(tmp_path / "lake", QUERY))


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> IceTable:
    table = IceTable(tmp_path_factory.mktemp("iceberg") / "lake", QUERY)
    table.create()
    return with_batches(table)


@pytest.fixture
def sql(template: IceTable) -> Iterator[IceTable]:
    """A table in a catalog of SQLite; its metadata holds absolute paths, so it is brought back."""
    saved = (template.folder / "catalog.db").read_bytes()
    yield template
    (template.folder / "catalog.db").write_bytes(saved)


@pytest.fixture(scope="session")
def rest_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server with a REST catalog of Iceberg tables, and their bucket `lake`."""
    with run_seaweedfs(tmp_path_factory.mktemp("rest"), tables="lake") as server:
        yield server


@pytest.fixture
def rest(rest_server: S3Server, tmp_path: Path) -> IceTable:
    """A table like the others in that catalog, whose properties say nothing of S3."""
    catalog = {
        "type": "rest",
        "uri": rest_server.catalog,
        "warehouse": "s3://lake",
        "credential": f"{ACCESS_KEY}:{SECRET_KEY}",
        "oauth2-server-uri": f"{rest_server.catalog}/v1/oauth/tokens",
    }
    made = IceTable(tmp_path / "lake", QUERY, catalog=catalog, access=s3_properties(rest_server))

    def ready() -> bool:
        """Whether there is no such table; the bucket of tables is made after the server is up."""
        try:
            with made.catalog() as found:
                found.create_namespace_if_not_exists("db")
                if found.table_exists(NAME):
                    found.drop_table(NAME)
        except (OSError, RESTError):
            return False
        return True

    wait_for("the catalog", ready)
    made.create()
    return with_batches(made)


@pytest.fixture(params=["sql", pytest.param("rest", marks=pytest.mark.storm)])
def ice(request: pytest.FixtureRequest) -> IceTable:
    """A table in each kind of catalog."""
    found: IceTable = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with running_postgres() as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.storm)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres"))
    return f"sqlite:///{tmp_path / 'orders.db'}"


@pytest.fixture
def books(url: str) -> Books:
    return _books(url)


@pytest.fixture
def sqlite_books(tmp_path: Path) -> Books:
    return _books(f"sqlite:///{tmp_path / 'orders.db'}")


@pytest.fixture
def postgres_books(postgres: str) -> Books:
    return _books(postgres)


def _books(url: str) -> Books:
    """The batches, and one of another query."""
    made = with_batches(Books(url, QUERY).create())
    made.write(9, batch_rows(0, "theirs"), query="other query")
    return made
