"""Whether Kafka still has what a restored query would read next, and what a choice makes of that.

Only Kafka is asked. A query whose records are gone fails inside its first batch, when its start has already
written into the restored checkpoint; or goes on without them in silence, where `failOnDataLoss` is off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from streambank.errors import RefusedError
from streambank.kafka.connection import Brokers
from streambank.kafka.source_standing import SourceStanding, look_at_source
from streambank.recovery.choices import SourceChoice
from streambank.savepoint.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Sources:
    """The Kafka sources of a savepoint as they are now."""

    kafka: tuple[SourceStanding, ...]

    def refusals(self, choice: SourceChoice) -> Iterator[RefusedError]:
        """Why a restore must not go on with this choice; nothing where it may."""
        for source in self.kafka:
            if choice == "accept" or source.safe:
                continue
            if source.not_known:
                yield RefusedError(
                    source.sentence(),
                    code="source-not-known",
                    hint=f"{source.hint} Or say --source accept to restore without knowing.",
                )
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
        return [source.to_dict() for source in self.kafka]


def look_at_sources(manifest: Manifest, brokers: Brokers) -> Sources:
    """Compare each Kafka source of a savepoint with its topics. Reads only.

    Args:
        manifest: The savepoint.
        brokers: Who is asked.
    """
    found = (look_at_source(one, brokers) for one in manifest.sources if isinstance(one, Mapping))
    return Sources(tuple(one for one in found if one is not None))
