"""What a take gives back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streambank.checkpoint.sources import cannot_repeat
from streambank.repository.manifest import Manifest
from streambank.savepoint.sinks import Captured


@dataclass(frozen=True, slots=True)
class TakeResult:
    """What a take gave.

    Attributes:
        savepoint: Its id.
        job: `job` or `job/query`.
        batch: The committed batch it is of.
        files: How many files it has, sinks' included.
        bytes: Their size.
        new_bytes: Bytes that were added to the repository.
        new_files: Files that had to be read.
        seconds: How long it took.
        replans: How often it had to plan again, because the query moved on.
        already_there: The savepoint of this batch was there before, or another take made it meanwhile.
        warnings: What it does not hold, and a restore will miss.
    """

    savepoint: str
    job: str
    batch: int
    files: int
    bytes: int
    new_bytes: int
    new_files: int
    seconds: float
    replans: int
    already_there: bool
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON."""
        return {
            "savepoint": self.savepoint,
            "job": self.job,
            "batch": self.batch,
            "files": self.files,
            "bytes": self.bytes,
            "new_bytes": self.new_bytes,
            "new_files": self.new_files,
            "seconds": round(self.seconds, 3),
            "replans": self.replans,
            "already_there": self.already_there,
            "warnings": list(self.warnings),
        }


def first_said(manifest: Manifest, captured: Sequence[Captured], before: Manifest | None) -> Iterator[str]:
    """What a restore will not be able to do about sinks and sources, unless the savepoint before said it.

    Args:
        manifest: The savepoint.
        captured: What its sinks gave.
        before: The job's savepoint before it, of the same checkpoint; None for none.
    """
    known = {sink.get("kind") for sink in before.sinks} if before is not None else set()
    yield from (sink.warning for sink in captured if sink.warning and sink.record.get("kind") not in known)
    said = set(_unrepeatable(before)) if before is not None else set()
    for name, what in _unrepeatable(manifest):
        if (name, what) not in said:
            yield (
                f"Source {name} ({what}) cannot be repeated: it gives no row twice, so a query cannot go on "
                "from this savepoint without losing rows, or at all. A restore needs --source accept."
            )


def _unrepeatable(manifest: Manifest) -> Iterator[tuple[str, str]]:
    for source in manifest.sources:
        if isinstance(source, Mapping) and (what := cannot_repeat(source)) is not None:
            yield str(source.get("source")), what


def not_asked(manifest: Manifest) -> tuple[str, ...]:
    """What sources and sinks would have had to be asked when a savepoint was taken, and could not be.

    Not that rows of a sink name their topics themselves: that can never be asked.
    """
    found = []
    for source in manifest.sources:
        told = source.get("kafka") if isinstance(source, Mapping) else None
        if isinstance(told, Mapping) and told.get("not_asked"):
            names = ", ".join(told.get("topics") or ())
            found.append(
                f"Kafka could not be asked about source {source.get('source')} ({names}): "
                f"{str(told['not_asked']).rstrip('.')}. The savepoint has no topic ids, so a restore cannot "
                "tell a topic that was made anew."
            )
    found += [
        f"The sink {sink.get('path')} could not be asked how far it is: {str(sink['not_asked']).rstrip('.')}."
        for sink in manifest.sinks
        if sink.get("not_asked") and sink.get("topics")
    ]
    return tuple(found)
