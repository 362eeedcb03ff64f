"""A table in a catalog of Iceberg, by PyIceberg: opened for one question, and its errors as ours."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streambank.core.errors import RefusedError, StorageError, StreambankError
from streambank.sinks.rights import lacks_right, no_right_to_roll_back
from streambank.sinks.secrets import without_values
from streambank.sinks.table import sink_moved

if TYPE_CHECKING:
    from pyiceberg.table import Table

NAME = "name"
"""The property that says how the catalog is called; PyIceberg takes the name apart from the others."""
DEFAULT_NAME = "default"
_ACCESS = {
    "AWS_REGION": "s3.region",
    "AWS_ENDPOINT_URL": "s3.endpoint",
    "AWS_ACCESS_KEY_ID": "s3.access-key-id",
    "AWS_SECRET_ACCESS_KEY": "s3.secret-access-key",
    "AWS_SESSION_TOKEN": "s3.session-token",
    "AWS_SKIP_SIGNATURE": "s3.anonymous",
}
"""How PyIceberg calls what `object_store` calls otherwise."""
_OWN_ACCESS = re.compile(
    r"(s3\.(endpoint|anonymous|signer.*)|(s3|client)\.(access-key-id|secret-access-key|session-token|profile-name"
    r"|role-arn))\Z"
)
"""Properties with which a catalog says itself how S3 is reached."""


class IcebergTable:
    """Where a table is.

    Args:
        path: Its identifier in the catalog, such as `sales.orders`.
        catalog: The catalog's properties as PyIceberg reads them, and its `name`: the section of PyIceberg's
            own configuration, and for a catalog in a database the name under which its tables are listed. A
            `warehouse` on S3 is reached as our own stores are, unless they name an endpoint or credentials.
    """

    def __init__(self, path: str, catalog: Mapping[str, str]) -> None:
        self.path = path
        self._catalog = dict(catalog)
        self._name = self._catalog.pop(NAME, DEFAULT_NAME)
        self._access: dict[str, str] = {}

    @contextmanager
    def opened(self) -> Iterator[Table | None]:
        """The table as it is now; None where there is none of this name.

        Raises:
            RefusedError: A package is missing, or the properties lead to no catalog (code `sink-not-known`).
            ConflictError: Somebody else committed first (code `sink-moved`).
            StorageError: The catalog or the table's metadata cannot be reached (code `sink-not-reachable`).
        """
        try:
            from pyiceberg.catalog import load_catalog
            from pyiceberg.exceptions import (
                NoSuchNamespaceError,
                NoSuchPropertyException,
                NoSuchTableError,
                NotInstalledError,
            )
        except ImportError as error:
            raise RefusedError(
                f"The Iceberg table {self.path} cannot be asked: the package pyiceberg is not installed "
                "here.",
                code="sink-not-known",
                hint="pip install 'airflow-provider-streambank[iceberg]'",
            ) from error
        with self.reached():
            self._access = self._s3()
            try:
                # A question makes no tables in a database that is not a catalog yet.
                properties = {"init_catalog_tables": "false", **self._access, **self._catalog}
                catalog = load_catalog(self._name, **properties)
            except (ValueError, NoSuchPropertyException, NotInstalledError, ImportError) as error:
                raise self._no_catalog(error) from None
            with catalog:
                try:
                    table = catalog.load_table(self.path)
                except (NoSuchTableError, NoSuchNamespaceError):
                    table = None
                yield table

    @contextmanager
    def reached(self) -> Iterator[None]:
        """The errors of PyIceberg and of what it works with as ours, while the table is in use.

        Raises:
            ConflictError: Somebody else committed first (code `sink-moved`).
            StorageError: The catalog or the table's metadata cannot be reached (code `sink-not-reachable`).
        """
        from pyiceberg.exceptions import CommitFailedException

        try:
            yield
        except StreambankError:
            raise
        except CommitFailedException as error:
            raise sink_moved(
                f"Another writer changed the Iceberg table {self.path} meanwhile: {self._said(error)}",
                "Stop whatever writes to it, then try again.",
            ) from None
        except Exception as error:  # each catalog has errors of its own library, without a common base
            raise StorageError(
                f"The Iceberg table {self.path} cannot be asked: {self._said(error)}",
                code="sink-not-reachable",
                hint="Look at `catalog` of the job's sinks, at the catalog, and at the rights of that user.",
            ) from None  # what the library keeps of it may hold the password

    @contextmanager
    def committing(self) -> Iterator[None]:
        """The same while the table is rolled back.

        Raises:
            RefusedError: Catalog or storage does not allow it: nothing was changed (code
                `sink-cannot-roll-back`).
        """
        from pyiceberg.exceptions import ForbiddenError

        with self.reached():
            try:
                yield
            except (ForbiddenError, OSError) as error:
                if not isinstance(error, ForbiddenError) and not lacks_right(error):
                    raise
                raise no_right_to_roll_back(f"Iceberg table {self.path}", self._said(error)) from None

    def _s3(self) -> dict[str, str]:
        """Our own access to S3, for a warehouse there whose catalog says nothing of its own.

        A REST catalog needs none here: it reads and writes the table's metadata itself.
        """
        from pyiceberg.utils.config import Config

        said = {**(Config().get_catalog_config(self._name) or {}), **self._catalog}
        warehouse, kind = str(said.get("warehouse", "")), str(said.get("type", "")).lower()
        if kind == "rest" or (not kind and str(said.get("uri", "")).startswith("http")):
            return {}
        if not warehouse.startswith(("s3://", "s3a://")) or any(map(_OWN_ACCESS.match, said)):
            return {}
        from streambank.storage.s3.client import object_store_options

        ours = object_store_options(warehouse)
        return {ice: ours[name] for name, ice in _ACCESS.items() if name in ours and ice not in said}

    def _no_catalog(self, error: Exception) -> RefusedError:
        missing = isinstance(error, ImportError) or type(error).__name__ == "NotInstalledError"
        # PyIceberg repeats all properties, where it cannot make a catalog of them.
        why = self._said(error) if missing else type(error).__name__
        return RefusedError(
            f"The Iceberg table {self.path} cannot be asked: its `catalog` leads to no catalog ({why}).",
            code="sink-not-known",
            hint='Write the properties that PyIceberg takes, such as {type = "rest", uri = "..."}, and '
            "install what that type needs, such as pyiceberg[hive].",
        )

    def _said(self, error: Exception) -> str:
        """What an error says in its first line, without values of the catalog's properties."""
        original = getattr(error, "orig", None) or error
        line = next(iter(str(original).strip().splitlines()), "")
        line = without_values(line, self._access | self._catalog)
        return f"{type(original).__name__}: {line}" if line else type(original).__name__
