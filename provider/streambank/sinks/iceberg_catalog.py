"""A table in a catalog of Iceberg, by PyIceberg: opened for one question, and its errors as ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from streambank.core.errors import ConflictError, RefusedError, StorageError, StreambankError

if TYPE_CHECKING:
    from pyiceberg.table import Table

NAME = "name"
"""The property that says how the catalog is called; PyIceberg takes the name apart from the others."""
DEFAULT_NAME = "default"
_LEAST_SECRET = 3
"""Shorter values are words such as `v1`, and a message without them cannot be understood."""


class IcebergTable:
    """Where a table is.

    Args:
        path: Its identifier in the catalog, such as `sales.orders`.
        catalog: The catalog's properties as PyIceberg reads them, and its `name`: the section of PyIceberg's
            own configuration, and for a catalog in a database the name under which its tables are listed.
    """

    def __init__(self, path: str, catalog: Mapping[str, str]) -> None:
        self.path = path
        self._catalog = dict(catalog)
        self._name = self._catalog.pop(NAME, DEFAULT_NAME)

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
                CommitFailedException,
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
        try:
            try:
                # A question makes no tables in a database that is not a catalog yet.
                catalog = load_catalog(self._name, **{"init_catalog_tables": "false", **self._catalog})
            except (ValueError, NoSuchPropertyException, NotInstalledError, ImportError) as error:
                raise self._no_catalog(error) from None
            with catalog:
                try:
                    table = catalog.load_table(self.path)
                except (NoSuchTableError, NoSuchNamespaceError):
                    table = None
                yield table
        except StreambankError:
            raise
        except CommitFailedException as error:
            raise ConflictError(
                f"Another writer changed the Iceberg table {self.path} meanwhile: {self._said(error)}",
                code="sink-moved",
                hint="Stop whatever writes to it, then try again.",
            ) from None
        except Exception as error:  # each catalog has errors of its own library, without a common base
            raise StorageError(
                f"The Iceberg table {self.path} cannot be asked: {self._said(error)}",
                code="sink-not-reachable",
                hint="Look at `catalog` of the job's sinks, at the catalog, and at the rights of that user.",
            ) from None  # what the library keeps of it may hold the password

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
        for name, value in sorted(self._catalog.items(), key=lambda item: -len(item[1])):
            for secret in (value, *_login(value)):
                if len(secret) >= _LEAST_SECRET:
                    line = line.replace(secret, f"<{name}>")
        return f"{type(original).__name__}: {line}" if line else type(original).__name__


def _login(value: str) -> Iterator[str]:
    """User and password of an address, as they are in it and decoded."""
    try:
        parts = urlsplit(value)
        found = [part for part in (parts.password, parts.username) if part]
    except ValueError:
        return
    for part in found:
        yield from (part, unquote(part))
