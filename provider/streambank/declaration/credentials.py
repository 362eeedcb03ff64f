"""Credentials have no place among Spark's settings: its pages, event logs and clusters show them.

What is one tells its name: by what Spark itself hides in its logs and pages (`spark.redaction.regex` of 4.3),
and by how keys of storage services are called. Names that only lead to a credential, or say how one is dealt
with, are none. A value may hold one under any name: a login in an address, or `password=...` in an address of
JDBC or in options of Java.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from streambank.core.environment import is_variable
from streambank.declaration.fields import LOOKED_UP_LATER, Fields, GivenSource
from streambank.kafka.secrets import is_secret

_CREDENTIAL = re.compile(
    r"secret|passw|passphrase|token|access[._-]?key|credentials?$|auth\.pass$|jaas\.config$"
    r"|(?:private|account|encryption|api|sas)[._-]?key\b|(?:^|[._-])(?:pwd|pw|pass|pat|dsn)$",
    re.IGNORECASE,
)
_ENVIRONMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHARED_ACCESS = re.compile(r"\bfs\.azure\.sas\.(?!token\.provider\.type$)")
"""A container's signature; the name ends with that of the container."""
_ABOUT = re.compile(
    r"[._-](?i:file|path|dir|location|endpoint|ur[il]|name|class|type|provider|binding|mechanism|algorithm|"
    r"regex|enabled|interval|length|ms)$"
    r"|(?:File|Path|Dir|Name|Class|Type|Provider|Regex|Length)$"
    r"|\bdelegation[.-]tokens?\b"
    r"|^spark\.ssl\.(?:.+\.)?privateKey$"
    r"|^spark\.kubernetes\.(?:driver|executor)\.(?:secrets|secretKeyRef)\."
    r"|^spark\.kubernetes\.(?:container\.image\.pullSecrets|kerberos\.tokenSecret\..+)$"
)
"""Paths, addresses, classes, switches and numbers; and where Kubernetes is to take a secret from."""
_AUTH = re.compile(r"(?:^|[._-])auth$", re.IGNORECASE)
_KIND_OF_AUTH = re.compile(
    r"true|false|none|simple|basic|digest|kerberos|spnego|ldap|saml|oauth2?|iam|token", re.IGNORECASE
)
"""What follows `auth` where it says how, and not with what."""
_FOLDER = re.compile(r"(?:^|\.)(?:OLD)?PWD$")
"""The variable of a shell's working directory, in capitals as it is always written."""
_LOGIN = re.compile(r"://[^/\s:@]*:[^/\s@]+@")
_GIVEN = re.compile(r"([A-Za-z][\w.-]*)[\"']?\s*=\s*[\"']?([^\s,;&\"']+)")
"""A name and its value within a value."""
_REFERENCE = re.compile(r"\$\{|\{\{")
"""How a value begins that something else fills in."""
_AZURE_HOST = re.compile(r"\.[\w-]+\.(?:dfs|blob)\.core\.[\w.-]+$")


def is_credential(setting: str, value: str = "") -> bool:
    """Whether a setting is a credential, by its name or because its value holds one.

    Args:
        value: Its value; empty where only the name is known.
    """
    return _is_named_so(setting, value) or _LOGIN.search(value) is not None or _holds_one(value)


def _is_named_so(setting: str, value: str) -> bool:
    # Azure's names may end with the account that they are for.
    name = _AZURE_HOST.sub("", setting)
    if _FOLDER.search(name):
        return False
    named = _CREDENTIAL.search(name) is not None and _ABOUT.search(name) is None
    with_what = bool(value) and _AUTH.search(name) is not None and _KIND_OF_AUTH.fullmatch(value) is None
    return named or with_what or _SHARED_ACCESS.search(name) is not None


def _holds_one(value: str) -> bool:
    given = (match.groups() for match in _GIVEN.finditer(value))
    return any(_is_named_so(name, "") and not _REFERENCE.match(one) for name, one in given)


def refuse_credentials(settings: Mapping[str, str], fields: Fields, table: str = "spark") -> None:
    """Refuse a table of settings that holds a credential: of a storage service, a database, TLS or Spark.

    Raises:
        InputError: It does (code `bad-declaration`); the message names the setting, not its value.
    """
    for name, value in settings.items():
        if is_credential(name, value):
            what = "is" if _is_named_so(name, value) else "holds"
            raise fields.source.mistake(
                (*fields.path, table, name),
                f"it {what} a credential, and pages, event logs and clusters show settings",
                "Leave it out: credentials come from the environment (AWS_PROFILE, AWS_ACCESS_KEY_ID, what "
                "`env` names), from a role, or from files of Hadoop or Java.",
            )


def refuse_written(given: Mapping[str, Any]) -> None:
    """Refuse a declaration that holds a credential as it is written in Python, before anything stores it.

    What is refused is what a reader refuses, who comes too late for a DAG: Airflow has stored it by then.

    Args:
        given: The fields of a job's table; values that only a run knows may be anything.

    Raises:
        InputError: It does (code `bad-declaration`); the message names the setting, not its value.
    """
    source = GivenSource(given)
    for path, table in _tables(given, ("jobs", str(given.get("name")))):
        if len(path) == 2:
            continue  # the job's own fields
        texts, above = dict(_texts(table)), Fields({}, path[:-1], source)
        if path[-1] in ("spark", "settings"):
            refuse_credentials(texts, above, path[-1])
        for name, value in texts.items():
            is_known = is_secret(name) if path[-2:] == ("kafka", "config") else is_credential(name, value)
            looked_up = path[-2:] in LOOKED_UP_LATER or (*path[-1:], name) in LOOKED_UP_LATER
            if looked_up and is_known and not is_variable(value):
                raise source.mistake(
                    (*path, name),
                    "it holds a secret, and declarations are stored",
                    'Take the whole value from the environment, without a default: "${NAME}".',
                )


def _tables(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Each table in a declaration, and where it stands."""
    if isinstance(value, (list, tuple)):
        for one in value:
            yield from _tables(one, path)
    elif isinstance(value, Mapping):
        yield path, value
        for name, one in value.items():
            yield from _tables(one, (*path, str(name)))


def _texts(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """The texts of a table of settings, by their names in dots."""
    for name, one in table.items():
        if isinstance(one, Mapping):
            yield from _texts(one, f"{prefix}{name}.")
        elif isinstance(one, str):
            yield prefix + str(name), one


def read_environment(fields: Fields) -> tuple[str, ...]:
    """The names of environment variables that a driver gets besides the usual ones (`env`)."""
    names = fields.texts("env") or ()
    for name in names:
        if not _ENVIRONMENT.fullmatch(name):
            raise fields.mistake(
                "env", f"{name!r} is not the name of an environment variable", "List names, not values."
            )
        if name.upper().lstrip("_").startswith("AIRFLOW"):
            raise fields.mistake("env", f"{name} is Airflow's own and never passes to a driver")
    return names
