"""Credentials have no place among Spark's settings: they are arguments, which every user can read.

What is one tells its name: by what Spark itself hides in its logs and pages (`spark.redaction.regex` of 4.3),
and by how keys of storage services are called. Names that only lead to a credential, or say how one is dealt
with, are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from streambank.declaration.fields import Fields

_CREDENTIAL = re.compile(
    r"secret|passw|passphrase|token|access[._-]?key|credentials?$|auth\.pass$|jaas\.config$"
    r"|(?:private|account|encryption|api|sas)[._-]?key\b",
    re.IGNORECASE,
)
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
_AZURE_HOST = re.compile(r"\.[\w-]+\.(?:dfs|blob)\.core\.[\w.-]+$")


def is_credential(setting: str) -> bool:
    """Whether a setting of this name holds a credential."""
    # Azure's names may end with the account that they are for.
    name = _AZURE_HOST.sub("", setting)
    named = _CREDENTIAL.search(name) is not None and _ABOUT.search(name) is None
    return named or _SHARED_ACCESS.search(name) is not None


def refuse_credentials(settings: Iterable[str], fields: Fields) -> None:
    """Refuse a job whose `spark` table holds a credential: of a storage service, a database, TLS or Spark.

    Raises:
        InputError: It does (code `bad-declaration`); the message names the setting, not its value.
    """
    for name in settings:
        if is_credential(name):
            raise fields.source.mistake(
                (*fields.path, "spark", name),
                "it is a credential, and settings are arguments that every user of the host can read",
                "Leave it out: credentials come from the environment (AWS_PROFILE, AWS_ACCESS_KEY_ID, ...), "
                "from a role, or from Hadoop's own files.",
            )
