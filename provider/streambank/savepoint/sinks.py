"""What a savepoint asks of each sink: how far it is, and which of its files must travel along.

The kinds of sinks live in `streambank.sinks`; a take only knows this protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from streambank.checkpoint.sources import SourceState
from streambank.core.errors import ConflictError
from streambank.repository.manifest import Manifest
from streambank.storage import same_place
from streambank.storage.store import FileInfo, Store

MISSING = "missing"
"""Field of a file sink in a manifest: data files that were gone when the savepoint was taken."""


@dataclass(frozen=True, slots=True)
class Captured:
    """What one sink adds to a savepoint of one batch.

    Attributes:
        record: What the manifest keeps about the sink besides its files: JSON values only.
        store: Where `files` are; None where there are none.
        files: The sink's own files that are saved, by their keys in `store`.
        warning: What a restore will not be able to do about the sink; empty where there is nothing to say.
        later: Gives more fields of the record. It may be slow, so it is asked when the files are ours, and
            compared with the plan.
    """

    record: Mapping[str, Any]
    store: Store | None = None
    files: tuple[FileInfo, ...] = field(default=())
    warning: str = ""
    later: Callable[[], Mapping[str, Any]] | None = None

    def complete(self) -> Captured:
        more = {} if self.later is None else self.later()
        return replace(self, record={**self.record, **more}, later=None)


class SinkCapture(Protocol):
    """One sink of the query whose savepoint is taken."""

    @property
    def kind(self) -> str:
        """Which kind of sink: `file`, ..."""

    @property
    def path(self) -> str:
        """Where it writes, as a URI or in Spark's own words."""

    @property
    def keeps_files(self) -> bool:
        """Whether files of its own travel with a savepoint: it is asked before files are copied, then."""

    def capture(self, batch: int) -> Captured:
        """How far the sink is, and what has to be kept of it for a restore to `batch`.

        Raises:
            RefusedError: The sink has not got as far as `batch`: it is not the sink of this query.
            NotFoundError: The sink keeps nothing of `batch` any more.
            FormatError: What it keeps cannot be understood.
            ConflictError: It changed while it was read; the caller plans again.
        """


class SourceCapture(Protocol):
    """What is asked of the query's sources besides what the checkpoint says of them."""

    def describe(self, source: SourceState) -> Mapping[str, Any]:
        """Fields that the manifest keeps beside a source's own; JSON values only. Never raises."""


def capture_files(sinks: Iterable[SinkCapture], batch: int) -> list[Captured]:
    """What each sink adds to the plan of a savepoint; nothing yet of those without files."""
    return [sink.capture(batch) if sink.keeps_files else Captured({}) for sink in sinks]


def capture_rest(
    sinks: Iterable[SinkCapture], captured: Iterable[Captured], batch: int
) -> tuple[Captured, ...]:
    """The same with what the others say, who may be slow to answer."""
    both = zip(sinks, captured, strict=True)
    return tuple(known if sink.keeps_files else sink.capture(batch) for sink, known in both)


def described(source: SourceState, capture: SourceCapture | None, origin: Manifest | None) -> dict[str, Any]:
    """A source as the manifest keeps it; the rest is asked, or known of a savepoint of the same batch."""
    own = asdict(source)
    for one in origin.sources if origin is not None else ():
        if isinstance(one, Mapping) and all(one.get(name) == own[name] for name in ("source", "offset")):
            return {**one, **own}
    return {**(capture.describe(source) if capture is not None else {}), **own}


def require_sinks(manifest: Manifest, sinks: Iterable[SinkCapture]) -> None:
    """Make sure that a savepoint that is there already says how far these sinks are.

    Raises:
        ConflictError: It does not, of one whose output a restore can take back (code `taken-without-sink`).
    """
    known = {str(sink.get("path")) for sink in manifest.sinks}
    for sink in sinks:
        if sink.keeps_files and not any(same_place(sink.path, one) for one in known):
            raise ConflictError(
                f"Savepoint {manifest.savepoint} of batch {manifest.batch} exists already, and was taken "
                f"without the {sink.kind} sink {sink.path}: a restore could not roll that sink back.",
                code="taken-without-sink",
                hint="Take the next batch; a batch has one savepoint.",
            )
