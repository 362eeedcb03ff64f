"""Checkpoints and repositories lie apart: nothing of ours is ever written into a live checkpoint."""

from __future__ import annotations

from streambank.errors import InputError
from streambank.savepoint.header import HEADER_KEY
from streambank.storage.base import Store
from streambank.storage.locations import is_inside


def check_apart(repository: Store, checkpoint: str) -> None:
    """Make sure that no new repository is made inside the checkpoint whose savepoints are to go there.

    It would be written into the live checkpoint, and be lost with it. One that is there already goes on
    being used: savepoints in a bad place are better than none.

    Raises:
        InputError: It would lie inside (code `inside-checkpoint`).
    """
    if is_inside(repository.uri, checkpoint) and not repository.exists(HEADER_KEY):
        raise InputError(
            f"The repository {repository.uri} would lie in the checkpoint {checkpoint}.",
            code="inside-checkpoint",
            hint="Name a directory elsewhere, best on another disk, or it is lost with the checkpoint.",
        )


def check_target_apart(target: str, repository: str, checkpoint: str) -> None:
    """Make sure that a restore writes neither into the repository nor into the checkpoint that was saved.

    Raises:
        InputError: It would (codes `inside-repository`, `inside-checkpoint`).
    """
    if is_inside(target, repository):
        raise InputError(
            f"{target} lies in the repository {repository}.",
            code="inside-repository",
            hint="Restore into a directory elsewhere: what is in a repository belongs to it alone.",
        )
    # What a manifest says is a text, which need not be a location of this machine.
    if checkpoint and target.startswith(checkpoint.rstrip("/") + "/"):
        raise InputError(
            f"{target} lies in the checkpoint {checkpoint} that was saved.",
            code="inside-checkpoint",
            hint="Restore into a directory beside it: nothing is ever written into a live checkpoint.",
        )
