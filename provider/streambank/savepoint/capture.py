"""What a savepoint asks of each sink: how far it is, and which of its files must travel along.

The kinds of sinks live in `streambank.sinks`; a take only knows this protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from streambank.errors import ConflictError
from streambank.savepoint.manifest import Manifest
from streambank.storage.base import FileInfo, Store


@dataclass(frozen=True, slots=True)
class Captured:
    """What one sink adds to a savepoint of one batch.

    Attributes:
        record: What the manifest keeps about the sink besides its files: JSON values only.
        store: Where `files` are; None where there are none.
        files: The sink's own files that are saved, by their keys in `store`.
    """

    record: Mapping[str, Any]
    store: Store | None = None
    files: tuple[FileInfo, ...] = field(default=())


class SinkCapture(Protocol):
    """One sink of the query whose savepoint is taken."""

    @property
    def kind(self) -> str:
        """Which kind of sink: `file`, ..."""

    @property
    def path(self) -> str:
        """Where it writes, as a URI or in Spark's own words."""

    @property
    def guarded(self) -> bool:
        """Whether a restore can judge its output and take it back."""

    def capture(self, batch: int) -> Captured:
        """How far the sink is, and what has to be kept of it for a restore to `batch`.

        Raises:
            RefusedError: The sink has not got as far as `batch`: it is not the sink of this query.
            NotFoundError: The sink keeps nothing of `batch` any more.
            FormatError: What it keeps cannot be understood.
            ConflictError: It changed while it was read; the caller plans again.
        """


def require_sinks(manifest: Manifest, sinks: Iterable[SinkCapture]) -> None:
    """Make sure that a savepoint that is there already says how far these sinks are.

    Raises:
        ConflictError: It does not, of one whose output a restore can take back (code `taken-without-sink`).
    """
    known = {sink.get("path") for sink in manifest.sinks}
    for sink in sinks:
        if sink.guarded and sink.path not in known:
            raise ConflictError(
                f"Savepoint {manifest.savepoint} of batch {manifest.batch} is there already, and was taken "
                f"without the {sink.kind} sink {sink.path}: a restore could not take that back.",
                code="taken-without-sink",
                hint="Take the next batch; a batch has one savepoint.",
            )
