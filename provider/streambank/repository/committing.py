"""The last look before a savepoint is listed: every object that it names is there, and there to stay."""

from __future__ import annotations

from typing import Protocol

from streambank.core.errors import ConflictError, IntegrityError
from streambank.repository.manifest import Manifest
from streambank.repository.objects.objects import Objects
from streambank.repository.trash import COMMIT_WINDOW_S, MIN_GRACE_S, boot_clock_s

_LOOKS = 4


class HasObjects(Protocol):
    """What is asked: a repository."""

    @property
    def objects(self) -> Objects:
        """Its objects."""


def check_lasting(repository: HasObjects, manifest: Manifest) -> float:
    """Make sure that a manifest may be listed now.

    That every object is there may take long to find out, so the condemned files are looked at twice: before,
    as nothing that was not condemned then is deleted within `MIN_GRACE_S`, and once more at the end.

    Returns:
        When the last look began, by `boot_clock_s`; list the manifest within `COMMIT_WINDOW_S` of it.

    Raises:
        IntegrityError: An object is not there (code `object-missing`).
        ConflictError: One was condemned (code `objects-condemned`), or looking took too long
            (`commit-too-slow`).
    """
    objects = manifest.objects()
    for _ in range(_LOOKS):
        began_s = boot_clock_s()
        repository.objects.look_again()
        missing = repository.objects.missing(objects)
        looked_s = boot_clock_s()
        condemned = repository.objects.condemned(objects, refresh=True)
        if condemned:
            raise ConflictError(
                f"The savepoint {manifest.savepoint} of {manifest.job} counts on {len(condemned)} objects "
                "that a sweep has condemned meanwhile.",
                code="objects-condemned",
                hint="Take it again: they are stored again then.",
            )
        if missing:
            raise IntegrityError(
                f"The savepoint {manifest.savepoint} of {manifest.job} names objects that the repository "
                f"does not hold: {len(missing)} of them, such as {min(missing)}.",
                code="object-missing",
                hint="Nothing was listed. Take it again.",
            )
        now_s = boot_clock_s()
        if now_s - looked_s < COMMIT_WINDOW_S / 2 and now_s - began_s < MIN_GRACE_S:
            return looked_s
    raise ConflictError(
        f"Looking whether all objects of the savepoint {manifest.savepoint} of {manifest.job} are there "
        f"always took more than {MIN_GRACE_S / 60:.0f} minutes, in which a sweep may delete some.",
        code="commit-too-slow",
        hint="Nothing was listed. Try again when the storage answers faster.",
    )
