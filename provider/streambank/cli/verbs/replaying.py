"""Until when savepoints can be replayed, as `show` and `list --replay` ask it of Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from streambank.cli.options import brokers_of

if TYPE_CHECKING:
    from streambank.declaration.declaration import Job
    from streambank.kafka.retention import Replay
    from streambank.kafka.settings import KafkaConnection
    from streambank.repository.catalog import SavepointSummary
    from streambank.repository.manifest import Manifest
    from streambank.repository.repository import Repository

TIMEOUT_S = 3.0
"""How long each cluster is waited for, all questions about one savepoint together."""


def replays_of(
    repository: Repository, manifest: Manifest, kafka: str | None, jobs: str | None
) -> list[Replay]:
    """How long each Kafka source of a savepoint can be read again; nothing for others."""
    from streambank.core.times import utc_now
    from streambank.kafka.earlier import sources_before
    from streambank.kafka.retention import replay_of

    brokers = brokers_of(kafka, declared_kafka(manifest.job, jobs), TIMEOUT_S)
    return list(replay_of(manifest.sources, brokers, utc_now(), sources_before(repository, manifest)))


def replays(
    repository: Repository, summaries: Sequence[SavepointSummary], kafka: str | None, jobs: str | None
) -> dict[int, Replay]:
    """For each savepoint of a list, by its place there, the Kafka source that ends first."""
    from streambank.core.errors import StreambankError
    from streambank.core.times import utc_now
    from streambank.kafka.earlier import sources_before
    from streambank.kafka.retention import replay_of, shortest
    from streambank.kafka.settings import Brokers

    found: dict[int, Replay] = {}
    asked: dict[str, Brokers] = {}
    for place, summary in enumerate(summaries):
        if summary.error is not None:
            continue
        if summary.job not in asked:
            asked[summary.job] = brokers_of(kafka, declared_kafka(summary.job, jobs), TIMEOUT_S)
        try:
            manifest = repository.load(summary.job, summary.savepoint)
        except StreambankError:
            continue  # it was expired meanwhile, or is damaged, which `verify` tells
        asked[summary.job].begin()  # who did not answer at all is not waited for again
        before = sources_before(repository, manifest)
        told = shortest(list(replay_of(manifest.sources, asked[summary.job], utc_now(), before)))
        if told is not None:
            found[place] = told
    return found


def can_be_replayed(one: Replay | None) -> str:
    """In a few words, for a table; nothing where no source is Kafka."""
    from streambank.core.times import utc_now

    return "" if one is None else one.sentence(utc_now())


def declared_kafka(job: str, jobs: str | None) -> KafkaConnection | None:
    """How a jobs file says that a job's Kafka is reached; None where there is no file, or no such job."""
    found = declared_job(job, jobs)
    return None if found is None else found.kafka


def declared_job(job: str, jobs: str | None) -> Job | None:
    """What a jobs file declares of a job; None where there is no file, or no such job."""
    from streambank.declaration.declaration import load_jobs
    from streambank.storage import split_job

    return None if jobs is None else load_jobs(jobs).jobs.get(split_job(job)[0])
