"""The verbs `sign` and `key`: savepoints that a writer of the repository cannot forge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from streambank.cli.options import JobOption, RepositoryOption, Unsigned, open_repository
from streambank.cli.output import console
from streambank.core.errors import InputError
from streambank.core.options import Option


def sign(
    repository: RepositoryOption,
    savepoint: Annotated[
        str | None,
        Option("A savepoint's id, or its unique beginning.", metavar="[SAVEPOINT]", positional=True),
    ] = None,
    everything: Annotated[bool, Option("Sign every savepoint (of the job).", flag="--all")] = False,
    unsigned: Unsigned = False,
    job: JobOption = None,
) -> None:
    """Sign savepoints that were taken without a key, each once every byte of it was verified.

    It says that you know where they come from: a forged one that is whole is signed as well.
    """
    from streambank.savepoint.sign import sign_savepoint

    if everything == (savepoint is not None):
        raise InputError(
            "Name one savepoint, or give --all.", code="usage", hint="See `streambank sign --help`."
        )
    opened = open_repository(repository)
    if savepoint is not None:
        which = [opened.find(savepoint, job)]
    else:
        which = [(one.job, one.savepoint) for one in opened.manifests(job)]
    done: list[dict[str, Any]] = []
    with console.progress() as progress:
        for name, one in which:
            done.append(sign_savepoint(opened, name, one, unsigned=unsigned, progress=progress).to_dict())

    def text() -> None:
        for one in done:
            console.line(f"{one['job']} {one['savepoint']}: {one['says']}")

    console.answer(done, text)
    if any(not one["signed"] for one in done):
        raise typer.Exit(1)


def key(
    file: Annotated[Path, Option("The file to make; it must not be there.", metavar="FILE", positional=True)],
) -> None:
    """Make a file with a new signing key, which only you may read."""
    from streambank.core.signing import VARIABLE, new_key

    made = new_key(file)
    document = {"file": str(file.absolute()), "key": made.id}

    def text() -> None:
        console.line(f"{file} holds the key {made.id}. Name it in {VARIABLE} wherever savepoints are taken")
        console.line("or restored. Keep a copy elsewhere: without it no signed savepoint can be restored.")

    console.answer(document, text)


VERBS = {
    "sign": (sign, "Example: streambank sign --all -r /data/savepoints"),
    "key": (key, "Example: streambank key /etc/streambank/signing-keys"),
}
