"""Whether a query could change to another release of Spark: what that one would not go on with."""

from __future__ import annotations

from collections.abc import Iterator

from streambank.core.errors import InputError
from streambank.core.finding import Finding
from streambank.doctor.subject import CheckResult, Query
from streambank.driver.other_release import obstacles, settings_of, writer_of
from streambank.driver.spark_releases import FOR_JOBS, listed, release_of


def version_asked(text: str) -> str:
    """The version that somebody asks about: `4.3` is any of that release.

    Raises:
        InputError: Jobs do not run on it (code `bad-choice`).
    """
    version = text if text.count(".") > 1 else f"{text}.0"
    if release_of(version) is None:
        raise InputError(
            f"Streambank does not run jobs on Spark {text}.",
            code="bad-choice",
            hint=f"Ask about Spark {listed(FOR_JOBS)}.",
        )
    return version


def check_release(query: Query, version: str) -> Iterator[CheckResult]:
    """What a Spark would not go on with."""
    if query.closure is None:
        return
    written_by = writer_of(query.control, query.query) if query.control is not None else None
    if written_by is None and query.savepoints:
        written_by = query.savepoints[0].spark_version
    release = release_of(version)
    name = version if release is None else release.name
    found = obstacles(query.closure, version, written_by, settings_of(query.job) if query.job else {})
    if found:
        yield Finding(
            "checkpoint-of-another-spark",
            "error",
            "",
            f"Spark {name} cannot go on with this checkpoint: {'; '.join(found)}.",
            "A start on it is refused, and so is a restart.",
            "Stay on the release that wrote it, or do what is named. A savepoint from before the job "
            "changed to that one can be restored.",
        )
        return
    what = "this checkpoint" if written_by is None else f"what Spark {written_by} wrote"
    yield Finding(
        "release-fits",
        "info",
        "",
        f"Nothing in {what} is in a format that Spark {name} does not read.",
        "The query can go on there. Only its checkpoint was checked, not its application.",
        "Take a savepoint first, so that there is a way back.",
    )
