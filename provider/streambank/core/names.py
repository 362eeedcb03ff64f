"""Names of jobs, queries and savepoints, and the query that a name means.

Names come from manifests, directory listings and command lines, all of which may be hostile. They are checked
here, so that none can climb out of a root, break a line or a message, or mean something to another system.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from streambank.core.errors import InputError

LEDGER = "streambank_batches"
"""The table of a ledger of batches, where no other name is declared."""
MAIN = "main"
"""What the only query of a job is called; a job that declares queries may call none of them so."""

PRIMARY = "primary"
STANDBY = "standby"
SITES = (PRIMARY, STANDBY)
SEPARATOR = "@"
"""Between the name of a job and that of a site, where a site is meant: `orders@standby`."""

ASKER = "asker"
"""The field of `by` that says which task asks, and in which round of its tries, after the last blank: a try
finds what the try before it has done; in a later round a person asks once more."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def other_of(site: str) -> str:
    """The other one of the two sites."""
    return STANDBY if site == PRIMARY else PRIMARY


def check_name(name: str, what: str) -> str:
    """The same name, if it may name a job, a query or a savepoint.

    Raises:
        InputError: It may not (code `bad-name`).
    """
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} cannot be the name of a {what}.",
            code="bad-name",
            hint="Names are at most 100 letters, digits, '.', '_' and '-', starting with a letter or digit.",
        )
    return name


def check_job_name(name: str) -> str:
    """The same name, if a job may have it.

    Raises:
        InputError: It may not (code `bad-name`).
    """
    try:
        return check_name(name, "job")
    except InputError as error:
        job, at, which = name.partition("@")
        if not at:
            raise
        raise InputError(
            f"{error.message.rstrip('.')} that savepoints and records are found by.",
            code=error.code,
            hint=f"Here the job on a copy is named {job}-{which}, and a job at one of its sites {job}. "
            "A refresh makes a copy from savepoints of the job itself.",
        ) from error


@dataclass(frozen=True, slots=True)
class QueryRef:
    """A job, or one query of it; as text `job`, or `job/query`: how savepoints and records call it."""

    job: str
    query: str | None = None

    @classmethod
    def parse(cls, text: str) -> QueryRef:
        """Read `job` or `job/query`; as text it is the same again.

        Raises:
            InputError: One of the names is not allowed (code `bad-name`).
        """
        job, slash, query = text.partition("/")
        return cls(check_job_name(job), check_name(query, "query") if slash else None)

    @classmethod
    def of(cls, job: str, query: str | None) -> QueryRef:
        """The query of this name, `main` or None for a job's only one."""
        return cls(job, None if query == MAIN else query)

    def __str__(self) -> str:
        return self.job if self.query is None else f"{self.job}/{self.query}"

    @property
    def name(self) -> str:
        """The query's name among the job's records: `main` where the job alone is named."""
        return self.query or MAIN


def is_same_task(asker: str, before: str) -> bool:
    """Whether two askers (`ASKER`) are one task, be it in another round of its tries."""
    return asker.rpartition(" ")[0] == before.rpartition(" ")[0]
