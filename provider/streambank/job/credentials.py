"""Credentials have no place among Spark's settings: they are arguments, which every user can read."""

from __future__ import annotations

import re
from collections.abc import Iterable

from streambank.job.fields import Fields

_CREDENTIAL = re.compile(
    r"\bfs\.s3a\.(bucket\..+\.)?(access\.key|secret\.key|session\.token|encryption\.key)$"
    r"|\bfs\.azure\.account\.(key|oauth2\.client\.secret)\b"
    r"|^spark\.kubernetes\.authenticate\.(.+\.)?oauthToken$|^spark\.authenticate\.secret$"
)


def is_credential(setting: str) -> bool:
    """Whether a setting of this name holds a credential."""
    return _CREDENTIAL.search(setting) is not None


def refuse_credentials(settings: Iterable[str], fields: Fields) -> None:
    """Refuse a job whose `spark` table holds a credential of Hadoop's filesystems, Kubernetes or Spark.

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
