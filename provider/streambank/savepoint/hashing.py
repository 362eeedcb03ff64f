"""Reading objects through to see whether they are what was stored; whoever looks for damage uses this."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from streambank.errors import FormatError, IntegrityError
from streambank.savepoint.packs import SMALL_BYTES
from streambank.savepoint.progress import Meter
from streambank.savepoint.rate import UNLIMITED, RateLimit
from streambank.savepoint.repository import Repository
from streambank.savepoint.threads import each


def damaged_objects(
    repository: Repository,
    objects: Mapping[str, int],
    *,
    parallel: int = 1,
    rate: RateLimit = UNLIMITED,
    meter: Meter | None = None,
) -> Iterator[tuple[str, IntegrityError | FormatError]]:
    """Objects that are not what was stored, found by reading all of them.

    Args:
        repository: Where they are.
        objects: Digest and size of each.
        parallel: How many large ones are read at once.
        rate: How fast they may be read.
        meter: Told about each one that is done with.
    """

    def read(digest: str) -> IntegrityError | FormatError | None:
        try:
            repository.hash_object(digest, rate.spend)
        except (IntegrityError, FormatError) as error:
            return error
        return None

    def done(digest: str) -> None:
        if meter is not None:
            meter.add(1, objects[digest])

    small = [digest for digest, size_bytes in objects.items() if size_bytes <= SMALL_BYTES]
    for digest, data in repository.read_objects(small):
        rate.spend(objects[digest])
        done(digest)
        if isinstance(data, IntegrityError):
            yield digest, data
    large = [digest for digest, size_bytes in objects.items() if size_bytes > SMALL_BYTES]
    for digest, error in zip(large, each(read, large, parallel), strict=True):
        done(digest)
        if error is not None:
            yield digest, error
