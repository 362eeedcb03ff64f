"""Signatures: what is not signed where there is a key, signed where there is none, a key that others read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from streambank.core.finding import Finding
from streambank.core.signing import VARIABLE, Keys
from streambank.repository.catalog import listed
from streambank.repository.signatures import FOLDER
from streambank.storage.store import Store


def check_signatures(job: str, repository: Store, keys: Keys, key_file: str | None) -> Iterator[Finding]:
    """Whether what should be signed is signed, by whether signatures are there; a verification tests them."""
    folder = f"{FOLDER}/"
    signed = {info.path.rpartition("/")[0].removeprefix(folder) for info in repository.list(f"{folder}{job}")}
    if signed and not keys:
        yield Finding(
            "signing-key-missing",
            "error",
            repository.uri,
            f"Savepoints of job {job} are signed, and this installation has no key.",
            "No savepoint can be taken or restored from here.",
            f"Name the file with the keys in {VARIABLE}.",
        )
    if not keys:
        return
    yield from _open_file(key_file)
    unsigned = [one for of, one in listed(repository, job) if f"{of}/{one}" not in signed]
    if unsigned:
        some = f"{len(unsigned)} savepoints" if unsigned[1:] else "One savepoint"
        yield Finding(
            "not-signed",
            "warning",
            repository.uri,
            f"{some} of job {job} {'are' if unsigned[1:] else 'is'} not signed, such as {max(unsigned)}.",
            "An installation that has a key, such as this one, restores none of them.",
            f"If you know where they come from: `streambank sign --all --job {job}`, which verifies each.",
        )


def _open_file(key_file: str | None) -> Iterator[Finding]:
    """A key is worth what the rights on its file are."""
    mode = Path(key_file).stat().st_mode & 0o077 if key_file is not None else 0
    if mode:
        yield Finding(
            "signing-key-open",
            "error",
            str(key_file),
            "Others on this machine may read, or write, the file with the signing keys.",
            "Who has the key can forge savepoints and records.",
            f"`chmod 600 {key_file}`; if others could log in here, replace the key: docs/howto/access.md.",
        )
