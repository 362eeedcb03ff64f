"""Files of a savepoint whose version no Spark from 3.5 to 4.3 reads: taken before a take refused them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from streambank.checkpoint.grammar import Kind, classify
from streambank.checkpoint.operators import parse_operator_metadata, require_schemas
from streambank.checkpoint.sources import check_initial_offsets
from streambank.core.errors import FormatError
from streambank.repository.manifest import FileEntry
from streambank.repository.repository import Repository

_MAX_BYTES = 1 << 20
"""A larger file is none of these."""


def unknown_versions(
    repository: Repository, entries: Iterable[FileEntry]
) -> Iterator[tuple[str, FormatError]]:
    """Paths of such files, whose objects are whole, each with what is wrong; few small objects are read."""
    checks: dict[str, tuple[str, Callable[[bytes, str], None]]] = {}
    for entry in entries:
        check = _check_of(entry)
        if check is not None:
            checks[entry.path] = (entry.digest, check)
    digests = {digest for digest, _ in checks.values()}
    read = {digest: data for digest, data in repository.objects.read_many(digests) if isinstance(data, bytes)}
    for path, (digest, check) in checks.items():
        if digest not in read:
            continue  # it is damaged, which others say
        try:
            check(read[digest], path)
        except FormatError as error:
            if error.code == "unknown-version":
                yield path, error


def _check_of(entry: FileEntry) -> Callable[[bytes, str], None] | None:
    part = classify(entry.path)
    if entry.size_bytes > _MAX_BYTES:
        return None
    if part.kind is Kind.OPERATOR_V2:
        return _check_operator
    if part.kind is Kind.SOURCE_LOG and part.batch == 0 and not part.compact:
        return check_initial_offsets
    return None


def _check_operator(data: bytes, path: str) -> None:
    require_schemas(parse_operator_metadata(data, path), path)
