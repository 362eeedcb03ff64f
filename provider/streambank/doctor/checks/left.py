"""Findings on directories that work on a job has left behind: none is an error, all take space."""

from __future__ import annotations

from collections.abc import Iterator

from streambank.cleaning.left_directory import Kind, LeftDirectories, LeftDirectory, what_to_do
from streambank.core.finding import Finding
from streambank.core.units import say_bytes, say_count, to_json_time
from streambank.doctor.subject import CheckResult, SkippedCheck

KINDS: dict[Kind, str] = {
    "generation": "an earlier generation of the checkpoint",
    "unfinished-restore": "a restore that was not finished",
    "restored": "a copy that a restore made",
    "quarantine": "a quarantine of files that a compaction moved",
    "output-aside": "output that a rollback set aside",
    "staging": "state that was laid out for Spark",
    "drill": "the copy of a drill that was killed",
}
"""What each is, for people."""


def check_left(left: LeftDirectories) -> Iterator[CheckResult]:
    """One finding for each directory, with its bytes and what to do."""
    for directory in left.directories:
        since = f", left since {to_json_time(directory.since)}" if directory.since else ""
        needless = "" if directory.needed_by else " Nothing needs it."
        yield Finding(
            "left-directory",
            "info",
            directory.location,
            f"This is {KINDS[directory.kind]}{since}: {size_of(directory)}.{needless}",
            "It takes space, and may hold rows of a key that was erased elsewhere.",
            what_to_do(directory),
        )
    for location, why in left.unread:
        yield SkippedCheck(f"directories left behind at {location}", why, "Make it readable, and ask again.")


def size_of(one: LeftDirectory) -> str:
    """Its size for people."""
    return f"{say_count(one.files, 'file')}, {say_bytes(one.bytes)}{'' if one.counted else ' or more'}"
