"""Whether Kafka still has what a restored query would read next, and what a choice makes of that.

Only Kafka is asked. A query whose records are gone fails inside its first batch, when its start has already
written into the restored checkpoint; or goes on without them in silence, where `failOnDataLoss` is off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from streambank.errors import RefusedError, StorageError, StreambankError
from streambank.kafka.connection import Brokers
from streambank.kafka.earlier import sources_before
from streambank.kafka.replay import Replay, replay_of_standing
from streambank.kafka.source_standing import SourceStanding, look_at_source
from streambank.recovery.choices import SourceChoice
from streambank.savepoint.manifest import Manifest
from streambank.savepoint.repository import Repository
from streambank.times import utc_now


@dataclass(frozen=True, slots=True)
class Sources:
    """The Kafka sources of a savepoint as they are now.

    Attributes:
        kafka: How each compares with its topics.
        replays: For each, until when it can be read again; empty where that was not asked.
    """

    kafka: tuple[SourceStanding, ...]
    replays: tuple[Replay, ...] = ()

    def refusals(self, choice: SourceChoice) -> Iterator[StreambankError]:
        """Why a restore must not go on with this choice; nothing where it may."""
        for source in self.kafka:
            if choice == "accept" or source.safe:
                continue
            if source.not_known:
                yield _not_known(source)
            else:
                yield RefusedError(
                    source.sentence(),
                    code="source-would-lose-records",
                    hint="Restore a newer savepoint, or say --source accept to go on without those records; "
                    "Spark itself then also needs failOnDataLoss=false.",
                )

    def warnings(self, choice: SourceChoice) -> Iterator[str]:
        """What a person should know although it stops nothing."""
        for source in self.kafka:
            yield from source.notes()
            if choice == "accept" and not source.safe:
                yield source.sentence()
            if choice == "accept" and source.lost:
                yield "The query fails in its first batch unless its source has failOnDataLoss=false."

    def to_dicts(self) -> list[dict[str, Any]]:
        """Each source as JSON, for plans and reports."""
        replays = {one.source: one.to_dict() for one in self.replays}
        return [source.to_dict() | {"replay": replays.get(source.source)} for source in self.kafka]


def _not_known(source: SourceStanding) -> StreambankError:
    hint = f"{source.hint} Or say --source accept to restore without knowing."
    if source.transient:  # a cluster that is away for a moment is there at the next try
        return StorageError(source.sentence(), code="source-not-known", hint=hint)
    return RefusedError(source.sentence(), code="source-not-known", hint=hint)


def look_at_sources(repository: Repository, manifest: Manifest, brokers: Brokers) -> Sources:
    """Compare each Kafka source of a savepoint with its topics. Reads only.

    Args:
        repository: Where the savepoint is, and those before it.
        manifest: The savepoint.
        brokers: Who is asked.
    """
    looked = list(_look(repository, manifest, brokers))
    now = utc_now()
    replays = [replay_of_standing(standing, record, brokers, now) for record, standing in looked]
    return Sources(tuple(standing for _, standing in looked), tuple(replays))


def check_still_there(
    repository: Repository, manifest: Manifest, brokers: Brokers, choice: SourceChoice
) -> None:
    """Ask once more, right before the restored directory becomes a checkpoint.

    Files may have been written for hours since the first look, and topics go on letting records go.

    Args:
        repository: Where the savepoint is.
        manifest: The savepoint.
        brokers: Who is asked; whoever did not answer before is asked again.
        choice: What was chosen for Kafka sources.

    Raises:
        RefusedError: Kafka has not all of the input any more (code `source-would-lose-records`).
        StorageError: It does not answer now (code `source-not-known`).
    """
    if choice == "accept":
        return
    brokers.begin(afresh=True)
    found = Sources(tuple(standing for _, standing in _look(repository, manifest, brokers)))
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
