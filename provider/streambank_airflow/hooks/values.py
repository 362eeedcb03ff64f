"""What `${var:NAME}` and `${conn:ID.FIELD}` stand for in a declaration: values that Airflow has.

What is declared reaches logs, pages and clusters, so that nothing secret is handed out here: a password comes
by the environment of the driver, or by files that Spark reads.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from streambank.core.errors import InputError, StorageError
from streambank.core.json_text import loads
from streambank.declaration.credentials import is_credential
from streambank_airflow.hooks.connection import find_connection

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

T = TypeVar("T")

COUNT_S = 30.0
"""For how long values of Airflow's count that were looked up."""
_PATIENCE_S = 60.0
_FIELDS = ("host", "port", "login", "schema")
_FIELD = re.compile(r"(?P<id>.+?)\.(?:(?P<field>[a-z_]+)|extra\.(?P<extra>\w+))")
_INSTEAD = (
    "Leave it out: credentials come from the environment of the driver (what `env` names) or from a role."
)


class AirflowValues(dict[str, str]):
    """The environment, and by `look_up` what Airflow has besides.

    Attributes:
        asked: Whether anything was looked up in Airflow.

    Args:
        loop: The loop of the triggerer, where nothing may be asked of Airflow but in it; only for who is in
            another thread.
    """

    def __init__(self, loop: AbstractEventLoop | None = None) -> None:
        super().__init__(os.environ)
        self.asked = False
        self._loop = loop

    def look_up(self, name: str) -> str | None:
        """What `var:NAME` or `conn:ID.FIELD` stands for; None for what is not there.

        Raises:
            InputError: It is a secret, or a connection has no such field (code `bad-declaration`).
            StorageError: Airflow does not answer (code `airflow-not-reached`).
        """
        self.asked = True
        kind, _, key = name.partition(":")
        value = self._variable(key) if kind == "var" else self._of_connection(key)
        if is_credential(key.rpartition(".")[2], value or ""):
            raise _secret(name)
        return value

    def _variable(self, key: str) -> str | None:
        from airflow.sdk import Variable

        if is_credential(key):
            raise _secret(f"var:{key}")
        found = self._ask(lambda: Variable.get(key, default=None))
        return None if found is None else str(found)

    def _of_connection(self, key: str) -> str | None:
        named = _FIELD.fullmatch(key)
        field, extra = (named["field"], named["extra"]) if named is not None else (None, None)
        if field == "password" or (extra is not None and is_credential(extra)):
            raise _secret(f"conn:{key}")
        if named is None or (extra is None and field not in _FIELDS):
            raise InputError(
                f"conn:{key} names no field of a connection.",
                code="bad-declaration",
                hint=f"Write ${{conn:ID.FIELD}}, with one of {', '.join(_FIELDS)}, or extra.NAME.",
            )
        conn_id = named["id"]
        connection = self._ask(lambda: find_connection(conn_id))
        if connection is None:
            return None
        if field == "login" and connection.conn_type == "aws":  # the id of an access key
            raise _secret(f"conn:{key}")
        found = connection.extra_dejson.get(extra) if extra is not None else getattr(connection, str(field))
        if _is_document(found):
            raise InputError(
                f"conn:{key} is no single value, and there may be a credential in it.",
                code="bad-declaration",
                hint=_INSTEAD,
            )
        return None if found is None else str(found)

    def _ask(self, find: Callable[[], T]) -> T:
        try:
            if self._loop is None:
                return find()
            from asgiref.sync import sync_to_async

            async def ask() -> T:
                # In a thread of its own: whoever waits here may hold the one that all others share.
                return await sync_to_async(find, thread_sensitive=False)()

            return asyncio.run_coroutine_threadsafe(ask(), self._loop).result(_PATIENCE_S)
        except Exception as error:
            raise StorageError(
                f"Airflow does not tell a value that the declaration names: {error!r}.",
                code="airflow-not-reached",
                hint="It is tried again. See whether the API server and the secrets backend answer.",
            ) from error


def _is_document(value: Any) -> bool:
    """Whether a field of a connection is a key file, a configuration, headers: who knows what is in it."""
    if not isinstance(value, str):
        return isinstance(value, dict | list)
    text = value.strip()
    if text[:1] not in ("{", "["):
        return "\n" in text
    try:
        loads(text)
    except ValueError:
        return False
    return True


def _secret(name: str) -> InputError:
    return InputError(
        f"{name} is a credential, and what is declared stands in logs and on pages.",
        code="bad-declaration",
        hint=_INSTEAD,
    )
