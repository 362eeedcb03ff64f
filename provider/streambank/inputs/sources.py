"""Whether the input that a restored query would read next is there, and what a choice makes of that.

Kafka is asked. A query whose records are gone fails inside its first batch, when its start has already
written into the restored checkpoint; or goes on without them in silence, where `failOnDataLoss` is off. A
source that gives no row twice, such as a socket, has nothing of what comes after a savepoint. Files are
checked: Spark goes on without those that are gone, and does not say so (files.py). Where it is not known
which files were read, as after the loss of the live checkpoint, that is said and stops nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from streambank.checkpoint.sources import cannot_repeat
from streambank.core.choices import SourceChoice
from streambank.core.errors import RefusedError, StorageError, StreambankError
from streambank.core.units import utc_now
from streambank.inputs.clean_source import Cleaning, cleaning_of
from streambank.inputs.files import FilesStanding, look_at_files
from streambank.kafka.recording import sources_before
from streambank.kafka.retention import KafkaReplay, replay_of_standing
from streambank.kafka.settings import Brokers
from streambank.kafka.source import SourceStanding, look_at_source
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository


@dataclass(frozen=True, slots=True)
class Unrepeatable:
    """A source that gives no row twice; `what` is Spark's word for it."""

    source: str
    what: str

    def sentence(self) -> str:
        return (
            f"Source {self.source} ({self.what}) cannot be repeated: what it gave after the savepoint is "
            "gone, and its offsets mean nothing to a new run. Spark may refuse to go on."
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.what,
            "source": self.source,
            "repeatable": False,
            "safe": False,
            "records_to_read_again": None,
            "replay": self.replay().to_dict(),
            "says": self.sentence(),
        }

    def replay(self) -> KafkaReplay:
        return KafkaReplay(self.source, (), "gone", None, self.sentence())


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of a savepoint that can be judged, as they are now.

    Attributes:
        replays: For each, until when it can be read again; empty where that was not asked.
        files: Those that read files, where the files are missing that were read after the savepoint, or not.
    """

    kafka: tuple[SourceStanding, ...]
    replays: tuple[KafkaReplay, ...] = ()
    unrepeatable: tuple[Unrepeatable, ...] = ()
    files: tuple[FilesStanding, ...] = ()

    def refusals(self, choice: SourceChoice) -> Iterator[StreambankError]:
        """Why a restore must not go on with this choice; nothing where it may."""
        if choice != "accept":
            for one in self.unrepeatable:
                yield RefusedError(
                    one.sentence(),
                    code="source-cannot-repeat",
                    hint="--source accept restores anyway; a query that must go on reads from a source "
                    "that keeps its records, such as files or Kafka.",
                )
            for files in self.files:
                if files.changed:
                    yield RefusedError(
                        files.after(files.says_changed()),
                        code="source-files-changed",
                        hint="Bring the files back as they were; restore a newer savepoint; or use --source "
                        "accept to compute with what they hold now.",
                    )
                if files.gone:
                    yield RefusedError(
                        files.after(files.says_gone()),
                        code="source-would-lose-files",
                        hint="Bring the files back, for example from the directory that cleanSource moves "
                        "them to; restore a newer savepoint; or use --source accept to go on without their "
                        "rows. If a restore of the query that writes them has set them aside, their rows "
                        "come again in other files: --source accept is right then.",
                    )
        for standing in self.kafka:
            if choice == "accept" or standing.safe:
                continue
            if standing.not_known:
                yield _not_known(standing)
            else:
                yield RefusedError(
                    standing.sentence(),
                    code="source-would-lose-records",
                    hint="Restore a newer savepoint, or use --source accept to go on without those records; "
                    "Spark itself then also needs failOnDataLoss=false.",
                )

    def warnings(self, choice: SourceChoice) -> Iterator[str]:
        """What a person should know although it stops nothing."""
        if choice == "accept":
            yield from (one.sentence() for one in self.unrepeatable)
            yield from (one.sentence() for one in self.files if one.safe is False)
        for source in self.kafka:
            yield from source.notes()
            if choice == "accept" and not source.safe:
                yield source.sentence()
            if choice == "accept" and source.lost:
                yield "The query fails in its first batch unless its source has failOnDataLoss=false."

    def all_replays(self) -> tuple[KafkaReplay, ...]:
        files = (one.replay() for one in self.files)
        return (*self.replays, *files, *(one.replay() for one in self.unrepeatable))

    def to_dicts(self) -> list[dict[str, Any]]:
        replays = {one.source: one.to_dict() for one in self.replays}
        asked = [source.to_dict() | {"replay": replays.get(source.source)} for source in self.kafka]
        files = [one.to_dict() for one in self.files]
        return [*asked, *files, *(one.to_dict() for one in self.unrepeatable)]


def _not_known(source: SourceStanding) -> StreambankError:
    hint = f"{source.hint} Or use --source accept to restore without knowing."
    if source.transient:  # a cluster that is away for a moment is there at the next try
        return StorageError(source.sentence(), code="source-not-known", hint=hint)
    return RefusedError(source.sentence(), code="source-not-known", hint=hint)


def look_at_sources(
    repository: Repository,
    manifest: Manifest,
    brokers: Brokers,
    live: str | None = None,
    *,
    application: str = "",
    patience_s: float | None = None,
) -> Sources:
    """Compare each Kafka source of a savepoint with its topics, and name what cannot be repeated. Reads only.

    Args:
        live: The location of the checkpoint in which the query has gone on, whose log names the files that
            were read since; None leaves it unread.
    """
    inspected = list(_look(repository, manifest, brokers))
    now = utc_now()
    replays = [replay_of_standing(standing, record, brokers, now) for record, standing in inspected]
    unrepeatable = [
        Unrepeatable(str(record.get("source")), what)
        for record in manifest.sources
        if isinstance(record, Mapping) and (what := cannot_repeat(record)) is not None
    ]
    cleaning = cleaning_of(application) if application else None
    files = _files(repository, manifest, live, cleaning, patience_s)
    return Sources(tuple(standing for _, standing in inspected), tuple(replays), tuple(unrepeatable), files)


def _files(
    repository: Repository,
    manifest: Manifest,
    live: str | None,
    cleaning: Cleaning | None = None,
    patience_s: float | None = None,
) -> tuple[FilesStanding, ...]:
    if live is None:
        return ()
    named = (manifest.checkpoint, repository.store.uri)
    return look_at_files(manifest, live, named, cleaning=cleaning, patience_s=patience_s)


def check_still_there(
    repository: Repository,
    manifest: Manifest,
    brokers: Brokers,
    choice: SourceChoice,
    live: str | None = None,
) -> None:
    """Ask once more, right before the restored directory becomes a checkpoint.

    Files may have been written for hours since the first look; topics go on letting records go, and a query
    that runs on may clean its source.

    Raises:
        RefusedError: Kafka has not all of the input any more (code `source-would-lose-records`), or files are
            gone (`source-would-lose-files`).
        StorageError: It does not answer now (code `source-not-known`).
    """
    if choice == "accept":
        return
    brokers.begin(afresh=True)
    kafka = tuple(standing for _, standing in _look(repository, manifest, brokers))
    found = Sources(kafka, files=_files(repository, manifest, live))
    for refusal in found.refusals(choice):
        raise refusal


def _look(
    repository: Repository, manifest: Manifest, brokers: Brokers
) -> Iterator[tuple[Mapping[str, Any], SourceStanding]]:
    before = sources_before(repository, manifest)
    for record in manifest.sources:
        if not isinstance(record, Mapping):
            continue
        standing = look_at_source(record, brokers, before.get(str(record.get("source"))))
        if standing is not None:
            yield record, standing
