"""Kafka topics, which can be judged and not be taken back: what speaks against a restore, and what warns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from streambank.core.choices import RestoreMode, SinkChoice
from streambank.core.errors import RefusedError, StorageError, StreambankError
from streambank.kafka.sink import KafkaSinkStanding
from streambank.recovery.sinks.reached import Reached

_ACCEPT = (
    "--sink accept goes on, and readers of the topic have to drop what comes twice (by key, or by an id in "
    "the value); or let the application write to a new topic."
)


def kafka_refusals(
    sinks: Iterable[KafkaSinkStanding], choice: SinkChoice, mode: RestoreMode, reached: Reached | None = None
) -> Iterator[StreambankError]:
    """Why a restore must not go on with this choice.

    A sink of which Kafka can never tell, since the savepoint does not, is like any other that is not guarded:
    it stops the restore where the query has gone on since. A fork is another query: what it writes is a
    warning.
    """
    for sink in sinks:
        if mode == "fork" or choice == "accept" or sink.safe:
            continue
        if sink.never_known:
            if reached is not None and reached.beyond(sink.batch) is not False:
                yield RefusedError(
                    f"{sink.sentence()} {reached.sentence(sink.batch)}.",
                    code="sink-not-guarded",
                    hint=_ACCEPT,
                )
        elif choice == "rollback":
            yield RefusedError(
                sink.sentence(),
                code="sink-cannot-roll-back",
                hint=f"A Kafka topic cannot be rolled back. {_ACCEPT}",
            )
        elif sink.not_known:
            yield _not_known(sink)
        elif sink.gone:
            yield RefusedError(
                sink.sentence(),
                code="sink-would-lose-rows",
                hint="Restore a savepoint from before those rows, or use --sink accept to go on without "
                "them.",
            )
        else:
            yield RefusedError(sink.sentence(), code="sink-would-repeat-rows", hint=_ACCEPT)


def _not_known(sink: KafkaSinkStanding) -> StreambankError:
    hint = f"{sink.hint} Or use --sink accept."
    if sink.transient:  # a cluster that is away for a moment is there at the next try
        return StorageError(sink.sentence(), code="sink-not-known", hint=hint)
    return RefusedError(sink.sentence(), code="sink-not-known", hint=hint)


def kafka_warnings(sinks: Iterable[KafkaSinkStanding], mode: RestoreMode) -> Iterator[str]:
    """What a person should know of sinks that stop nothing."""
    for sink in sinks:
        if said := sink.sentence():
            yield said
        if mode == "fork":
            yield (
                f"The fork writes into the topic of the query that it is forked from ({sink.path}), unless "
                "its application is configured otherwise: readers would get everything twice."
            )
