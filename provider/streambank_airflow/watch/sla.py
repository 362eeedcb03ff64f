"""What is judged by its SLA, as the operator, the sensor and the triggers look at it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from streambank.control.control import JobControl
from streambank.core.errors import InputError
from streambank.core.names import QueryRef
from streambank.core.shape import HIDDEN
from streambank.declaration.declaration import Job
from streambank.sla.ages import Ages, ages_of_job
from streambank.sla.assess import Assessment, assess_checkpoint, assess_job
from streambank.sla.objectives import HISTORY
from streambank.sla.verdict import LEVELS, Level, Verdict
from streambank.storage import S3Access, open_store, using_s3
from streambank_airflow.watch.event_time import UNMANAGED
from streambank_airflow.watch.job import JobView, JobWatcher

if TYPE_CHECKING:
    from streambank_airflow.connections.settings import Settings

SKEWS = frozenset({"partition_skew", "hot_key"})
"""Objectives for which the files of the state have to be looked at."""


@dataclass(frozen=True, slots=True)
class SlaSubject:
    """A declared job, one query of it, or a query of which only the checkpoint is known.

    Attributes:
        ref: `job` or `job/query`, as it was asked for.
        job: Its declaration; None for a checkpoint.
        query: The query that is meant; None for all.
        access: How S3 is reached; None for what the process's own settings say.
        checkpoint: The directory of a query that is not declared.
        repository: Where its savepoints are; None where that is not known.
    """

    ref: str
    job: Job | None = None
    query: str | None = None
    access: S3Access | None = None
    checkpoint: str | None = None
    repository: str | None = None

    @classmethod
    def of_checkpoint(cls, name: str, checkpoint: str, settings: Settings) -> SlaSubject:
        """A query that no jobs file declares.

        Raises:
            InputError: The name is not allowed (code `bad-name`).
        """
        QueryRef.parse(name)
        return cls(name, access=settings.s3, checkpoint=checkpoint, repository=settings.repository)

    def assess(self, *, skew: bool = True) -> Assessment:
        """Its verdicts now.

        Args:
            skew: Look at the files of its state, too.
        """
        with using_s3(self.access):
            if self.job is not None:
                return assess_job(self.job, query=self.query, skew=skew)
            return assess_checkpoint(
                self.checkpoint or "", repository=self.repository, name=self.ref, skew=skew
            )

    def ages(self) -> Ages | None:
        """How old its savepoints and drills are; None for a query that is not declared."""
        if self.job is None:
            return None
        with using_s3(self.access):
            return ages_of_job(self.job, query=self.query)

    def records(self) -> JobControl:
        """Where it is kept what was told of it.

        Raises:
            InputError: Nobody names a place (code `no-repository-named`).
        """
        with using_s3(self.access):
            if self.job is not None:
                return self.job.records()
            if self.repository is None:
                raise InputError(
                    f"There is no location to record the alerts about {self.ref}.",
                    code="no-repository-named",
                    hint="Fill in the field Repository of the connection, or declare the job.",
                )
            return JobControl.of_repository(open_store(self.repository), QueryRef.parse(self.ref).job)

    def concerns(self, job: str, query: str) -> bool:
        """Whether a verdict on this query of this job is one of its own."""
        if self.job is not None:  # on a copy of its state its name is another one than what was asked for
            return job == self.job.name and self.query in (None, query)
        own = QueryRef.parse(self.ref)
        return (job, query) == (own.job, own.name)


@dataclass(frozen=True, slots=True)
class SlaView(JobView):
    """A job at one moment, and what was found of its SLA."""

    verdicts: Annotated[tuple[Verdict, ...], HIDDEN] = ()


@dataclass(slots=True)
class SlaLooks:
    """Looks at an SLA and at nothing else; by its declaration of that moment, so that a new mute counts."""

    find: Callable[[], SlaSubject]

    def look(self) -> Assessment:
        """How it is now.

        Raises:
            StreambankError: It is not declared any more, or something is wrong with the jobs file.
        """
        return self.find().assess()


@dataclass(slots=True)
class SlaWatcher:
    """Looks at a job's state and at its SLA.

    Args:
        find: Finds what is judged, with each look, so that a new limit or mute counts.
        job: Looks at the job's state; None for a query that is not declared.
        skew: Look at the files of its state, too.
    """

    find: Callable[[], SlaSubject]
    job: JobWatcher | None
    skew: bool

    @classmethod
    def of(cls, find: Callable[[], SlaSubject], *, skew: bool) -> SlaWatcher:
        one = find()
        watcher = None if one.job is None else JobWatcher(one.job, one.query, one.access)
        return cls(find, watcher, skew)

    def look(self) -> SlaView:
        """How it is now.

        Raises:
            StreambankError: The job's records cannot be read, or it is not declared any more.
        """
        subject = self.find()
        view = JobView(subject.ref, UNMANAGED) if self.job is None else self.job.look()
        return SlaView(**view.to_dict(), verdicts=subject.assess(skew=self.skew).verdicts)


@dataclass(frozen=True, slots=True)
class ObjectivesState:
    """How some objectives stand.

    Attributes:
        state: `broken`: one of them is; `kept`: none is, and they could be judged; `unknown`: not yet.
        level: The worst level of them; of several that are not named, what is unknown does not count.
        broken: The verdicts that are broken, worst first.
        never: An objective that was named and is not judged, having no limit.
    """

    state: Literal["broken", "kept", "unknown"]
    level: Level
    broken: tuple[Verdict, ...] = ()
    never: str | None = None


def standing(verdicts: Sequence[Verdict], objectives: Sequence[str], least: Level) -> ObjectivesState:
    """How the SLA stands.

    A mute says that nobody is to act, so muted verdicts do not count. Where no objective is named, one that
    is unknown does not count either: there always are some, such as hot keys that nobody has looked for; but
    nothing is kept whose history is not known. Where some are named, all of them have to be known.

    Args:
        objectives: Those that count; empty for all.
        least: From which level on an objective is broken here.
    """
    named = (*objectives, HISTORY)
    wanted = [verdict for verdict in verdicts if not objectives or verdict.objective in named]
    heard = [one for one in wanted if one.mute is None]
    never = next((name for name in objectives if name not in {one.objective for one in wanted}), None)
    broken = sorted(
        (one for one in heard if LEVELS.index(one.level) >= LEVELS.index(least)),
        key=lambda one: -LEVELS.index(one.level),
    )
    unknown = [one for one in heard if one.level == "unknown" and (objectives or one.objective == HISTORY)]
    level: Level = max((one.level for one in [*broken, *unknown]), key=LEVELS.index, default="ok")
    if broken:
        return ObjectivesState("broken", level, tuple(broken), never)
    known = not unknown and never is None and heard
    return ObjectivesState("kept" if known else "unknown", level, (), never)
